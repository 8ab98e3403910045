// Context parallelism: each rank of the group "cp" holds a part of every sequence, and its tokens attend to those of all ranks
// (Liu et al. 2023; gathered keys and values as in Grattafiori et al. 2024, section 3.3.2).
//
// With equal consecutive parts, the last one has the most attention work. Head-tail balance cuts the sequence into 2 cp parts and
// gives each rank one of the first half, its head, and one of the second, its tail: rank r has the parts cp - 1 - r and cp + r,
// so that all ranks compute equally many pairs of tokens. Without it, rank r has part cp - 1 - r of cp. In this order the first
// rank of a group, which the simulator captures, has at least as much work and memory as any other.
//
// Everything but attention works on a token alone: between the blocks a rank has [batch, seq / cp, dim], its loss is the sum over
// its tokens, and gradients are summed over "dp_cp" like those of other samples. What depends on where a token stands reads
// StepContext::runs. There are two ways to the keys and values of the others, each [batch, kv_heads, seq, head_dim] in all:
// - They are gathered before attention, and let go of after it; backward gathers them once more, and reduce-scatters their
//   gradients. Nothing hides these collectives.
// - They go round the ring of ranks: while a rank attends to those that it has, it passes them on to the next rank and gets those
//   of the one before, on a stream of its own, so that it never has more than two ranks' at a time. In backward they go round
//   once more, and the sum of their gradients behind them, which ends where it belongs.
// Nothing of the length of the whole sequence is saved but where GPT-2 drops attention's probabilities, which are saved by
// operators of their own, over gathered keys.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/recipe/resolved_recipe.h"
#include "worker/comm/runtime.h"
#include "worker/model/language_model.h"

namespace legoai::parallel {

// The tokens of each sequence that `rank` holds, in its order. All of them without context parallelism.
std::vector<model::TokenRun> TokensOfRank(const ResolvedRecipe& resolved, int64_t rank);

// This rank's position among those that share sequences.
struct ContextPlace {
  int64_t group = 0;  // a number of the current comm::Runtime
  int64_t size = 1, index = 0;
  int64_t parts = 1;  // of each rank: 2 for head and tail
  // Where keys and values go round, the first of three events (of comm::Runtime): what is passed on is ready; keys and values
  // have come; their gradients have come. -1: they are gathered.
  int64_t events = -1;
};

// Of the runtime's rank, whose group kCp has two ranks or more.
ContextPlace PlaceInContext(comm::Runtime& runtime, int64_t parts, bool rotates);

// [batch, heads, seq / cp, head_dim] of each rank -> [batch, heads, seq, head_dim] on all, in the order of the sequence; backward
// sums the ranks' gradients. On the compute stream. Reductions are made in the tensor's dtype.
at::Tensor GatherContext(const at::Tensor& local, const ContextPlace& place);

// Causal attention of this rank's queries to the keys and values of all: q [batch, heads, seq / cp, head_dim], k and v [batch,
// kv_heads, seq / cp, head_dim]; result like q. Results of blocks of keys are merged by their log-sum-exp in fp32 (Milakov and
// Gimelshein 2018), so they are those of one softmax; backward takes each block by the merged log-sum-exp. Gradients of keys and
// values are summed in their dtype.
at::Tensor ContextAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ContextPlace& place);

// Sets the model's token positions and replaces its attention by the above. Does nothing without context parallelism. Call it
// once, after tensor parallelism, before checkpointing and before the model's buffers are created.
void ApplyContextParallel(model::LanguageModel* model, const ResolvedRecipe& resolved);

}  // namespace legoai::parallel
