// Tensor parallelism with sequence parallelism (Shoeybi et al. 2019, Korthikanti et al. 2022).
//
// Plan tables say by module path how each weight is sharded; models do not depend on them. With tp the size of the group "tp",
// between blocks each rank has [batch, seq / tp, dim]; norms work on that, so their gradients are partial sums
// (ShardSpec::gradient_partial_over), as are those of norms of a rank's heads, of learned positions and of biases added to
// reduced sums. Attention and feed-forward gather the sequence first, work on their heads or columns, and reduce-scatter the
// partial sums of their last product; what follows it, a bias or dropout, works on this rank's tokens. If there are fewer
// key-value heads than ranks, neighbouring ranks have copies of one (ShardSpec::copies_over_tp). The embedding is sharded over
// the vocabulary: each rank looks up the ids in its shard. The output head returns [batch, seq, vocab / tp] for loss parallel
// (loss_parallel.h), or gathers.
//
// Without sequence parallelism (`sequence_parallel` = false, as in Shoeybi et al. 2019) all ranks have [batch, seq, dim] between
// blocks: what enters attention, feed-forward and output head is there already and the gradient is summed over the ranks, and the
// partial sums of the last product are summed on all. Everything between blocks is then computed and kept by each rank, and its
// gradients are whole.
//
// The edges between what is split by heads or columns and what is split by tokens are all-gather and reduce-scatter as
// differentiable functions, each the other's backward. They run on the compute stream, because the next operator needs them at
// once. `group` is a number of the current comm::Runtime; `tp` below is its size. With batch 1 the collective's layout is the
// tensor's own; with a larger batch one permuting copy is made. Reductions are made in the tensor's dtype.
//
// What attention, feed-forward and output head gather, their column-parallel products keep for the gradients of their weights:
// the whole of it, or this rank's tokens of it, which backward then gathers once more, on a stream of its own and while the
// gradient of the products' input is computed (Korthikanti et al. 2022, section 4.2.2). The products that share an input share
// the second gather, too.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/status.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "worker/model/language_model.h"

namespace legoai::parallel {

// [batch, seq / tp, dim] of each rank -> [batch, seq, dim] on all; backward sums the ranks' gradients.
at::Tensor GatherSequence(const at::Tensor& local, int64_t group);

// [batch, seq, dim], a partial sum on each rank -> [batch, seq / tp, dim] of the sum; backward gathers. Errors: c10::Error if tp
// does not divide seq.
at::Tensor ReduceScatterSequence(const at::Tensor& partial, int64_t group);

// [batch, seq, columns] of each rank -> [batch, seq, tp * columns] on all. Every rank computes the same from it, so backward
// takes this rank's columns without communication.
at::Tensor GatherColumns(const at::Tensor& local, int64_t group);

// Cuts the specs and local shapes of the model's parameters, which have no memory yet, and adds the interceptors; group, size
// and rank are those of "tp" in the current comm::Runtime. Does nothing if its size is 1. `model` may have lost layers to other
// pipeline stages. To be applied before checkpointing and data parallelism, once, with a recipe that a ResolvedRecipe was made
// of: that the degree divides heads and sequence is checked there. To gather in backward, the runtime's mesh must have the group
// "tp_gather". Errors: InvalidArgument naming the field for an architecture without a plan.
absl::Status ApplyTensorParallel(model::LanguageModel* model, const v1::Recipe& recipe);

// The first column of the logits of rank `index` under loss parallel.
int64_t VocabularyOffset(int64_t vocab_size, int64_t tp, int64_t index);

}  // namespace legoai::parallel
