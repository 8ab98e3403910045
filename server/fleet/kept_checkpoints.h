// Which committed checkpoints are still on the disk, as agents report it: those that are gone stay in the store, with the time,
// and are not listed. The one that the job goes on from is never among them. gRPC-free.
// Thread-safety: functions of the transaction that is given.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/worker_service.pb.h"
#include "server/store/store.h"

namespace legoai::server {

// Of the job's checkpoints in this directory, those before its last step that are not among its steps are gone. False, and
// nothing is changed, where none of the job's is in this directory.
absl::StatusOr<bool> KeepOnly(store::Transaction& transaction, const v1::Job& job, const v1::DirectoryKept& kept, int64_t now_us);

// Those of all epochs before the job's are gone.
absl::Status RemoveEarlier(store::Transaction& transaction, const v1::Job& job, int64_t now_us);

}  // namespace legoai::server
