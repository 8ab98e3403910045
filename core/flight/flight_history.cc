#include "core/flight/flight_history.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace legoai::comm {
namespace {

using Key = std::tuple<int64_t, int64_t, int64_t>;  // (group, sequence, index), (group, from, to)

int64_t Sequence(const v1::FlightEntry& entry) { return entry.is_p2p() ? entry.p2p_seq_id() : entry.collective_seq_id(); }

std::string Backend(const v1::FlightEntry& entry) { return entry.profiling_name().substr(0, entry.profiling_name().find(':')); }

// Whether no entry was overwritten or left out.
bool IsWhole(const v1::FlightDump& dump) {
  int64_t next = 0;
  for (const auto& entry : dump.entries()) {
    if (entry.record_id() != next++) return false;
  }
  return true;
}

class Gatherer {
 public:
  FlightHistory Gather(const std::vector<v1::FlightDump>& dumps) {
    for (const auto& dump : dumps) {
      history_.dumped.insert(dump.rank());
      if (IsWhole(dump)) whole_.insert(dump.rank());
      for (const auto& entry : dump.entries()) {
        if (entry.state() == "started" || entry.time_started_ns() != 0) notice_starts_.insert(Backend(entry));
      }
    }
    for (const auto& dump : dumps) AddDump(dump);
    Sort();
    return std::move(history_);
  }

 private:
  // Groups of one name on different ranks (each tensor parallel group, say) are different groups: the ranks tell them apart.
  int64_t GroupIndex(const std::string& name, const std::vector<int64_t>& ranks) {
    const std::string key = absl::StrCat(name, "|", absl::StrJoin(ranks, ","));
    const auto [found, added] = group_index_.emplace(key, static_cast<int64_t>(history_.groups.size()));
    if (added) history_.groups.push_back({name, ranks});
    history_.reach.resize(history_.groups.size());
    return found->second;
  }

  void AddDump(const v1::FlightDump& dump) {
    std::map<int64_t, int64_t> index_of;  // by pg_id
    for (const auto& group : dump.groups()) {
      index_of[group.pg_id()] = GroupIndex(group.name(), {group.ranks().begin(), group.ranks().end()});
    }
    // Operations that were launched as one share their numbers; a "coalesced" entry after them has their state.
    std::map<Key, const v1::FlightEntry*> launches;
    for (const auto& entry : dump.entries()) {
      if (FlightKind(entry.profiling_name()) == "coalesced") launches[{entry.pg_id(), entry.is_p2p(), Sequence(entry)}] = &entry;
    }
    std::map<int64_t, std::pair<int64_t, int64_t>> at;  // by group: sequence and index of its last collective
    for (const auto& entry : dump.entries()) {
      if (index_of.count(entry.pg_id()) == 0) index_of[entry.pg_id()] = GroupIndex(entry.process_group(), {});
      const auto launch = launches.find({entry.pg_id(), entry.is_p2p(), Sequence(entry)});
      if (launch != launches.end() && launch->second == &entry) continue;
      const std::string& state = launch == launches.end() ? entry.state() : launch->second->state();
      const FlightPart part{dump.rank(), &entry, state != "scheduled" || notice_starts_.count(Backend(entry)) == 0,
                            state == "completed"};
      const int64_t group = index_of[entry.pg_id()];
      if (entry.is_p2p()) {
        AddMessage(group, part);
      } else {
        auto& [sequence, index] = at.emplace(group, std::make_pair(-1, -1)).first->second;
        index = sequence == Sequence(entry) ? index + 1 : 0;
        sequence = Sequence(entry);
        AddCollective({group, sequence, index}, part);
      }
    }
  }

  void AddCollective(const Key& key, const FlightPart& part) {
    const auto [found, added] = collective_index_.emplace(key, history_.collectives.size());
    const auto& [group, sequence, index] = key;
    if (added) history_.collectives.push_back({group, sequence, index, {}});
    history_.collectives[found->second].parts.push_back(part);
    auto& reach = history_.reach[group].emplace(part.rank, FlightHistory::Reach{sequence, sequence}).first->second;
    reach.first = std::min(reach.first, sequence);
    reach.last = std::max(reach.last, sequence);
  }

  void AddMessage(int64_t group, const FlightPart& part) {
    const auto& ranks = history_.groups[group].ranks;
    const int64_t index = part.entry->peer();
    if (index < 0) return;  // a dump that does not say with whom
    const int64_t peer = index < static_cast<int64_t>(ranks.size()) ? ranks[index] : index;
    const bool send = FlightKind(part.entry->profiling_name()) == "send";
    const Key key = send ? Key{group, part.rank, peer} : Key{group, peer, part.rank};
    FlightChannel& channel = channels_[key];
    channel.group = group;
    channel.from = std::get<1>(key);
    channel.to = std::get<2>(key);
    channel.whole = whole_.count(channel.from) > 0 && whole_.count(channel.to) > 0;
    (send ? channel.sends : channel.receives).push_back(part);
  }

  void Sort() {
    auto& collectives = history_.collectives;
    std::sort(collectives.begin(), collectives.end(), [](const auto& a, const auto& b) {
      return std::tie(a.group, a.sequence, a.index) < std::tie(b.group, b.sequence, b.index);
    });
    for (auto& collective : collectives) {
      std::sort(collective.parts.begin(), collective.parts.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    }
    for (auto& [key, channel] : channels_) history_.channels.push_back(std::move(channel));
  }

  FlightHistory history_;
  std::set<int64_t> whole_;
  std::set<std::string> notice_starts_;  // backends; of others "scheduled" says nothing
  absl::flat_hash_map<std::string, int64_t> group_index_;
  absl::flat_hash_map<Key, size_t> collective_index_;
  std::map<Key, FlightChannel> channels_;
};

}  // namespace

std::string FlightKind(const std::string& profiling_name) {
  const size_t colon = profiling_name.find(':');
  const size_t begin = colon == std::string::npos ? 0 : colon + 1;
  return profiling_name.substr(begin, profiling_name.find(' ', begin) - begin);
}

FlightHistory GatherFlight(const std::vector<v1::FlightDump>& dumps) { return Gatherer().Gather(dumps); }

}  // namespace legoai::comm
