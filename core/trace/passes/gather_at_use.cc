#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "core/trace/effects.h"
#include "core/trace/passes/passes.h"
#include "core/trace/passes/rewriter.h"
#include "core/trace/passes/shard_collectives.h"
#include "proto/status.h"

namespace legoai::graph {
namespace {

// What happens to a parameter's memory, in order.
struct Use {
  enum class Kind { kRead, kFilled, kReleased };
  Kind kind = Kind::kRead;
  uint32_t instruction = 0;
  const Gather* gather = nullptr;  // of kFilled
};

// Reads of each parameter's memory, where it is filled and where it is released.
std::map<uint32_t, std::vector<Use>> UsesOfParameters(const Trace& trace, const std::vector<Gather>& gathers) {
  std::map<uint32_t, std::vector<Use>> uses;
  std::vector<const Gather*> finishes(trace.instructions.size());
  for (const Gather& gather : gathers) {
    for (uint32_t storage : gather.parameters) uses[storage];
    for (uint32_t i : gather.finish) finishes[i] = &gather;
  }
  for (uint32_t i = 0; i < trace.instructions.size(); ++i) {
    const Instruction& instruction = trace.instructions[i];
    if (IsViewOf(trace, instruction)) continue;
    const auto resize = StorageResizeOf(trace, instruction);
    for (uint32_t storage : StoragesOf(trace, instruction)) {
      const auto found = uses.find(storage);
      if (found == uses.end()) continue;
      const Use::Kind kind = finishes[i] != nullptr        ? Use::Kind::kFilled
                             : resize && resize->bytes == 0 ? Use::Kind::kReleased
                                                            : Use::Kind::kRead;
      found->second.push_back({kind, i, finishes[i]});
    }
  }
  return uses;
}

}  // namespace

absl::StatusOr<Trace> GatherAtUse(Trace trace) {
  ASSIGN_OR_RETURN(const ShardCollectives found, FindShardCollectives(trace));
  constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();
  std::map<const Gather*, uint32_t> first_reads;  // of what each gather fills
  Rewriter rewriter(std::move(trace));
  std::vector<std::pair<uint32_t, uint32_t>> releases;  // instruction, place
  for (const auto& [storage, uses] : UsesOfParameters(rewriter.trace(), found.gathers)) {
    for (size_t i = 1; i < uses.size(); ++i) {
      const Use &before = uses[i - 1], &now = uses[i];
      if (before.kind == Use::Kind::kFilled && now.kind == Use::Kind::kRead) {
        uint32_t& first = first_reads.try_emplace(before.gather, kNever).first->second;
        first = std::min(first, now.instruction);
      }
      if (before.kind == Use::Kind::kRead && now.kind == Use::Kind::kReleased) {
        releases.emplace_back(now.instruction, before.instruction + 1);
      }
    }
  }
  for (const auto& [release, place] : releases) rewriter.Move(release, place);
  for (const Gather& gather : found.gathers) {
    const auto first = first_reads.find(&gather);
    if (first == first_reads.end() || first->second >= found.spans[gather.span].second) continue;
    for (const std::vector<uint32_t>* part : {&gather.start, &gather.finish}) {
      for (uint32_t i : *part) rewriter.Move(i, first->second);
    }
  }
  return rewriter.Finish();
}

}  // namespace legoai::graph
