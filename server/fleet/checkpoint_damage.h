// What an attempt's report that its checkpoint is damaged does to a job. gRPC-free.
// Thread-safety: functions of the transaction that is given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/checkpoint.pb.h"
#include "proto/legoai/v1/job.pb.h"
#include "server/store/store.h"

namespace legoai::server {

// Whether the attempt found a checkpoint damaged that it has saved itself, and not the one that it was to go on from.
bool DamagedItsOwn(const v1::Attempt& attempt);

// Marks the checkpoint that `attempt` (its latest, with the damage) has found damaged, be it the job's own or one of the job that
// it tries again: it is never gone on from any more (resume_point.h chooses the next older one). Counts the step back in both
// jobs, and sets the committed step of the one that has written it to that of the newest that is kept and whole, or to none; of
// `job` in memory, of another one in the store. Gives the reason, "the checkpoint of step 8 is damaged (…)". Another retry may
// have found the same before: then it is counted and told, and the mark stays as it was.
//
// Nothing, and nothing is changed, where the damage is of no kept checkpoint that the job could go on from.
absl::StatusOr<std::optional<std::string>> PassOver(store::Transaction& transaction, const v1::Attempt& attempt, int64_t now_us,
                                                    v1::Job* job);

// Takes the mark from a checkpoint, which whoever goes on from it verifies: what was damaged may have been the way to it, a disk
// that was away or a cable. A worker that has put its folder aside gives it its place again. The committed step of the job that
// has written it follows.
absl::Status TrustAgain(store::Transaction& transaction, int64_t now_us, v1::Checkpoint* checkpoint);

}  // namespace legoai::server
