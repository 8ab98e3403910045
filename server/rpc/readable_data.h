// Whether a job's data lies in folders that workers allow jobs to read. Known at submission only for workers on this host, where
// symbolic links can be followed. Thread-safety: functions of the file system.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/worker.pb.h"

namespace legoai::server {

// OK unless every connected worker that `spec` could get is on `host`, announces its folders (launch::kDataRootsLabel), and does
// not allow a path that the job reads: then a FieldError of that path. Agents check it again.
absl::Status CheckReadable(const v1::JobSpec& spec, const std::vector<v1::Worker>& workers, const std::string& host);

// The name of this host, as agents report theirs.
std::string ThisHost();

}  // namespace legoai::server
