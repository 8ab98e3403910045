#include "core/flight/testing/flight_world.h"

#include <algorithm>
#include <numeric>

namespace legoai::comm {

int64_t FlightWorld::AddGroup(const std::string& name, const std::vector<int64_t>& ranks) {
  groups_.push_back({name, ranks});
  return static_cast<int64_t>(groups_.size()) - 1;
}

std::vector<int64_t> FlightWorld::AddMesh(int64_t pp, int64_t dp, int64_t tp) {
  std::vector<int64_t> all(pp * dp * tp), groups;
  std::iota(all.begin(), all.end(), 0);
  groups.push_back(AddGroup("world", all));
  auto add_lines = [&](const std::string& name, int64_t count, int64_t stride) {
    for (int64_t first = 0; first < pp * dp * tp; ++first) {
      if (first / stride % count != 0) continue;
      std::vector<int64_t> ranks;
      for (int64_t i = 0; i < count; ++i) ranks.push_back(first + i * stride);
      groups.push_back(AddGroup(name, ranks));
    }
  };
  add_lines("pp", pp, dp * tp);
  add_lines("dp", dp, tp);
  add_lines("tp", tp, 1);
  return groups;
}

void FlightWorld::AddCollective(int64_t group, const std::string& kind, int64_t rows) {
  Operation operation;
  operation.group = group;
  operation.kind = kind;
  operation.ranks = groups_[group].ranks;
  const int64_t size = static_cast<int64_t>(operation.ranks.size());
  operation.input = {kind == "reduce_scatter" || kind == "all_to_all" ? rows * size : rows, 8};
  operation.output = {kind == "all_gather" || kind == "all_to_all" ? rows * size : rows, 8};
  operations_.push_back(operation);
}

void FlightWorld::AddMessage(int64_t group, int64_t from, int64_t to, int64_t rows) {
  operations_.push_back({group, "send", {rows, 8}, {rows, 8}, "Float", from, to, {from, to}});
}

void FlightWorld::Hang(int64_t rank, int64_t operation, const std::vector<std::string>& states) {
  hangs_.push_back({rank, operation, states});
}

void FlightWorld::Alter(int64_t rank, int64_t operation, std::function<void(v1::FlightEntry*)> alter) {
  alterations_.push_back({rank, operation, std::move(alter)});
}

void FlightWorld::Record(int64_t rank, int64_t number, const std::string& state) {
  const Operation& operation = operations_[number];
  const bool message = operation.kind == "send", sends = rank == operation.from;
  v1::FlightEntry* entry = dumps_[rank].add_entries();
  entry->set_record_id(dumps_[rank].entries_size() - 1);
  entry->set_process_group(groups_[operation.group].name);
  entry->set_pg_id(operation.group);
  ++(message ? messages_ : collectives_)[rank][operation.group];
  entry->set_collective_seq_id(collectives_[rank][operation.group]);
  entry->set_p2p_seq_id(messages_[rank][operation.group]);
  entry->set_op_id(collectives_[rank][operation.group] + messages_[rank][operation.group]);
  entry->set_profiling_name("gloo:" + (message && !sends ? "recv" : operation.kind));
  for (int64_t size : operation.input) entry->add_input_sizes(size);
  for (int64_t size : operation.output) entry->add_output_sizes(size);
  entry->set_dtype(operation.dtype);
  entry->set_time_created_ns(1000 + number);
  if (state != "scheduled") entry->set_time_started_ns(1000 + number);
  if (state == "completed") entry->set_time_completed_ns(1000 + number);
  entry->set_state(state);
  entry->set_is_p2p(message);
  entry->set_peer(-1);
  if (message) {
    const auto& ranks = groups_[operation.group].ranks;
    entry->set_peer(std::find(ranks.begin(), ranks.end(), sends ? operation.to : operation.from) - ranks.begin());
  }
  for (const Alteration& alteration : alterations_) {
    if (alteration.rank == rank && alteration.operation == number) alteration.alter(entry);
  }
}

void FlightWorld::RunOperation(int64_t number, std::vector<int64_t>* ahead, std::vector<std::vector<std::string>>* last) {
  const Operation& operation = operations_[number];
  for (const Hanging& hang : hangs_) {
    if (hang.operation != number || stuck_.count(hang.rank) > 0) continue;
    hung_.insert(hang.rank);
    (*last)[hang.rank] = hang.states;
  }
  std::vector<int64_t> come;
  for (int64_t rank : operation.ranks) {
    if (stuck_.count(rank) == 0 && hung_.count(rank) == 0) come.push_back(rank);
  }
  const bool altered = std::any_of(alterations_.begin(), alterations_.end(), [&](const Alteration& alteration) {
    return alteration.operation == number && std::find(come.begin(), come.end(), alteration.rank) != come.end();
  });
  const bool completes = come.size() == operation.ranks.size() && !altered;
  for (int64_t rank : operation.ranks) {
    if (stuck_.count(rank) > 0 && (*ahead)[rank]-- > 0) Record(rank, number, "scheduled");
    if (auto& states = (*last)[rank]; hung_.count(rank) > 0 && !states.empty()) {
      Record(rank, number, states.front());
      states.erase(states.begin());
      if (!operation.asynchronous) states.clear();
    }
  }
  for (int64_t rank : come) {
    Record(rank, number, completes ? "completed" : "started");
    if (completes) continue;
    inside_.insert(rank);
    if (!operation.asynchronous) stuck_.insert(rank);
  }
}

std::vector<v1::FlightDump> FlightWorld::Run(int64_t capacity, int64_t ahead) {
  dumps_.assign(size_, {});
  stuck_.clear();
  hung_.clear();
  inside_.clear();
  collectives_.assign(size_, std::vector<int64_t>(groups_.size()));
  messages_ = collectives_;
  for (int64_t rank = 0; rank < size_; ++rank) {
    dumps_[rank].set_rank(rank);
    dumps_[rank].set_world_size(size_);
  }
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (int64_t rank : groups_[group].ranks) {
      v1::FlightGroup* own = dumps_[rank].add_groups();
      own->set_pg_id(static_cast<int64_t>(group));
      own->set_name(groups_[group].name);
      for (int64_t member : groups_[group].ranks) own->add_ranks(member);
    }
  }
  std::vector<int64_t> left(size_, ahead);
  std::vector<std::vector<std::string>> last(size_);
  for (size_t number = 0; number < operations_.size(); ++number) RunOperation(static_cast<int64_t>(number), &left, &last);
  for (auto& dump : dumps_) {
    const int64_t extra = std::max<int64_t>(0, dump.entries_size() - capacity);
    dump.mutable_entries()->DeleteSubrange(0, static_cast<int>(extra));
  }
  return std::move(dumps_);
}

FlightWorld Collectives(int64_t size, int64_t count, const std::string& kind) {
  FlightWorld world(size);
  std::vector<int64_t> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  const int64_t group = world.AddGroup("dp", ranks);
  for (int64_t i = 0; i < count; ++i) world.AddCollective(group, kind);
  return world;
}

}  // namespace legoai::comm
