// Whether a job's data lies in folders that workers allow jobs to read. Known at submission only for workers on this host, where
// symbolic links can be followed. Thread-safety: functions of the file system.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "proto/legoai/v1/job.pb.h"
#include "server/fleet/fleet.h"

namespace legoai::server {

// OK unless every connected worker that `spec` could get is on `host`, announces its folders (launch::kDataRootsLabel), and does
// not allow a path that the job reads: then a FieldError of that path. Agents check it again.
absl::Status CheckReadable(const v1::JobSpec& spec, const Fleet& fleet, const std::string& host);

// The name of this host, as agents report theirs.
std::string ThisHost();

}  // namespace legoai::server
