#include <algorithm>
#include <utility>

#include "core/trace/passes/passes.h"
#include "core/trace/passes/rewriter.h"
#include "core/trace/passes/shard_collectives.h"
#include "proto/status.h"

namespace legoai::graph {
namespace {

void MoveAll(const std::vector<uint32_t>& instructions, uint32_t place, Rewriter* rewriter) {
  for (uint32_t i : instructions) rewriter->Move(i, place);
}

// The wait, and what follows from it before `place`, goes there.
void DelayTo(uint32_t place, const Reduction& reduction, Rewriter* rewriter) {
  std::vector<uint32_t> moved;
  for (const std::vector<uint32_t>* part : {&reduction.finish, &reduction.tail}) {
    std::copy_if(part->begin(), part->end(), std::back_inserter(moved), [&](uint32_t i) { return i < place; });
  }
  if (reduction.replicas && reduction.replicas->follows_tail) {
    const std::vector<uint32_t>& issue = reduction.replicas->issue;
    std::copy_if(issue.begin(), issue.end(), std::back_inserter(moved), [&](uint32_t i) { return i < place; });
  }
  std::sort(moved.begin(), moved.end());
  MoveAll(moved, place, rewriter);
}

// The end of a span, or where the compute stream begins to wait for sums over replicas in it.
uint32_t EndOfReductions(const ShardCollectives& found, uint32_t span) {
  uint32_t end = found.spans[span].second;
  for (const Reduction& reduction : found.reductions) {
    if (reduction.span == span && reduction.replicas) end = std::min(end, reduction.replicas->wait);
  }
  return end;
}

}  // namespace

absl::StatusOr<Trace> ReorderCollectives(Trace trace) {
  ASSIGN_OR_RETURN(const ShardCollectives found, FindShardCollectives(trace));
  Rewriter rewriter(std::move(trace));
  for (size_t i = 1; i < found.gathers.size(); ++i) {
    const Gather &before = found.gathers[i - 1], &now = found.gathers[i];
    if (before.span != now.span) continue;
    const bool forward = now.phase != Phase::kBackward;
    // The gather before may have been moved itself: what is ahead of its wait is ahead of all that follows.
    const uint32_t place = forward ? before.wait : before.finish.back() + 1;
    if (place < now.start.front()) MoveAll(now.start, place, &rewriter);
  }
  for (size_t i = 0; i < found.reductions.size(); ++i) {
    const Reduction& now = found.reductions[i];
    const bool last = i + 1 == found.reductions.size() || found.reductions[i + 1].span != now.span;
    // The next one packs into memory that this one frees.
    DelayTo(last ? EndOfReductions(found, now.span) : found.reductions[i + 1].start.front(), now, &rewriter);
  }
  return rewriter.Finish();
}

}  // namespace legoai::graph
