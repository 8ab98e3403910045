#include "core/flight/flight_analysis.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/flight/flight_history.h"
#include "core/flight/flight_match.h"
#include "core/flight/flight_waits.h"

namespace legoai::comm {
namespace {

// What is found at one operation, before it is known who is at the root.
struct Found {
  v1::FlightFinding finding;
  int64_t wait = -1;  // its number; -1: nobody waits here
  size_t waiters = 0;
  int64_t time_ns = 0;  // when the first rank came here
  bool mismatch = false;
  bool told_if_needed = false;      // of interest only if others wait behind it
  bool one_of = false;              // of those whom it may be one is to blame at least, not all
  std::vector<int64_t> candidates;  // one of whom is to blame, if others wait behind it or nothing else is found
};

std::string RankWord(const std::vector<int64_t>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", RanksText(ranks));
}

template <class Container>
std::vector<int64_t> ToVector(const Container& ranks) {
  return {ranks.begin(), ranks.end()};
}

std::vector<int64_t> RanksOf(const std::vector<FlightWaits::Place>& places) {
  std::vector<int64_t> ranks;
  for (const auto& place : places) ranks.push_back(place.rank);
  return ranks;
}

const char* Wait(const std::vector<int64_t>& waiters) { return waiters.size() == 1 ? " waits" : " wait"; }
const char* Has(const std::vector<int64_t>& ranks) { return ranks.size() == 1 ? " has" : " have"; }

using Places = std::vector<FlightWaits::Place>;
constexpr int64_t kNotQueued = INT64_MAX;
constexpr char kNotAlarmed[] =
    "; nobody is to blame for that so far: ranks in order are at different points when they are read, and whoever hangs is named "
    "when comm.train_timeout_seconds are over";

using Conditions = std::map<int64_t, const v1::RankCondition*>;  // by rank

// The ranks that the launcher knows to be the cause: those that failed; without any, those that are stopped or do not answer.
Conditions KnownCauses(const std::vector<v1::FlightDump>& dumps) {
  Conditions known;
  for (const char* fault : {"failed", "unresponsive"}) {
    for (const v1::FlightDump& dump : dumps) {
      if (dump.condition().fault() == fault) known[dump.rank()] = &dump.condition();
    }
    if (!known.empty()) break;
  }
  return known;
}

// Whether somebody has said that something is wrong. Where every dump was taken on request, of ranks of which the launcher knows
// no ill, they are at different points because they were read one after another, or go on at their own pace.
bool IsAlarmed(const std::vector<v1::FlightDump>& dumps) {
  return std::any_of(dumps.begin(), dumps.end(), [](const v1::FlightDump& dump) {
    const bool on_request = dump.reason() == "read" || dump.reason() == "request";
    return !on_request || (dump.has_condition() && dump.condition().fault() != "none");
  });
}

class Analyzer {
 public:
  Analyzer(const std::vector<v1::FlightDump>& dumps, int64_t world_size)
      : world_size_(world_size), history_(GatherFlight(dumps)), known_(KnownCauses(dumps)), alarmed_(IsAlarmed(dumps)) {
    for (const auto& [rank, condition] : known_) waits_.Blame(rank);
  }

  v1::FlightAnalysis Analyze() {
    for (const auto& collective : history_.collectives) LookAt(collective);
    for (const auto& channel : history_.channels) LookAt(channel);
    for (int64_t rank = 0; rank < world_size_; ++rank) {
      if (history_.dumped.count(rank) == 0) result_.add_ranks_without_dump(rank);
    }
    Conclude();
    return std::move(result_);
  }

 private:
  // --- collectives ---

  std::string Name(const FlightCollective& collective) const {
    return absl::StrCat(FlightKind(collective.parts.front().entry->profiling_name()), " ", collective.sequence, " of ",
                        history_.groups[collective.group].name);
  }

  Found NewFound(int64_t group, int64_t sequence, const FlightPart& part) const {
    Found found;
    found.finding.set_process_group(history_.groups[group].name);
    found.finding.set_sequence(sequence);
    found.finding.set_profiling_name(part.entry->profiling_name());
    found.time_ns = part.entry->time_created_ns();
    return found;
  }

  // Ranks of the group that have a dump and have not entered; what a ring has overwritten was entered.
  Places Missing(const FlightCollective& collective) const {
    std::map<int64_t, int64_t> missing;  // by rank: the record of what it has queued
    const auto& reach = history_.reach[collective.group];
    for (int64_t rank : history_.groups[collective.group].ranks) {
      const auto found = reach.find(rank);
      const bool behind = found == reach.end() || found->second.last < collective.sequence;
      if (history_.dumped.count(rank) > 0 && behind) missing[rank] = kNotQueued;
    }
    for (const FlightPart& part : collective.parts) {
      if (!part.entered && !part.completed) missing[part.rank] = part.entry->record_id();
    }
    Places places;
    for (const auto& [rank, record] : missing) places.push_back({rank, record});
    return places;
  }

  Places WithoutDump(const FlightCollective& collective) const {
    Places places;
    for (int64_t rank : history_.groups[collective.group].ranks) {
      if (history_.dumped.count(rank) == 0) places.push_back({rank, kNotQueued});
    }
    return places;
  }

  // Puts what was found where others wait for `blockers` (nobody: nobody knows for whom).
  void AddWait(Found found, const Places& waiters, const Places& blockers) {
    found.wait = waits_.Add(waiters, blockers);
    found.waiters = waiters.size();
    found_.push_back(std::move(found));
  }

  void LookAt(const FlightCollective& collective) {
    const int64_t group_size = static_cast<int64_t>(history_.groups[collective.group].ranks.size());
    Places inside;
    bool all_entered = true, any_completed = false;
    for (const FlightPart& part : collective.parts) {
      if (part.inside()) inside.push_back({part.rank, part.entry->record_id()});
      all_entered = all_entered && (part.entered || part.completed);
      any_completed = any_completed || part.completed;
    }
    const bool all = static_cast<int64_t>(collective.parts.size()) == group_size && all_entered;
    // After a mismatch the numbers of a group mean nothing any more: what follows is its consequence.
    const bool compare = collective.parts.size() > 1 && out_of_step_.count(collective.group) == 0;
    FlightMatch match = compare ? MatchCollective(collective, group_size) : FlightMatch{};
    if (!match.culprits.empty()) {
      out_of_step_.insert(collective.group);
      AddMismatch(collective, match, inside);
      return;
    }
    if (inside.empty()) {
      result_.set_matched(result_.matched() + all);
      return;
    }
    const auto missing = Missing(collective), unknown = WithoutDump(collective);
    const bool entered = missing.empty() && (unknown.empty() || any_completed);
    if (entered) result_.set_matched(result_.matched() + all);
    Found found = NewFound(collective.group, collective.sequence, collective.parts.front());
    if (IsKnownInside(inside)) {
      AddStandingStill(std::move(found), Name(collective), inside, missing);
    } else if (!missing.empty()) {
      AddMissing(std::move(found), Name(collective), inside, missing);
    } else if (!entered) {
      AddUnknown(std::move(found), Name(collective), inside, unknown);
    } else if (any_completed) {
      AddUnfinished(std::move(found), Name(collective), inside);
    } else {
      AddUnderWay(std::move(found), Name(collective), inside);
    }
  }

  bool IsKnownInside(const Places& inside) const {
    return std::any_of(inside.begin(), inside.end(), [&](const auto& place) { return known_.count(place.rank) > 0; });
  }

  // Of those inside of it some are known to go on no more: the others wait for them, and for who is missing.
  void AddStandingStill(Found found, const std::string& name, const Places& inside, Places missing) {
    Places still, waiters;
    for (const auto& place : inside) (known_.count(place.rank) > 0 ? still : waiters).push_back(place);
    const auto ranks = RanksOf(still), waiting = RanksOf(waiters);
    found.finding.set_verdict(kStateMismatch);
    for (int64_t rank : RanksOf(missing)) found.finding.add_missing_ranks(rank);
    found.finding.set_text(absl::StrCat(RankWord(ranks), Has(ranks), " entered ", name, " and ",
                                        ranks.size() == 1 ? "stands" : "stand", " still in it",
                                        waiting.empty() ? "" : absl::StrCat("; ", RankWord(waiting), Wait(waiting), " there")));
    missing.insert(missing.end(), still.begin(), still.end());
    AddWait(std::move(found), waiters, missing);
  }

  void AddMismatch(const FlightCollective& collective, const FlightMatch& match, const Places& inside) {
    Found found = NewFound(collective.group, collective.sequence, collective.parts.front());
    found.finding.set_text(absl::StrCat("at ", Name(collective), ": ", match.text));
    AddMismatch(std::move(found), match, inside);
  }

  void AddMismatch(Found found, const FlightMatch& match, const Places& inside) {
    found.mismatch = true;
    found.finding.set_verdict(match.verdict);
    for (int64_t rank : match.culprits) found.finding.add_culprits(rank);
    if (inside.empty()) {
      found_.push_back(std::move(found));
      return;
    }
    Places waiters, culprits;
    for (const auto& place : inside) {
      const bool blamed = std::find(match.culprits.begin(), match.culprits.end(), place.rank) != match.culprits.end();
      if (!blamed) waiters.push_back(place);
    }
    for (int64_t rank : match.culprits) {
      waits_.Blame(rank);
      culprits.push_back({rank, kNotQueued});
    }
    AddWait(std::move(found), waiters, culprits);
  }

  void AddMissing(Found found, const std::string& name, const Places& inside, const Places& missing) {
    const auto ranks = RanksOf(missing), waiters = RanksOf(inside);
    found.finding.set_verdict(kStateMismatch);
    for (int64_t rank : ranks) found.finding.add_missing_ranks(rank);
    found.finding.set_text(
        absl::StrCat(RankWord(ranks), Has(ranks), " not entered ", name, ", in which ", RankWord(waiters), Wait(waiters)));
    AddWait(std::move(found), inside, missing);
  }

  void AddUnknown(Found found, const std::string& name, const Places& inside, const Places& unknown) {
    found.one_of = true;
    const auto ranks = RanksOf(unknown), waiters = RanksOf(inside);
    found.finding.set_verdict(kUndecided);
    found.finding.set_text(absl::StrCat(RankWord(ranks), Has(ranks), " left no dump; ", RankWord(waiters), Wait(waiters), " in ",
                                        name, ", which all others have entered"));
    AddWait(std::move(found), inside, unknown);
  }

  // Whoever has completed it is not to blame. Of several that have not, one holds up the others: collectives are made of
  // messages.
  void AddUnfinished(Found found, const std::string& name, const Places& inside) {
    found.one_of = true;
    found.candidates = RanksOf(inside);
    found.finding.set_verdict(kStateMismatch);
    found.finding.set_text(absl::StrCat(RankWord(found.candidates), Has(found.candidates), " not completed ", name,
                                        ", which others have", inside.size() > 1 ? "; one of them holds it up" : ""));
    if (inside.size() > 1) {
      AddWait(std::move(found), inside, {});
    } else {
      found_.push_back(std::move(found));
    }
  }

  void AddUnderWay(Found found, const std::string& name, const Places& inside) {
    found.one_of = true;
    under_way_.push_back(name);
    found.told_if_needed = true;
    found.candidates = RanksOf(inside);
    std::sort(found.candidates.begin(), found.candidates.end());
    found.finding.set_verdict(kUndecided);
    found.finding.set_text(
        absl::StrCat(RankWord(found.candidates), " have entered ", name, ", and none has completed it; one of them holds it up"));
    AddWait(std::move(found), inside, {});
  }

  // --- messages ---

  void LookAt(const FlightChannel& channel) {
    if (!channel.whole) {
      LookAtPending(channel);
      return;
    }
    const size_t both = std::min(channel.sends.size(), channel.receives.size());
    for (size_t n = 0; n < both; ++n) {
      const FlightMatch match = MatchMessage(channel, n);
      if (!match.culprits.empty()) {
        AddMismatch(channel, n, match);
        return;
      }
      const FlightPart &send = channel.sends[n], &receive = channel.receives[n];
      const bool sender_in = send.entered || send.completed, receiver_in = receive.entered || receive.completed;
      if (send.inside() && !receiver_in) AddMessageWait(channel, send, receive.entry->record_id());
      if (receive.inside() && !sender_in) AddMessageWait(channel, receive, send.entry->record_id());
      if (send.inside() && receive.inside()) AddUnderWay(channel, send, receive);
    }
    for (const auto* side : {&channel.sends, &channel.receives}) {  // what the other side knows nothing of
      const auto first = std::find_if(side->begin() + both, side->end(), [](const auto& part) { return part.inside(); });
      if (first != side->end()) AddMessageWait(channel, *first, kNotQueued);
    }
  }

  // Of rings that have overwritten the beginning: a side that is inside a message while the other is not waits for it.
  void LookAtPending(const FlightChannel& channel) {
    auto first_inside = [](const std::vector<FlightPart>& parts) {
      const auto found = std::find_if(parts.begin(), parts.end(), [](const auto& part) { return part.inside(); });
      return found == parts.end() ? nullptr : &*found;
    };
    const FlightPart *send = first_inside(channel.sends), *receive = first_inside(channel.receives);
    if (send == nullptr && receive == nullptr) return;
    if (send != nullptr && receive != nullptr) return AddUnderWay(channel, *send, *receive);
    const auto& others = send != nullptr ? channel.receives : channel.sends;
    const auto queued = std::find_if(others.begin(), others.end(), [](const auto& part) { return !part.entered; });
    AddMessageWait(channel, send != nullptr ? *send : *receive, queued == others.end() ? kNotQueued : queued->entry->record_id());
  }

  std::string MessageName(const FlightChannel& channel, const FlightPart& part) const {
    return absl::StrCat("message ", part.entry->p2p_seq_id(), " of ", history_.groups[channel.group].name, " from rank ",
                        channel.from, " to rank ", channel.to);
  }

  // `queued`: the peer's record of it.
  void AddMessageWait(const FlightChannel& channel, const FlightPart& waiter, int64_t queued) {
    const bool sends = waiter.rank == channel.from && FlightKind(waiter.entry->profiling_name()) == "send";
    const int64_t peer = sends ? channel.to : channel.from;
    const bool has_dump = history_.dumped.count(peer) > 0;
    Found found = NewFound(channel.group, waiter.entry->p2p_seq_id(), waiter);
    found.one_of = !has_dump;
    found.finding.set_verdict(has_dump ? kStateMismatch : kUndecided);
    if (has_dump) found.finding.add_missing_ranks(peer);
    found.finding.set_text(has_dump ? absl::StrCat("rank ", peer, " does not ", sends ? "receive " : "send ",
                                                   MessageName(channel, waiter), ", for which rank ", waiter.rank, " waits")
                                    : absl::StrCat("rank ", peer, " has left no dump; rank ", waiter.rank, " waits in ",
                                                   MessageName(channel, waiter)));
    AddWait(std::move(found), {{waiter.rank, waiter.entry->record_id()}}, {{peer, queued}});
  }

  void AddUnderWay(const FlightChannel& channel, const FlightPart& send, const FlightPart& receive) {
    Found found = NewFound(channel.group, send.entry->p2p_seq_id(), send);
    const Places inside = {{send.rank, send.entry->record_id()}, {receive.rank, receive.entry->record_id()}};
    if (IsKnownInside(inside)) return AddStandingStill(std::move(found), MessageName(channel, send), inside, {});
    AddUnderWay(std::move(found), MessageName(channel, send), inside);
  }

  void AddMismatch(const FlightChannel& channel, size_t n, const FlightMatch& match) {
    Found found = NewFound(channel.group, channel.sends[n].entry->p2p_seq_id(), channel.sends[n]);
    found.finding.set_text(absl::StrCat("at ", MessageName(channel, channel.sends[n]), ": ", match.text));
    Places inside;
    for (const FlightPart* part : {&channel.sends[n], &channel.receives[n]}) {
      if (part->inside()) inside.push_back({part->rank, part->entry->record_id()});
    }
    AddMismatch(std::move(found), match, inside);
  }

  // --- all together ---

  void Conclude() {
    const FlightWaits::Causes causes = waits_.Find();
    found_.erase(std::remove_if(found_.begin(), found_.end(),
                                [&](const Found& one) { return one.told_if_needed && causes.needed.count(one.wait) == 0; }),
                 found_.end());
    const std::vector<std::set<int64_t>> blamed = Blamed(causes);
    for (size_t i = 0; i < found_.size(); ++i) {
      if (found_[i].mismatch) continue;
      if (!alarmed_) {
        found_[i].finding.set_verdict(kUndecided);
        continue;
      }
      for (int64_t rank : blamed[i]) found_[i].finding.add_culprits(rank);
    }
    const auto root = [&](const Found& one) { return one.wait >= 0 && one.finding.culprits_size() > 0; };
    std::stable_sort(found_.begin(), found_.end(), [&](const Found& a, const Found& b) {
      auto order = [&](const Found& one) { return std::make_tuple(!root(one), !one.mismatch, root(one) ? one.time_ns : 0); };
      return order(a) < order(b);
    });
    std::set<int64_t> culprits;
    for (const Found& one : found_) {
      if (one.wait >= 0) culprits.insert(one.finding.culprits().begin(), one.finding.culprits().end());
    }
    for (const auto& [rank, condition] : known_) culprits.insert(rank);
    if (culprits.empty() && !found_.empty()) BlameFirst(&culprits);
    for (int64_t rank : culprits) result_.add_culprits(rank);
    SetVerdict(causes, culprits);
    for (Found& one : found_) *result_.add_findings() = std::move(one.finding);
  }

  void SetVerdict(const FlightWaits::Causes& causes, const std::set<int64_t>& culprits) {
    const bool named = known_.empty() || (!found_.empty() && found_[0].finding.culprits_size() > 0);
    result_.set_verdict(!named ? kUndecided : found_.empty() ? kFullyMatched : found_[0].finding.verdict());
    if (!named) return result_.set_text(absl::StrCat(TextOfKnown(), "; nobody waits in a communication for that", LastOfKnown()));
    result_.set_text(found_.empty() ? TextOfNothing() : TextOf(causes, culprits));
    if (!known_.empty()) result_.set_text(absl::StrCat(result_.text(), "; ", TextOfKnown()));
  }

  // Whom each of what was found blames. Whom the launcher knows to be the cause is the only one; a mismatch speaks for itself.
  // Where one of several is to blame: who is for certain, for something else; else who is in all such sets, which explains them
  // all; else all of them.
  std::vector<std::set<int64_t>> Blamed(const FlightWaits::Causes& causes) const {
    std::vector<std::set<int64_t>> blamed;
    std::set<int64_t> certain, common;
    std::vector<size_t> open;
    for (const Found& one : found_) {
      blamed.push_back(one.wait >= 0 ? causes.of_wait[one.wait] : std::set<int64_t>());
      if (one.wait >= 0 && causes.needed.count(one.wait) > 0) blamed.back() = {one.candidates.begin(), one.candidates.end()};
      if (!one.one_of) certain.insert(blamed.back().begin(), blamed.back().end());
    }
    if (!known_.empty()) {
      for (auto& ranks : blamed) ranks = Both(ranks, Ranks(known_));
      return blamed;
    }
    for (size_t i = 0; i < found_.size(); ++i) {
      if (!found_[i].one_of || blamed[i].empty()) continue;
      if (auto both = Both(blamed[i], certain); !both.empty()) {
        blamed[i] = std::move(both);
      } else {
        common = open.empty() ? blamed[i] : Both(common, blamed[i]);
        open.push_back(i);
      }
    }
    for (size_t i : open) {
      if (!common.empty()) blamed[i] = common;
    }
    return blamed;
  }

  static std::set<int64_t> Ranks(const Conditions& conditions) {
    std::set<int64_t> ranks;
    for (const auto& [rank, condition] : conditions) ranks.insert(rank);
    return ranks;
  }

  static std::set<int64_t> Both(const std::set<int64_t>& a, const std::set<int64_t>& b) {
    std::set<int64_t> both;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(both, both.end()));
    return both;
  }

  // Where nobody waits: a mismatch that all got through, or who has not completed something.
  void BlameFirst(std::set<int64_t>* culprits) {
    Found& first = found_[0];
    if (!alarmed_ && !first.mismatch) return;
    for (int64_t rank : first.candidates) first.finding.add_culprits(rank);
    culprits->insert(first.finding.culprits().begin(), first.finding.culprits().end());
  }

  std::string TextOf(const FlightWaits::Causes& causes, const std::set<int64_t>& culprits) const {
    const Found& first = found_[0];
    if (!alarmed_ && !first.mismatch) return absl::StrCat(first.finding.text(), kNotAlarmed);
    if (first.wait < 0) return first.finding.text();
    if (causes.circle.count(first.wait) > 0) {
      return absl::StrCat(RankWord(ToVector(culprits)), " wait for one another: ", first.finding.text());
    }
    std::string text = first.finding.text();
    std::set<int64_t> others = culprits;
    for (int64_t rank : first.finding.culprits()) others.erase(rank);
    if (!others.empty() && known_.empty())
      absl::StrAppend(&text, "; ", RankWord(ToVector(others)), others.size() == 1 ? " is" : " are", " waited for elsewhere");
    const size_t waiting = waits_.Waiting().size(), told = first.candidates.empty() ? first.waiters : 0;
    if (waiting > told) absl::StrAppend(&text, "; ", waiting, waiting == 1 ? " rank waits" : " ranks wait", " in all");
    return text;
  }

  // "rank 1 (train, step 21): does not answer: the process is stopped (SIGSTOP)", those of whom the same is known together.
  std::string TextOfKnown() const {
    std::map<std::string, std::vector<int64_t>> ranks;
    for (const auto& [rank, condition] : known_) {
      const std::string where =
          condition->phase().empty() ? "" : absl::StrCat(" (", condition->phase(), ", step ", condition->step(), ")");
      ranks[absl::StrCat(where, ": ", condition->text())].push_back(rank);
    }
    return absl::StrJoin(ranks, "; ",
                         [](std::string* out, const auto& entry) { absl::StrAppend(out, RankWord(entry.second), entry.first); });
  }

  // What the one rank that is known to be the cause went through last.
  std::string LastOfKnown() const {
    const FlightCollective* last = nullptr;
    int64_t record = -1;
    for (const FlightCollective& collective : history_.collectives) {
      for (const FlightPart& part : collective.parts) {
        if (known_.size() != 1 || known_.count(part.rank) == 0 || part.entry->record_id() <= record) continue;
        last = &collective;
        record = part.entry->record_id();
      }
    }
    return last == nullptr ? "" : absl::StrCat("; its last was ", Name(*last));
  }

  std::string TextOfNothing() const {
    const std::string seen =
        static_cast<int64_t>(history_.dumped.size()) < world_size_
            ? absl::StrCat("as far as the dumps of ", history_.dumped.size(), " of ", world_size_, " ranks tell, ")
            : "";
    if (under_way_.empty()) return absl::StrCat(seen, "every collective was entered alike and nobody waits");
    return absl::StrCat(seen, "no rank is behind: all have entered what is under way (", absl::StrJoin(under_way_, ", "), ")");
  }

  const int64_t world_size_;
  const FlightHistory history_;
  const Conditions known_;
  const bool alarmed_;
  FlightWaits waits_;
  std::vector<Found> found_;
  std::set<int64_t> out_of_step_;  // groups
  std::vector<std::string> under_way_;
  v1::FlightAnalysis result_;
};

}  // namespace

v1::FlightAnalysis AnalyzeFlight(const std::vector<v1::FlightDump>& dumps, int64_t world_size) {
  return Analyzer(dumps, world_size).Analyze();
}

}  // namespace legoai::comm
