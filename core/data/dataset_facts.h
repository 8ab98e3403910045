// What is known of a dataset without parsing its text: that it exists, its length, its digest. A submission carries these facts,
// and the host that trains checks them. Thread-safety: pure functions of the file system.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/files.h"
#include "proto/legoai/v1/dataset.pb.h"

namespace legoai::data {

// The path of "file:///data/corpus.txt" or of a plain path. Other schemes are refused by name.
absl::StatusOr<std::string> DatasetPath(const std::string& uri);

// Reads the whole file for its digest. Errors (field training.dataset_path): missing, not a regular file, empty; Cancelled.
absl::StatusOr<v1::Dataset> DatasetFacts(const std::string& uri, const checkpoint::Cancel& cancel = nullptr);

}  // namespace legoai::data
