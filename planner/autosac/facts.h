// What recomputing each operator of a block costs and frees: the facts that a policy of activation checkpointing is made from,
// read from a Trace whose blocks are all recomputed (activation_checkpoint.mode = "full", or a policy that keeps nothing).
//
// Thread-safety: pure functions. Units: bytes, seconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/trace/trace.h"
#include "proto/legoai/v1/cluster.pb.h"

namespace legoai::planner {

// An operator of a block's forward.
struct OperatorFacts {
  std::string name;         // "aten::mm"
  std::string module = "";  // of the block: "mlp.up_proj"; empty: the block itself
  double seconds = 0;  // that one run takes, alone
  int64_t bytes = 0;   // of the storages that it creates
  bool view_like = false;
  bool random = false;
  bool saved = false;      // autograd keeps one of these storages until backward
  bool recomputed = true;  // false: recomputation ends before it
  bool keepable = true;    // a policy may keep its outputs (core/recipe/keep_policy.h)
  int32_t leader = -1;     // of an operator that writes in place: the one that made the storage; else -1
};

struct BlockFacts {
  int64_t block = 0;  // counted over the whole model
  std::vector<OperatorFacts> operators;

  int64_t TotalBytes() const;  // of what recomputation runs: a policy that keeps all keeps these
  int64_t SavedBytes() const;  // what autograd keeps without checkpointing
  double TotalSeconds() const;
};

// Memory at the moments of a step at which the same blocks wait for their backward.
struct MemoryState {
  std::vector<int64_t> waiting;  // by block of StageFacts: microbatches whose forward is done and whose backward is not
  int64_t bytes = 0;             // the most, with all blocks recomputed: what is kept of the waiting blocks comes on top
};

struct StageFacts {
  std::vector<BlockFacts> blocks;  // in the order of their numbers
  std::vector<MemoryState> states;
};

// `trace`: a step of one rank, of one level. Operators take the times of the roofline and of the collectives' model. Errors:
// FailedPrecondition if no block is recomputed; NotFound for an operator without a cost.
absl::StatusOr<StageFacts> FactsOf(const graph::Trace& trace, const v1::Cluster& cluster);

}  // namespace legoai::planner
