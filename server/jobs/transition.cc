#include "server/jobs/transition.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status.h"

namespace legoai::server {

absl::Status AppendStateLine(store::Transaction& transaction, const v1::Job& job, int64_t now_us) {
  const v1::JobState state = job.state();
  if (state == v1::STARTING || state == v1::RUNNING) return absl::OkStatus();
  v1::LogLine line;
  line.set_attempt(job.attempts());
  line.set_epoch(job.epoch());
  line.set_level(state == v1::FAILED ? "error" : state == v1::RESTARTING ? "warning" : "info");
  line.set_text(absl::StrCat("job ", StateText(state), job.reason().empty() ? "" : ": ", job.reason()));
  line.set_time_us(now_us);
  return transaction.AppendLog(job.name(), std::move(line));
}

absl::Status Move(store::Transaction& transaction, v1::Job* job, v1::JobState to, std::string_view reason, int64_t now_us) {
  const v1::JobState from = job->state();
  if (!MayFollow(from, to)) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job->name(), " is ", StateText(from), " and cannot become ", StateText(to)));
  }
  job->set_state(to);
  job->set_reason(std::string(reason));
  if (to == v1::LEASED && !job->has_start_time_us()) job->set_start_time_us(now_us);
  if (IsFinal(to)) job->set_end_time_us(now_us);
  if (to != v1::QUEUED && to != v1::RESTARTING) job->clear_queue_position();
  RETURN_IF_ERROR(Touch(transaction, job, now_us));
  v1::Transition transition;
  transition.set_job(job->name());
  transition.set_version(job->version());
  transition.set_from(from);
  transition.set_to(to);
  transition.set_reason(job->reason());
  transition.set_epoch(job->epoch());
  transition.set_time_us(now_us);
  RETURN_IF_ERROR(transaction.AppendTransition(transition));
  return AppendStateLine(transaction, *job, now_us);
}

absl::Status Touch(store::Transaction& transaction, v1::Job* job, int64_t now_us) {
  const int64_t expected = job->version();
  job->set_version(expected + 1);
  job->set_update_time_us(std::max(now_us, job->update_time_us()));
  return transaction.UpdateJob(*job, expected);
}

}  // namespace legoai::server
