// FSDP's collectives in a Trace (worker/parallel/fsdp_unit.cc issues them): the all-gathers of parameters and the reduce-scatters
// of their gradients, each with what belongs to it. Pure functions.
//
// A gather packs this rank's shards into its row of a buffer, gathers the buffer on a stream of its own, and once the compute
// stream has waited copies it out into the parameters' memory. A reduction packs gradients into a buffer, scatters their sums
// into another one, and frees the first once the compute stream has waited; what adds the sums to those of earlier microbatches
// follows. Where replicas hold the same shards (HSDP), the last sums are summed over these too, in place and on another stream:
// right behind the reduction, or once they are added to earlier ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/trace/trace.h"

namespace legoai::graph {

// Numbers of instructions, ascending.
struct ShardCollective {
  std::string parameter;  // of the unit whose collective it is: the module it is recorded under
  // kForward, kBackward with recomputation, or kOptimizer, which gathers what stays whole (ZeRO-1 and 2).
  Phase phase = Phase::kForward;
  uint32_t span = 0;      // stretch of the step in one phase of one microbatch; collectives never leave theirs
  uint32_t collective = 0;
  uint32_t buffer = 0;  // storage, [ranks, elements]: what is gathered, or summed
  // Up to the event that says that the collective is done: the buffer is made and packed, the streams part, the collective runs.
  std::vector<uint32_t> start;
  uint32_t wait = 0;  // of the compute stream
  // From the wait on. Of a gather: memory is taken, the buffer copied out and freed; of a reduction: the buffer is freed.
  std::vector<uint32_t> finish;
};

struct Gather : ShardCollective {
  std::vector<uint32_t> parameters;  // storages that it fills
};
// The all-reduce of a shard's sums over its replicas.
struct ReplicaSum {
  uint32_t collective = 0;
  std::vector<uint32_t> issue;  // the streams part, it runs, the event that says that it is done
  uint32_t wait = 0;            // of the compute stream, in this span or a later one
  bool follows_tail = false;    // the compute stream adds earlier sums first; else the reduction's event is waited for
};
struct Reduction : ShardCollective {
  uint32_t sum = 0;            // storage, [elements]
  std::vector<uint32_t> tail;  // in the span, after the wait: what uses the sums, and their free
  std::optional<ReplicaSum> replicas;
};

struct ShardCollectives {
  std::vector<Gather> gathers;        // in the order of the collectives
  std::vector<Reduction> reductions;
  std::vector<std::pair<uint32_t, uint32_t>> spans;  // [begin, end) of each
};

// Errors: Internal where an all-gather of parameters or a reduce-scatter of gradients is not of this form.
absl::StatusOr<ShardCollectives> FindShardCollectives(const Trace& trace);

}  // namespace legoai::graph
