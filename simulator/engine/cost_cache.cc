#include "simulator/engine/cost_cache.h"

#include "proto/status.h"

namespace legoai::sim {
namespace {

uint64_t Hash(const std::vector<uint32_t>& key) {
  uint64_t hash = 1469598103934665603u;
  for (uint32_t word : key) hash = (hash ^ word) * 1099511628211u;
  return hash;
}

}  // namespace

void CostCache::Key(const graph::Instruction& instruction, std::vector<uint32_t>* key) const {
  key->clear();
  key->push_back(instruction.operator_index);
  std::vector<uint32_t> seen;
  auto add_value = [&](int64_t id) {
    if (id < 0) return key->push_back(UINT32_MAX);
    key->push_back(trace_.values[id].geometry);
    uint32_t first = 0;
    while (first < seen.size() && seen[first] != static_cast<uint32_t>(id)) ++first;
    key->push_back(first);
    if (seen.size() < 16 && first == seen.size()) seen.push_back(static_cast<uint32_t>(id));
  };
  auto add = [&](const graph::Argument& argument) {
    key->push_back(static_cast<uint32_t>(argument.kind));
    switch (argument.kind) {
      case graph::Argument::Kind::kValue: return add_value(argument.index);
      case graph::Argument::Kind::kList:
      case graph::Argument::Kind::kOptionalList:
        key->push_back(static_cast<uint32_t>(trace_.lists[argument.index].size()));
        for (int64_t id : trace_.lists[argument.index]) add_value(id);
        return;
      default: key->push_back(argument.index);
    }
  };
  for (int i = 0; i < instruction.argument_count; ++i) add(trace_.arguments[instruction.first_argument + i]);
  for (int i = 0; i < instruction.result_count; ++i) add(trace_.results[instruction.first_result + i]);
}

absl::StatusOr<Cost> CostCache::Time(const graph::Instruction& instruction) {
  Key(instruction, &scratch_);
  std::vector<Entry>& bucket = entries_[Hash(scratch_)];
  for (const Entry& entry : bucket) {
    if (entry.key == scratch_) return entry.cost;
  }
  ASSIGN_OR_RETURN(auto cost, model_.Time(trace_, instruction));
  bucket.push_back({scratch_, cost});
  ++distinct_;
  return cost;
}

}  // namespace legoai::sim
