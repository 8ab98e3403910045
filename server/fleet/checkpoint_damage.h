// What an attempt's report that its checkpoint is damaged does to a job. gRPC-free.
// Thread-safety: functions of the transaction that is given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/checkpoint.pb.h"
#include "proto/legoai/v1/job.pb.h"
#include "server/store/store.h"

namespace legoai::server {

// Marks the checkpoint, be it the job's own or one of the job that it tries again: it is never gone on from any more
// (resume_point.h chooses the next older one). Counts the step back, and sets the committed step of the one that has written it
// to that of the newest that is kept and whole, or to none; of `job` in memory, of another one in the store. Gives the reason,
// "the checkpoint of step 8 is damaged (…)". Nothing, and nothing is changed, where `damage` is of no kept checkpoint that the
// job could go on from.
absl::StatusOr<std::optional<std::string>> PassOver(store::Transaction& transaction, const v1::CheckpointDamage& damage,
                                                    int64_t now_us, v1::Job* job);

}  // namespace legoai::server
