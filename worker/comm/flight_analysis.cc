#include "worker/comm/flight_analysis.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/comm/flight_history.h"
#include "worker/comm/flight_match.h"
#include "worker/comm/flight_waits.h"
#include "worker/comm/ranks_text.h"

namespace legoai::comm {
namespace {

// What is found at one operation, before it is known who is at the root.
struct Found {
  v1::FlightFinding finding;
  std::vector<int64_t> blockers;  // whom others wait for here
  int64_t time_ns = 0;            // when the first rank came here
  bool mismatch = false;
};

std::string RankWord(const std::vector<int64_t>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", RanksText(ranks));
}

template <class Container>
std::vector<int64_t> ToVector(const Container& ranks) {
  return {ranks.begin(), ranks.end()};
}

const char* Wait(const std::vector<int64_t>& waiters) { return waiters.size() == 1 ? " waits" : " wait"; }
const char* Has(const std::vector<int64_t>& ranks) { return ranks.size() == 1 ? " has" : " have"; }

class Analyzer {
 public:
  Analyzer(const std::vector<v1::FlightDump>& dumps, int64_t world_size)
      : world_size_(world_size), history_(GatherFlight(dumps)) {}

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
  std::vector<int64_t> Missing(const FlightCollective& collective) const {
    std::set<int64_t> missing;
    const auto& group = history_.groups[collective.group];
    for (int64_t rank : group.ranks) {
      const auto& reach = history_.reach[collective.group];
      const auto found = reach.find(rank);
      const bool behind = found == reach.end() || found->second.last < collective.sequence;
      if (history_.dumped.count(rank) > 0 && behind) missing.insert(rank);
    }
    for (const FlightPart& part : collective.parts) {
      if (!part.entered && !part.completed) missing.insert(part.rank);
    }
    return ToVector(missing);
  }

  std::vector<int64_t> WithoutDump(const FlightCollective& collective) const {
    std::vector<int64_t> ranks;
    for (int64_t rank : history_.groups[collective.group].ranks) {
      if (history_.dumped.count(rank) == 0) ranks.push_back(rank);
    }
    return ranks;
  }

  void LookAt(const FlightCollective& collective) {
    const int64_t group_size = static_cast<int64_t>(history_.groups[collective.group].ranks.size());
    std::vector<int64_t> inside;
    bool all_entered = true, any_completed = false;
    for (const FlightPart& part : collective.parts) {
      if (part.inside()) inside.push_back(part.rank);
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
    if (!missing.empty()) {
      AddMissing(collective, inside, missing);
    } else if (!unknown.empty() && !any_completed) {
      AddUnknown(collective, inside, unknown);
    } else if (any_completed) {
      AddUnfinished(collective, inside);
      result_.set_matched(result_.matched() + all);
    } else {
      result_.set_matched(result_.matched() + all);
      under_way_.push_back(Name(collective));
    }
  }

  void AddMismatch(const FlightCollective& collective, const FlightMatch& match, const std::vector<int64_t>& inside) {
    Found found = NewFound(collective.group, collective.sequence, collective.parts.front());
    found.mismatch = true;
    found.finding.set_verdict(match.verdict);
    for (int64_t rank : match.culprits) found.finding.add_culprits(rank);
    found.finding.set_text(absl::StrCat("at ", Name(collective), ": ", match.text));
    if (!inside.empty()) {
      std::vector<int64_t> waiters;
      for (int64_t rank : inside) {
        if (std::find(match.culprits.begin(), match.culprits.end(), rank) == match.culprits.end()) waiters.push_back(rank);
      }
      for (int64_t rank : match.culprits) waits_.Blame(rank);
      waits_.Add(waiters, match.culprits);
      found.blockers = match.culprits;
    }
    found_.push_back(std::move(found));
  }

  void AddMissing(const FlightCollective& collective, const std::vector<int64_t>& inside, const std::vector<int64_t>& missing) {
    Found found = NewFound(collective.group, collective.sequence, collective.parts.front());
    found.finding.set_verdict(kStateMismatch);
    for (int64_t rank : missing) found.finding.add_missing_ranks(rank);
    found.finding.set_text(absl::StrCat(RankWord(missing), Has(missing), " not entered ", Name(collective), ", in which ",
                                        RankWord(inside), Wait(inside)));
    found.blockers = missing;
    waits_.Add(inside, missing);
    found_.push_back(std::move(found));
  }

  void AddUnknown(const FlightCollective& collective, const std::vector<int64_t>& inside, const std::vector<int64_t>& unknown) {
    Found found = NewFound(collective.group, collective.sequence, collective.parts.front());
    found.finding.set_verdict(kUndecided);
    found.finding.set_text(absl::StrCat(RankWord(unknown), Has(unknown), " left no dump; ", RankWord(inside), Wait(inside),
                                        " in ", Name(collective), ", which all others have entered"));
    found.blockers = unknown;
    waits_.Add(inside, unknown);
    found_.push_back(std::move(found));
  }

  // Nobody waits here; but if nothing else is found, it is worth telling.
  void AddUnfinished(const FlightCollective& collective, const std::vector<int64_t>& inside) {
    Found found = NewFound(collective.group, collective.sequence, collective.parts.front());
    found.finding.set_verdict(kStateMismatch);
    for (int64_t rank : inside) found.finding.add_culprits(rank);
    found.finding.set_text(
        absl::StrCat(RankWord(inside), Has(inside), " not completed ", Name(collective), ", which others have"));
    found_.push_back(std::move(found));
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
      if (send.inside() && !receiver_in) AddMessageWait(channel, send);
      if (receive.inside() && !sender_in) AddMessageWait(channel, receive);
    }
    for (const auto* side : {&channel.sends, &channel.receives}) {  // what the other side knows nothing of
      const auto first = std::find_if(side->begin() + both, side->end(), [](const auto& part) { return part.inside(); });
      if (first != side->end()) AddMessageWait(channel, *first);
    }
  }

  // Of rings that have overwritten the beginning: a side that is inside a message while the other is not waits for it.
  void LookAtPending(const FlightChannel& channel) {
    auto first_inside = [](const std::vector<FlightPart>& parts) {
      const auto found = std::find_if(parts.begin(), parts.end(), [](const auto& part) { return part.inside(); });
      return found == parts.end() ? nullptr : &*found;
    };
    const FlightPart *send = first_inside(channel.sends), *receive = first_inside(channel.receives);
    if ((send == nullptr) == (receive == nullptr)) return;
    AddMessageWait(channel, send != nullptr ? *send : *receive);
  }

  std::string MessageName(const FlightChannel& channel, const FlightPart& part) const {
    return absl::StrCat("message ", part.entry->p2p_seq_id(), " of ", history_.groups[channel.group].name, " from rank ",
                        channel.from, " to rank ", channel.to);
  }

  void AddMessageWait(const FlightChannel& channel, const FlightPart& waiter) {
    const bool sends = waiter.rank == channel.from && FlightKind(waiter.entry->profiling_name()) == "send";
    const int64_t peer = sends ? channel.to : channel.from;
    const bool has_dump = history_.dumped.count(peer) > 0;
    Found found = NewFound(channel.group, waiter.entry->p2p_seq_id(), waiter);
    found.finding.set_verdict(has_dump ? kStateMismatch : kUndecided);
    if (has_dump) found.finding.add_missing_ranks(peer);
    found.finding.set_text(has_dump ? absl::StrCat("rank ", peer, " does not ", sends ? "receive " : "send ",
                                                   MessageName(channel, waiter), ", for which rank ", waiter.rank, " waits")
                                    : absl::StrCat("rank ", peer, " has left no dump; rank ", waiter.rank, " waits in ",
                                                   MessageName(channel, waiter)));
    found.blockers = {peer};
    waits_.Add({waiter.rank}, {peer});
    found_.push_back(std::move(found));
  }

  void AddMismatch(const FlightChannel& channel, size_t n, const FlightMatch& match) {
    const FlightPart &send = channel.sends[n], &receive = channel.receives[n];
    Found found = NewFound(channel.group, send.entry->p2p_seq_id(), send);
    found.mismatch = true;
    found.finding.set_verdict(match.verdict);
    for (int64_t rank : match.culprits) found.finding.add_culprits(rank);
    found.finding.set_text(absl::StrCat("at ", MessageName(channel, send), ": ", match.text));
    if (send.inside() || receive.inside()) {
      std::vector<int64_t> waiters;
      for (const FlightPart* part : {&send, &receive}) {
        const bool blamed = std::find(match.culprits.begin(), match.culprits.end(), part->rank) != match.culprits.end();
        if (part->inside() && !blamed) waiters.push_back(part->rank);
      }
      for (int64_t rank : match.culprits) waits_.Blame(rank);
      waits_.Add(waiters, match.culprits);
      found.blockers = match.culprits;
    }
    found_.push_back(std::move(found));
  }

  // --- all together ---

  void Conclude() {
    std::set<int64_t> culprits = waits_.Culprits();
    if (!waits_.empty()) BlameIn(culprits);
    std::stable_sort(found_.begin(), found_.end(), [&](const Found& a, const Found& b) {
      auto order = [&](const Found& found) {
        const bool root = std::any_of(found.blockers.begin(), found.blockers.end(), [&](int64_t r) { return culprits.count(r); });
        return std::make_tuple(!root, !found.mismatch, root ? found.time_ns : 0);
      };
      return order(a) < order(b);
    });
    if (waits_.empty() && !found_.empty()) culprits = {found_[0].finding.culprits().begin(), found_[0].finding.culprits().end()};
    for (int64_t rank : culprits) result_.add_culprits(rank);
    result_.set_verdict(found_.empty() ? kFullyMatched : found_[0].finding.verdict());
    result_.set_text(found_.empty() ? TextOfNothing() : TextOf(culprits));
    for (Found& found : found_) *result_.add_findings() = std::move(found.finding);
  }

  // Of a wait, those of whom it waits for that are at the end of a chain.
  void BlameIn(const std::set<int64_t>& culprits) {
    for (Found& found : found_) {
      if (found.mismatch) continue;
      for (int64_t rank : found.blockers) {
        if (culprits.count(rank) > 0) found.finding.add_culprits(rank);
      }
    }
  }

  std::string TextOf(const std::set<int64_t>& culprits) const {
    std::string text = found_[0].finding.text();
    std::set<int64_t> waiting = waits_.Waiting();
    const bool circle = std::any_of(culprits.begin(), culprits.end(), [&](int64_t rank) { return waiting.count(rank) > 0; });
    if (circle) return absl::StrCat(RankWord(ToVector(culprits)), " wait for one another: ", text);
    std::set<int64_t> told(found_[0].blockers.begin(), found_[0].blockers.end());
    std::vector<int64_t> others;
    for (int64_t rank : culprits) {
      if (told.count(rank) == 0) others.push_back(rank);
    }
    if (!others.empty() && !waits_.empty()) absl::StrAppend(&text, "; others wait for ", RankWord(others));
    if (!waits_.empty()) absl::StrAppend(&text, "; in all ", waiting.size(), waiting.size() == 1 ? " rank waits" : " ranks wait");
    return text;
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
