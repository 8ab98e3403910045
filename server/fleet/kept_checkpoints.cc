#include "server/fleet/kept_checkpoints.h"

#include <algorithm>
#include <functional>
#include <set>

#include "proto/status.h"

namespace legoai::server {
namespace {

absl::Status MarkGone(store::Transaction& transaction, const v1::Job& job, int64_t now_us,
                      const std::function<bool(const v1::Checkpoint&)>& gone) {
  ASSIGN_OR_RETURN(auto checkpoints, transaction.ListKeptCheckpoints(job.name()));
  for (v1::Checkpoint& checkpoint : checkpoints) {
    const bool latest = job.has_committed_step() && checkpoint.step() == job.committed_step();
    // Nobody removes what was put aside: it stays listed, with what is wrong with it.
    if (!checkpoint.damage().empty()) continue;
    if (latest || !gone(checkpoint)) continue;
    checkpoint.set_remove_time_us(now_us);
    RETURN_IF_ERROR(transaction.PutCheckpoint(job.name(), checkpoint));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> KeepOnly(store::Transaction& transaction, const v1::Job& job, const v1::DirectoryKept& kept,
                              int64_t now_us) {
  if (kept.steps().empty()) return true;
  ASSIGN_OR_RETURN(const auto known, transaction.ListKeptCheckpoints(job.name()));
  const auto there = [&](const v1::Checkpoint& one) { return one.directory() == kept.directory(); };
  if (std::none_of(known.begin(), known.end(), there)) return false;
  const std::set<int64_t> steps(kept.steps().begin(), kept.steps().end());
  const absl::Status status = MarkGone(transaction, job, now_us, [&](const v1::Checkpoint& one) {
    return there(one) && one.step() < *steps.rbegin() && steps.count(one.step()) == 0;
  });
  if (!status.ok()) return status;
  return true;
}

absl::Status RemoveEarlier(store::Transaction& transaction, const v1::Job& job, int64_t now_us) {
  return MarkGone(transaction, job, now_us, [&](const v1::Checkpoint& one) { return one.epoch() < job.epoch(); });
}

}  // namespace legoai::server
