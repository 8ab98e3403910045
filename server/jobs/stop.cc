#include "server/jobs/stop.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/text.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

v1::StopRequest MakeStop(bool save, std::string_view reason, absl::Duration grace, int64_t now_us) {
  v1::StopRequest stop;
  stop.set_save(save);
  stop.set_reason(std::string(reason));
  stop.set_request_time_us(now_us);
  if (save) stop.set_deadline_time_us(now_us + absl::ToInt64Microseconds(grace));
  return stop;
}

std::string GraceText(const v1::StopRequest& stop) {
  return DurationText(absl::Microseconds(stop.deadline_time_us() - stop.request_time_us()));
}

// "its last checkpoint is of step 20"
std::string LastCheckpointText(const v1::Job& job) {
  if (job.has_committed_step()) return absl::StrCat("its last checkpoint is of step ", job.committed_step());
  if (job.has_starts_from())
    return absl::StrCat("it has no checkpoint but step ", job.starts_from().step(), " of the job that it retries");
  return "it has no checkpoint";
}

// How a stop with a checkpoint has ended, after `last_step`.
std::string SavedText(const v1::Job& job, int64_t last_step, int64_t now_us) {
  if (job.has_committed_step() && job.committed_step() == last_step)
    return absl::StrCat("step ", last_step, " is saved, and nothing was lost");
  if (last_step == job.starts_from().step()) return "it had done no step yet";
  const std::string why = now_us < job.stop().deadline_time_us()
                              ? " could not be saved, as its log says"
                              : absl::StrCat(" was not saved within ", GraceText(job.stop()));
  return absl::StrCat("step ", last_step, why, ": ", LastCheckpointText(job));
}

absl::Status EndCancelled(store::Transaction& transaction, std::string_view reason, int64_t now_us, v1::Job* job) {
  google::rpc::Status& error = *job->mutable_outcome()->mutable_error();
  error.set_code(static_cast<int>(absl::StatusCode::kCancelled));
  error.set_message(std::string(reason));
  return Move(transaction, job, v1::CANCELLED, reason, now_us);
}

// What users asked for; without a stop, of a server that knew of none.
const std::string& ReasonOf(const v1::Job& job) { return job.has_stop() ? job.stop().reason() : job.reason(); }

}  // namespace

absl::StatusOr<absl::Duration> StopGrace(std::string_view field, double seconds) {
  if (seconds == 0) return kDefaultStopGrace;
  const absl::Duration grace = absl::Seconds(seconds);
  if (std::isfinite(seconds) && seconds > 0 && grace <= kLongestStopGrace) return grace;
  return FieldError(field, absl::StrCat(seconds),
                    absl::StrCat("must be above 0 and at most ", absl::ToInt64Seconds(kLongestStopGrace), ", or left out for ",
                                 absl::ToInt64Seconds(kDefaultStopGrace)));
}

absl::StatusOr<bool> CancelJob(store::Transaction& transaction, const v1::CancelJobRequest& request, int64_t now_us,
                               v1::Job* job) {
  ASSIGN_OR_RETURN(const absl::Duration grace, StopGrace("grace_seconds", request.grace_seconds()));
  if (IsFinal(job->state())) return false;
  const std::string reason = request.reason().empty() ? "was cancelled" : absl::StrCat("was cancelled: ", request.reason());
  if (job->state() == v1::CANCELLING) {
    if (request.save() || !job->stop().save()) return false;
    *job->mutable_stop() = MakeStop(false, reason, grace, now_us);
    job->set_reason(absl::StrCat(reason, "; it does not save any more"));
    RETURN_IF_ERROR(Touch(transaction, job, now_us));
    return true;
  }
  if (!HoldsLease(job->state())) {
    const std::string text = request.save() ? absl::StrCat(reason, "; nothing was to be saved, since it did not run: ",
                                                           LastCheckpointText(*job))
                                            : reason;
    RETURN_IF_ERROR(EndCancelled(transaction, text, now_us, job));
    return true;
  }
  if (request.save() && job->stop().save() && now_us >= job->stop().deadline_time_us()) {
    // It is being moved, and its trainers were told to stop without. What becomes of it says so (SavedText).
    job->mutable_stop()->set_reason(reason);
    RETURN_IF_ERROR(Move(transaction, job, v1::CANCELLING,
                         absl::StrCat(reason, "; it is too late to save, for which it had ", GraceText(job->stop())), now_us));
    return true;
  }
  *job->mutable_stop() = MakeStop(request.save(), reason, grace, now_us);
  const std::string saves = request.save() ? absl::StrCat("; it saves first, for at most ", GraceText(job->stop())) : "";
  RETURN_IF_ERROR(Move(transaction, job, v1::CANCELLING, absl::StrCat(reason, saves), now_us));
  return true;
}

absl::StatusOr<bool> AskToMove(store::Transaction& transaction, std::string_view why, absl::Duration grace, int64_t now_us,
                               v1::Job* job) {
  if (!HoldsLease(job->state()) || job->state() == v1::CANCELLING || job->has_stop()) return false;
  *job->mutable_stop() = MakeStop(/*save=*/true, why, grace, now_us);
  job->set_reason(
      absl::StrCat("saves, for at most ", GraceText(job->stop()), ", and goes on where there is room: ", std::string(why)));
  RETURN_IF_ERROR(Touch(transaction, job, now_us));
  return true;
}

absl::Status AfterStop(store::Transaction& transaction, int64_t last_step, int64_t now_us, v1::Job* job) {
  const std::string saved = job->stop().save() ? absl::StrCat("; ", SavedText(*job, last_step, now_us)) : "";
  const std::string text = absl::StrCat(ReasonOf(*job), saved);
  if (job->state() == v1::CANCELLING) return EndCancelled(transaction, text, now_us, job);
  job->clear_stop();
  job->clear_not_before_time_us();
  return Move(transaction, job, v1::QUEUED, absl::StrCat("stopped on request: ", text), now_us);
}

absl::Status AfterFailedStop(store::Transaction& transaction, const absl::Status& error, int64_t now_us, v1::Job* job) {
  if (!job->stop().save()) return EndCancelled(transaction, ReasonOf(*job), now_us, job);
  return EndCancelled(transaction,
                      absl::StrCat(ReasonOf(*job), "; it could not save any more (", std::string(error.message()),
                                   "): ", LastCheckpointText(*job)),
                      now_us, job);
}

}  // namespace legoai::server
