// Whether what a job reads lies where workers let jobs read: known at once where the workers are of this host, whose links can be
// followed here. Thread-safety: functions of the file system.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/worker.pb.h"

namespace legoai::server {

// OK unless every connected worker that `spec` could get is of `host`, says its folders (launch::kDataRootsLabel), and may not
// read what the job reads: then a FieldError of that path. Agents look at it again.
absl::Status CheckReadable(const v1::JobSpec& spec, const std::vector<v1::Worker>& workers, const std::string& host);

// This host, as agents name theirs.
std::string ThisHost();

}  // namespace legoai::server
