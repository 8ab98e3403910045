#include "core/flight/flight_merge.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace legoai::comm {
namespace {

// How far one rank's ring goes back and has come, of one group and kind.
struct Reach {
  int64_t first = 0, last = 0;
};

class Merger {
 public:
  explicit Merger(const std::vector<v1::FlightDump>& dumps) : dumps_(dumps) {}

  MergedFlight Merge() {
    std::set<int64_t> ranks;
    for (const auto& dump : dumps_) {
      ranks.insert(dump.rank());
      result_.world_size = std::max({result_.world_size, dump.world_size(), dump.rank() + 1});
      AddDump(dump);
    }
    result_.ranks.assign(ranks.begin(), ranks.end());
    for (int64_t rank = 0; rank < result_.world_size; ++rank) {
      if (ranks.count(rank) == 0) result_.missing.push_back(rank);
    }
    for (auto& [key, operation] : operations_) {
      FindAbsent(ranks, &operation);
      result_.operations.push_back(std::move(operation));
    }
    return std::move(result_);
  }

 private:
  // Messages are numbered rank by rank: each rank's is an operation of its own (the last part of the key).
  using Key = std::tuple<int64_t, bool, int64_t, std::string, int64_t>;

  // Groups of one name on different ranks (each tensor parallel group, say) are different groups: the ranks tell them apart.
  int64_t GroupIndex(const std::string& name, const std::vector<int64_t>& ranks) {
    const auto key = std::make_pair(name, ranks);
    return groups_.emplace(key, static_cast<int64_t>(groups_.size())).first->second;
  }

  void AddDump(const v1::FlightDump& dump) {
    std::map<int64_t, const v1::FlightGroup*> by_id;
    for (const auto& group : dump.groups()) by_id[group.pg_id()] = &group;
    for (const auto& entry : dump.entries()) {
      const auto found = by_id.find(entry.pg_id());
      std::vector<int64_t> ranks;
      if (found != by_id.end()) ranks.assign(found->second->ranks().begin(), found->second->ranks().end());
      const int64_t group = GroupIndex(entry.process_group(), ranks);
      AddEntry(dump.rank(), group, ranks, entry);
    }
  }

  void AddEntry(int64_t rank, int64_t group, const std::vector<int64_t>& ranks, const v1::FlightEntry& entry) {
    const int64_t sequence = entry.is_p2p() ? entry.p2p_seq_id() : entry.collective_seq_id();
    Reach& reach = reaches_.emplace(std::make_tuple(group, rank, entry.is_p2p()), Reach{sequence, sequence}).first->second;
    reach.first = std::min(reach.first, sequence);
    reach.last = std::max(reach.last, sequence);
    FlightOperation& operation =
        operations_[Key(group, entry.is_p2p(), sequence, entry.profiling_name(), entry.is_p2p() ? rank : -1)];
    operation.group = entry.process_group();
    operation.is_p2p = entry.is_p2p();
    operation.sequence = sequence;
    operation.name = entry.profiling_name();
    operation.bytes = std::max(operation.bytes, entry.bytes());
    operation.group_ranks = ranks;
    operation.states[rank] = entry.state();
    if (entry.is_p2p() && entry.peer() >= 0) {
      operation.peers[rank] = entry.peer() < static_cast<int64_t>(ranks.size()) ? ranks[entry.peer()] : entry.peer();
    }
  }

  void FindAbsent(const std::set<int64_t>& dumped, FlightOperation* operation) {
    if (operation->is_p2p) return;
    const int64_t group = GroupIndex(operation->group, operation->group_ranks);
    for (int64_t rank : operation->group_ranks) {
      if (dumped.count(rank) == 0 || operation->states.count(rank) > 0) continue;
      const auto reach = reaches_.find(std::make_tuple(group, rank, false));
      const bool gone = reach != reaches_.end() && operation->sequence < reach->second.first;
      (gone ? operation->overwritten : operation->not_reached).push_back(rank);
    }
  }

  const std::vector<v1::FlightDump>& dumps_;
  std::map<std::pair<std::string, std::vector<int64_t>>, int64_t> groups_;
  std::map<std::tuple<int64_t, int64_t, bool>, Reach> reaches_;  // by group, rank, is_p2p
  std::map<Key, FlightOperation> operations_;
  MergedFlight result_;
};

}  // namespace

bool FlightOperation::complete() const {
  return not_reached.empty() &&
         std::all_of(states.begin(), states.end(), [](const auto& state) { return state.second == "completed"; });
}

MergedFlight MergeFlightDumps(const std::vector<v1::FlightDump>& dumps) { return Merger(dumps).Merge(); }

}  // namespace legoai::comm
