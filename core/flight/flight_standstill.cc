#include "core/flight/flight_standstill.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/flight/flight_analysis.h"
#include "core/flight/flight_waits.h"

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
