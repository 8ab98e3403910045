#include "server/jobs/transition.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/enum_text.h"
#include "proto/status.h"

namespace legoai::server {
namespace {

// What may follow a state. A job that is asked to end while nothing runs is cancelled at once; one with a lease is cancelling
// first. A lost attempt is restarting before it is leased or planned again; one that stopped as asked, to be moved, is queued.
const std::map<v1::JobState, std::vector<v1::JobState>>& Followers() {
  using namespace v1;  // the states' names
  static const auto* const followers = new std::map<JobState, std::vector<JobState>>{
      {SUBMITTED, {PLANNING, FAILED, CANCELLED}},
      {PLANNING, {SUBMITTED, QUEUED, RESTARTING, FAILED, CANCELLED}},
      {QUEUED, {LEASED, PLANNING, FAILED, CANCELLED}},
      {LEASED, {STARTING, RUNNING, QUEUED, RESTARTING, CANCELLING, SUCCEEDED, FAILED}},
      {STARTING, {RUNNING, QUEUED, RESTARTING, CANCELLING, SUCCEEDED, FAILED}},
      {RUNNING, {QUEUED, RESTARTING, CANCELLING, SUCCEEDED, FAILED}},
      {RESTARTING, {LEASED, PLANNING, FAILED, CANCELLED}},
      {CANCELLING, {CANCELLED, SUCCEEDED, FAILED}},
  };
  return *followers;
}

}  // namespace

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

bool IsFinal(v1::JobState state) { return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED; }

bool HoldsLease(v1::JobState state) {
  return state == v1::LEASED || state == v1::STARTING || state == v1::RUNNING || state == v1::CANCELLING;
}

bool MayFollow(v1::JobState from, v1::JobState to) {
  const auto found = Followers().find(from);
  return found != Followers().end() && std::count(found->second.begin(), found->second.end(), to) > 0;
}

std::vector<v1::JobState> ActiveStates() {
  std::vector<v1::JobState> states;
  for (const auto& [state, followers] : Followers()) states.push_back(state);
  return states;
}

std::string StateText(v1::JobState state) { return EnumText(state); }

}  // namespace legoai::server
