#include "core/flight/flight_waits.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/flight/flight_analysis.h"

namespace legoai::comm {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// Messages are numbered rank by rank: each rank's is an operation of its own (the last part).
using Operation = std::tuple<std::string, std::string, int64_t, int64_t>;

Operation OperationOf(const v1::FlightDump& dump, const v1::FlightEntry& entry) {
  std::string ranks;
  for (const auto& group : dump.groups()) {
    if (group.pg_id() == entry.pg_id()) ranks = absl::StrJoin(group.ranks(), ",");
  }
  if (entry.is_p2p()) return {entry.process_group(), ranks, entry.record_id(), dump.rank()};
  return {entry.process_group(), ranks, entry.collective_seq_id(), -1};
}

// Operations that somebody came to, or got through, between the looks, or entered less than a second ago.
std::set<Operation> Moving(const std::vector<v1::FlightDump>& earlier, const std::vector<v1::FlightDump>& later, int64_t now_ns) {
  std::map<std::pair<int64_t, int64_t>, std::string> states;  // by rank and record
  for (const auto& dump : earlier) {
    for (const auto& entry : dump.entries()) states[{dump.rank(), entry.record_id()}] = entry.state();
  }
  std::set<Operation> moving;
  for (const auto& dump : later) {
    for (const auto& entry : dump.entries()) {
      const auto before = states.find({dump.rank(), entry.record_id()});
      const bool moved = before == states.end() || before->second != entry.state();
      const bool fresh = entry.state() == "started" && now_ns - entry.time_started_ns() < kSecond;
      if (moved || fresh) moving.insert(OperationOf(dump, entry));
    }
  }
  return moving;
}

// Who has been inside of something, and since when.
struct Inside {
  std::set<int64_t> ranks;
  int64_t since_ns = INT64_MAX;
};

// Leaves of what is under way only what stands still: the rest counts as done.
Inside KeepStanding(const std::set<Operation>& moving, std::vector<v1::FlightDump>* dumps) {
  Inside inside;
  for (auto& dump : *dumps) {
    dump.set_reason("stands still");
    for (auto& entry : *dump.mutable_entries()) {
      if (entry.state() == "completed") continue;
      if (moving.count(OperationOf(dump, entry)) > 0) {
        entry.set_state("completed");
      } else if (entry.state() == "started") {
        inside.ranks.insert(dump.rank());
        inside.since_ns = std::min(inside.since_ns, entry.time_started_ns());
      }
    }
  }
  return inside;
}

std::string RankWord(const std::set<int64_t>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", RanksText({ranks.begin(), ranks.end()}));
}

// "rank 0 waits for rank 1 since 12 s: rank 1 has not entered ..."
std::string WaitText(const v1::FlightAnalysis& analysis, Inside inside, int64_t now_ns) {
  const std::string since = absl::StrCat(" since ", (now_ns - inside.since_ns) / kSecond, " s: ", analysis.text());
  const std::set<int64_t> awaited(analysis.culprits().begin(), analysis.culprits().end());
  std::set<int64_t> waiting = inside.ranks;
  for (int64_t rank : awaited) waiting.erase(rank);
  if (awaited.empty() || waiting.empty()) return absl::StrCat(RankWord(inside.ranks), " did not go on", since);
  return absl::StrCat(RankWord(waiting), waiting.size() == 1 ? " waits for " : " wait for ", RankWord(awaited), since);
}

}  // namespace

int64_t FlightWaits::Add(const std::vector<Place>& waiters, const std::vector<Place>& blockers) {
  const auto number = static_cast<int64_t>(waits_.size());
  Wait wait;
  wait.blockers = blockers;
  for (const Place& waiter : waiters) {
    if (wait.waiters.emplace(waiter.rank, waiter.record).second) waits_of_[waiter.rank].push_back(number);
  }
  waits_.push_back(std::move(wait));
  return number;
}

std::set<int64_t> FlightWaits::Waiting() const {
  std::set<int64_t> waiting;
  for (const Wait& wait : waits_) {
    if (wait.blockers.empty()) continue;
    for (const auto& [rank, record] : wait.waiters) waiting.insert(rank);
  }
  for (int64_t rank : blamed_) waiting.erase(rank);
  return waiting;
}

// Whether somebody came to `wait` although it is inside `earlier`, which it had queued before.
bool FlightWaits::Passed(const Wait& wait, const Wait& earlier) const {
  return std::any_of(wait.waiters.begin(), wait.waiters.end(), [&](const auto& waiter) {
    const auto found = earlier.waiters.find(waiter.first);
    return found != earlier.waiters.end() && found->second < waiter.second;
  });
}

// The waits that keep a blocker from coming.
std::vector<int64_t> FlightWaits::HeldUpBy(const Wait& wait, const Place& blocker) const {
  std::vector<int64_t> held_up_by;
  const auto found = waits_of_.find(blocker.rank);
  if (blamed_.count(blocker.rank) > 0 || found == waits_of_.end()) return held_up_by;
  for (int64_t number : found->second) {
    const Wait& earlier = waits_[number];
    if (&earlier == &wait || earlier.waiters.at(blocker.rank) >= blocker.record || Passed(wait, earlier)) continue;
    held_up_by.push_back(number);
  }
  return held_up_by;
}

// Of waits that all come behind one another: those behind which none of them comes only follow.
std::set<int64_t> FlightWaits::Circle(std::set<int64_t> waits, const std::vector<std::set<int64_t>>& behind) {
  for (bool changed = true; changed;) {
    std::set<int64_t> kept;
    for (int64_t wait : waits) {
      const bool followed =
          std::any_of(behind[wait].begin(), behind[wait].end(), [&](int64_t one) { return waits.count(one) > 0; });
      if (followed) kept.insert(wait);
    }
    changed = kept.size() < waits.size();
    waits = std::move(kept);
  }
  return waits;
}

FlightWaits::Causes FlightWaits::Find() const {
  Causes causes;
  causes.of_wait.resize(waits_.size());
  std::vector<std::set<int64_t>> behind(waits_.size());  // by wait: those that it holds up
  std::vector<std::map<int64_t, std::vector<int64_t>>> held_up_by(waits_.size());
  std::vector<int64_t> open;  // waits of which a cause is known, and all that come behind them
  std::set<int64_t> rest;
  for (size_t number = 0; number < waits_.size(); ++number) {
    for (const Place& blocker : waits_[number].blockers) {
      auto& of_blocker = held_up_by[number][blocker.rank] = HeldUpBy(waits_[number], blocker);
      if (of_blocker.empty()) causes.of_wait[number].insert(blocker.rank);
      for (int64_t holder : of_blocker) behind[holder].insert(static_cast<int64_t>(number));
    }
    const bool known = waits_[number].blockers.empty() || !causes.of_wait[number].empty();
    known ? open.push_back(static_cast<int64_t>(number)) : void(rest.insert(static_cast<int64_t>(number)));
  }
  while (!open.empty()) {
    const int64_t number = open.back();
    open.pop_back();
    for (int64_t one : behind[number]) {
      if (rest.erase(one) > 0) open.push_back(one);
    }
  }
  causes.circle = Circle(std::move(rest), behind);
  for (int64_t number : causes.circle) {
    for (const auto& [rank, of_blocker] : held_up_by[number]) {
      const bool inside =
          std::any_of(of_blocker.begin(), of_blocker.end(), [&](int64_t w) { return causes.circle.count(w) > 0; });
      if (inside) causes.of_wait[number].insert(rank);
    }
  }
  for (size_t number = 0; number < waits_.size(); ++number) {
    causes.culprits.insert(causes.of_wait[number].begin(), causes.of_wait[number].end());
    if (waits_[number].blockers.empty() && !behind[number].empty()) causes.needed.insert(static_cast<int64_t>(number));
  }
  return causes;
}

std::string RanksText(const std::vector<int64_t>& ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i >= 3) {
      parts.push_back(absl::StrCat(ranks[i], "-", ranks[end - 1]));
    } else {
      for (size_t k = i; k < end; ++k) parts.push_back(absl::StrCat(ranks[k]));
    }
    i = end;
  }
  return absl::StrJoin(parts, ",");
}

v1::FlightAnalysis AnalyzeStandstill(const std::vector<v1::FlightDump>& earlier, const std::vector<v1::FlightDump>& later,
                                     int64_t world_size, int64_t now_ns) {
  const v1::FlightAnalysis at_once = AnalyzeFlight(later, world_size);
  std::vector<v1::FlightDump> standing = later;
  const Inside inside = KeepStanding(Moving(earlier, later, now_ns), &standing);
  if (at_once.culprits_size() > 0 || inside.ranks.empty()) return at_once;
  v1::FlightAnalysis analysis = AnalyzeFlight(standing, world_size);
  analysis.set_text(WaitText(analysis, inside, now_ns));
  analysis.set_verdict("undecided");
  analysis.clear_culprits();
  for (auto& finding : *analysis.mutable_findings()) {
    finding.set_verdict("undecided");
    finding.clear_culprits();
  }
  analysis.set_matched(at_once.matched());
  return analysis;
}

}  // namespace legoai::comm
