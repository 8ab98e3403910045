#include "worker/launch/gang_coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
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
      ranks_of_each_(options_.world_size / static_cast<int64_t>(options_.hosts.size())),
      pending_(options_.most_pending_commits, callbacks_.commit) {
  for (const std::string& name : options_.hosts) hosts_.emplace_back().name = name;
  for (int64_t rank = 0; rank < options_.world_size; ++rank) {
    const std::string& host = hosts_.at(static_cast<size_t>(rank / ranks_of_each_)).name;
    ranks_.push_back(std::make_unique<GangRank>(rank, host, clock_.now(), &failures_));
  }
}

bool GangCoordinator::SpeaksOfOthers(int64_t host, const v1::FromHost& message) const {
  const auto of_other = [&](int64_t rank) { return rank < 0 || rank / ranks_of_each_ != host; };
  const auto& answers = message.answered().ranks();
  return (message.has_rank_says() && of_other(message.rank_says().rank())) ||
         (message.has_fault() && of_other(message.fault().rank())) || (message.has_ended() && of_other(message.ended().rank())) ||
         (message.has_flight() && of_other(message.flight().rank())) ||
         std::any_of(answers.begin(), answers.end(), [&](const auto& answer) { return of_other(answer.rank()); });
}

void GangCoordinator::Hear(int64_t host, const v1::FromHost& message) {
  if (hosts_.at(host).done) return;
  if (SpeaksOfOthers(host, message))
    return Lose(host, v1::BLAME_CAUSE, absl::InvalidArgumentError("broke the protocol: it speaks of ranks that it has not"));
  if (message.has_rank_says()) HearRank(*ranks_.at(message.rank_says().rank()), message.rank_says());
  if (message.has_fault())
    ranks_.at(message.fault().rank())->Fail(message.fault().blame(), ExitStatus(message.fault().failure()));
  if (message.has_ended()) ranks_.at(message.ended().rank())->ended = true;
  if (message.has_flight() && callbacks_.flight) callbacks_.flight(message.flight());
  if (message.has_answered()) TakeAnswers(host, message.answered());
  if (message.has_done()) HearDone(host, message.done());
}

// "host 1 at 10.0.0.3 (ranks 2 to 3)"
std::string GangCoordinator::NameOf(int64_t host) const {
  const int64_t first = host * ranks_of_each_, last = first + ranks_of_each_ - 1;
  return absl::StrCat(hosts_.at(host).name, first == last ? " (rank " : " (ranks ", first,
                      first == last ? "" : absl::StrCat(" to ", last), ")");
}

void GangCoordinator::HearDone(int64_t host, const v1::HostDone& done) {
  if (done.has_failure()) Lose(host, v1::BLAME_CAUSE, ExitStatus(done.failure()));
  hosts_.at(host).answered = hosts_.at(host).done = true;  // it is not there to be asked any more
}

void GangCoordinator::Lose(int64_t host, v1::Blame blame, const absl::Status& why) {
  Host& lost = hosts_.at(host);
  if (lost.done) return;
  lost.failure.Note(blame, why, NameOf(host), &failures_);
  lost.answered = lost.done = true;
  for (int64_t rank = host * ranks_of_each_; rank < (host + 1) * ranks_of_each_; ++rank) {
    if (!ranks_.at(rank)->ended) ranks_.at(rank)->Fail(v1::BLAME_CONSEQUENCE, Annotate(why, "its host is lost"));
    ranks_.at(rank)->ended = true;
  }
  if (blame == v1::BLAME_UNRESPONSIVE) BlameOwnHostIfAllAreSilent();
}

// Where none of several is heard of, it is rather the one that listens.
void GangCoordinator::BlameOwnHostIfAllAreSilent() {
  const bool all_silent = std::all_of(hosts_.begin() + 1, hosts_.end(),
                                      [](const Host& host) { return host.failure.blame == v1::BLAME_UNRESPONSIVE; });
  if (!all_silent || hosts_.size() < 3) return;
  hosts_[0].failure.Note(
      v1::BLAME_CAUSE,
      absl::UnavailableError("hears of none of the others: its network is down, or all of them are stopped or cut off"),
      NameOf(0), &failures_);
}

bool GangCoordinator::done() const {
  return std::all_of(hosts_.begin(), hosts_.end(), [](const Host& host) { return host.done; });
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

void GangCoordinator::TakeAnswers(int64_t host, const v1::HostAnswered& answers) {
  for (const v1::HostAnswered::Rank& answer : answers.ranks()) {
    GangRank& rank = *ranks_.at(answer.rank());
    rank.process_state = answer.process_state();
    rank.connected = answer.connected();
  }
  hosts_.at(host).answered = true;
}

void GangCoordinator::Trouble(const absl::Status& reason) {
  phase_ = Phase::kAsking;
  // Where a host is silent, it alone is to blame.
  const bool of_host =
      std::any_of(hosts_.begin(), hosts_.end(), [](const Host& host) { return host.failure.blame != v1::BLAME_NONE; });
  timed_out_ = absl::IsDeadlineExceeded(reason) && !of_host;
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
  const Failure* worst = Worst();
  if (worst == nullptr || killed_ || discarded_ || std::exchange(told_trouble_, true) || !callbacks_.troubled) return;
  std::vector<v1::RankCondition> conditions;
  for (const auto& rank : ranks_) conditions.push_back(rank->Condition(clock_.now()));
  callbacks_.troubled(conditions, worst->status);
}

// From trouble to the end of all processes: ask, and have them ended.
void GangCoordinator::Advance() {
  const auto failed =
      std::find_if(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->failure.blame != v1::BLAME_NONE; });
  const bool discard_is_late = discard_since_ && clock_.now() - *discard_since_ > options_.discard_grace;
  if (phase_ == Phase::kRunning && discard_is_late) {
    discarded_ = true;
    End(/*kill=*/true);
  } else if (phase_ == Phase::kRunning && failed != ranks_.end()) {
    Trouble((*failed)->failure.status);
  } else if (phase_ == Phase::kAsking && (AllAnswered() || discard_is_late)) {
    FailHungRanks();
    ReportTrouble();
    End(/*kill=*/discard_is_late);
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

bool GangCoordinator::AllAnswered() const {
  return std::all_of(hosts_.begin(), hosts_.end(), [](const Host& host) { return host.answered; });
}

bool GangCoordinator::AllEnded() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->ended; });
}

// Null: nobody has failed.
const Failure* GangCoordinator::Worst() const {
  const Failure* worst = nullptr;
  const auto consider = [&](const Failure& failure) {
    if (failure.blame == v1::BLAME_NONE) return;
    if (worst == nullptr || failure.IsWorseThan(*worst)) worst = &failure;
  };
  for (const Host& host : hosts_) consider(host.failure);
  for (const auto& rank : ranks_) consider(rank->failure);
  return worst;
}

absl::StatusOr<LaunchOutcome> GangCoordinator::Conclude() {
  if (!killed_ && !discarded_) AskForVerdicts();  // for what the ranks have said last
  ReportTrouble();                                // if all ended before they could be asked
  if (killed_ && AllEnded()) return absl::CancelledError("killed as asked");
  if (discarded_ && AllEnded()) return LaunchOutcome{v1::Exit::STOPPED, ranks_[0]->last_progress.step()};
  if (const Failure* worst = Worst()) return worst->status;
  for (const auto& rank : ranks_) {
    if (rank->ended) continue;
    return absl::InternalError(absl::StrCat(NameOf(rank->rank() / ranks_of_each_),
                                            ": says that its ranks have ended, and not how rank ", rank->rank(), " did"));
  }
  return LaunchOutcome{ranks_[0]->exit->cause(), ranks_[0]->exit->step()};
}

}  // namespace legoai::launch
