#include "worker/launch/gang_coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/launch/exit_status.h"

namespace legoai::launch {
namespace {

// A failure that says nothing but that a peer or an answer was missing.
bool IsConsequence(int code) {
  switch (static_cast<absl::StatusCode>(code)) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted: return true;
    default: return false;
  }
}

}  // namespace

GangCoordinator::GangCoordinator(Options options, const LaunchCallbacks& callbacks, const WatchClock& clock,
                                 std::function<void(const v1::ToHost&)> tell)
    : options_(std::move(options)),
      callbacks_(callbacks),
      clock_(clock),
      tell_(std::move(tell)),
      pending_(options_.most_pending_commits, callbacks_.commit) {
  for (int64_t rank = 0; rank < options_.world_size; ++rank)
    ranks_.push_back(std::make_unique<GangRank>(rank, clock_.now(), &failures_));
}

void GangCoordinator::Hear(const v1::FromHost& message) {
  if (message.has_rank_says()) HearRank(*ranks_.at(message.rank_says().rank()), message.rank_says());
  if (message.has_fault())
    ranks_.at(message.fault().rank())->Fail(message.fault().blame(), ExitStatus(message.fault().failure()));
  if (message.has_ended()) ranks_.at(message.ended().rank())->ended = true;
  if (message.has_answered()) TakeAnswers(message.answered());
  if (message.has_done()) done_ = true;
}

void GangCoordinator::HearRank(GangRank& rank, const v1::FromTrainer& message) {
  rank.last_heard = clock_.now();
  if (message.has_progress()) {
    rank.last_progress = message.progress();
    if (const std::optional<int64_t> step = HeldBy()) rank.last_progress.set_waits(WaitsForVerdict(*step));
    if (callbacks_.progress) callbacks_.progress(rank.rank(), rank.last_progress);
  }
  if (message.has_metrics() && callbacks_.metrics) callbacks_.metrics(rank.rank(), message.metrics());
  if (message.has_log() && callbacks_.log) callbacks_.log(rank.rank(), message.log());
  if (message.has_step_trace() && callbacks_.step_trace) callbacks_.step_trace(rank.rank(), message.step_trace());
  if (message.has_flight_answer()) {
    rank.answered = true;
    rank.waits_in = message.flight_answer().waits_in();
  }
  if (message.has_arrived()) Arrive(rank, message.arrived().meeting());
  if (message.has_checkpoint_ready()) Vote(rank, message.checkpoint_ready());
  if (message.has_exit()) {
    rank.exit = message.exit();
    if (message.exit().cause() != v1::Exit::FAILED) return;
    rank.Fail(IsConsequence(message.exit().code()) ? v1::BLAME_CONSEQUENCE : v1::BLAME_CAUSE, ExitStatus(message.exit()));
  }
}

void GangCoordinator::Vote(GangRank& rank, const v1::CheckpointReady& ready) {
  rank.ready = ready;
  std::vector<std::string> digests;
  for (const auto& other : ranks_) {
    if (!other->ready || other->ready->step() != ready.step()) return;
    digests.push_back(other->ready->digest());
  }
  for (const auto& other : ranks_) other->ready.reset();
  pending_.Add(ready.step(), std::move(digests));
}

// Who decides may be far away: meanwhile the ranks are watched, and can be stopped.
void GangCoordinator::AskForVerdicts() {
  for (const PendingCommits::Verdict& verdict : pending_.Ask()) {
    v1::ToTrainer answer;
    if (verdict.status.ok()) {
      answer.mutable_commit()->set_step(verdict.step);
    } else {
      answer.mutable_deny()->set_step(verdict.step);
      answer.mutable_deny()->set_reason(std::string(verdict.status.message()));
    }
    Broadcast(answer);
  }
  EndMeeting();
}

// The step for whose verdict the ranks are held in their meeting. Those that shall discard what they do wait for none.
std::optional<int64_t> GangCoordinator::HeldBy() const {
  return meeting_ && !discard_since_ ? pending_.WaitsFor() : std::nullopt;
}

void GangCoordinator::EndMeeting() {
  if (!meeting_ || HeldBy()) return;
  v1::ToTrainer message;
  message.mutable_met()->set_meeting(*std::exchange(meeting_, std::nullopt));
  Broadcast(message);
}

void GangCoordinator::Arrive(GangRank& rank, int64_t meeting) {
  rank.meeting = meeting;
  if (std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& other) { return other->meeting != meeting; })) return;
  meeting_ = meeting;
}

void GangCoordinator::HandleStop(Stop stop) {
  asked_to_stop_ = true;
  if (stop == Stop::kKill) {
    killed_ = true;
    return End(/*kill=*/true);
  }
  if (stop == Stop::kDiscard && !discard_since_) discard_since_ = clock_.now();
  v1::ToTrainer message;
  message.mutable_stop()->set_save(stop == Stop::kSave);
  Broadcast(message);
}

void GangCoordinator::TakeAnswers(const v1::HostAnswered& answers) {
  for (const v1::HostAnswered::Rank& answer : answers.ranks()) {
    GangRank& rank = *ranks_.at(answer.rank());
    rank.process_state = answer.process_state();
    rank.connected = answer.connected();
  }
  answered_ = true;
}

void GangCoordinator::Trouble(const absl::Status& reason) {
  phase_ = Phase::kAsking;
  timed_out_ = absl::IsDeadlineExceeded(reason);
  v1::ToHost message;
  message.mutable_ask();
  tell_(message);
}

// Of those that have answered, where the failure is a time-out.
void GangCoordinator::FailHungRanks() {
  const GangRank* waiting = nullptr;
  for (const auto& rank : ranks_) {
    if (!rank->waits_in.empty() || (rank->exit && rank->exit->code() == static_cast<int>(absl::StatusCode::kDeadlineExceeded)))
      waiting = rank.get();
  }
  if (!timed_out_ || waiting == nullptr) return;
  for (auto& rank : ranks_) {
    if (rank->ended || !rank->connected || !rank->answered || !rank->waits_in.empty()) continue;
    rank->Fail(v1::BLAME_HUNG,
               absl::DeadlineExceededError(
                   absl::StrCat("hangs, or works longer than the time-out, while rank ", waiting->rank(), " waits",
                                waiting->waits_in.empty() ? "" : " in ", waiting->waits_in)));
  }
}

// After the one that is to blame has been found; not where the ranks were killed as asked.
void GangCoordinator::ReportTrouble() {
  const GangRank* culprit = Culprit();
  if (culprit == nullptr || killed_ || discarded_ || std::exchange(told_trouble_, true) || !callbacks_.troubled) return;
  std::vector<v1::RankCondition> conditions;
  for (const auto& rank : ranks_) conditions.push_back(rank->Condition(clock_.now()));
  callbacks_.troubled(conditions, culprit->failure);
}

// From trouble to the end of all processes: ask, and have them ended.
void GangCoordinator::Advance() {
  const auto failed =
      std::find_if(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->blame != v1::BLAME_NONE; });
  if (phase_ == Phase::kRunning && discard_since_ && clock_.now() - *discard_since_ > options_.discard_grace) {
    discarded_ = true;
    End(/*kill=*/true);
  } else if (phase_ == Phase::kRunning && failed != ranks_.end()) {
    Trouble((*failed)->failure);
  } else if (phase_ == Phase::kAsking && answered_) {
    FailHungRanks();
    ReportTrouble();
    End(/*kill=*/false);
  }
}

void GangCoordinator::End(bool kill) {
  phase_ = Phase::kEnding;
  v1::ToHost message;
  message.mutable_end()->set_kill(kill);
  tell_(message);
}

void GangCoordinator::Broadcast(const v1::ToTrainer& message) {
  v1::ToHost to_host;
  *to_host.mutable_to_ranks() = message;
  tell_(to_host);
}

bool GangCoordinator::AllEnded() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->ended; });
}

// Null: nobody has failed.
const GangRank* GangCoordinator::Culprit() const {
  const GangRank* culprit = nullptr;
  for (const auto& rank : ranks_) {
    if (rank->blame == v1::BLAME_NONE) continue;
    if (culprit == nullptr || rank->blame > culprit->blame ||
        (rank->blame == culprit->blame && rank->failed_as < culprit->failed_as)) {
      culprit = rank.get();
    }
  }
  return culprit;
}

absl::StatusOr<LaunchOutcome> GangCoordinator::Conclude() {
  if (!killed_ && !discarded_) AskForVerdicts();  // for what the ranks have said last
  ReportTrouble();                                // if all ended before they could be asked
  if (killed_ && AllEnded()) return absl::CancelledError("killed as asked");
  if (discarded_ && AllEnded()) return LaunchOutcome{v1::Exit::STOPPED, ranks_[0]->last_progress.step()};
  if (const GangRank* culprit = Culprit()) return culprit->failure;
  return LaunchOutcome{ranks_[0]->exit->cause(), ranks_[0]->exit->step()};
}

}  // namespace legoai::launch
