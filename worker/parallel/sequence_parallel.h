// The edges between what tensor parallelism splits by heads or columns and what sequence parallelism splits by tokens: all-gather
// and reduce-scatter as differentiable functions, each the other's backward (Korthikanti et al. 2022).
//
// They run on the compute stream, because the next operator needs them at once. `group` is a number of the current
// comm::Runtime; `tp` below is its size. With batch 1 the collective's layout is the tensor's own; with a larger batch one
// permuting copy is made. Reductions are made in the tensor's dtype.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace legoai::parallel {

// [batch, seq / tp, dim] of each rank -> [batch, seq, dim] on all; backward sums the ranks' gradients.
at::Tensor GatherSequence(const at::Tensor& local, int64_t group);

// [batch, seq, dim], a part of a sum on each rank -> [batch, seq / tp, dim] of the sum; backward gathers.
// Errors: c10::Error if tp does not divide seq.
at::Tensor ReduceScatterSequence(const at::Tensor& partial, int64_t group);

// [batch, seq, columns] of each rank -> [batch, seq, tp * columns] on all. Every rank goes on to compute the same with it, so
// backward takes this rank's columns and needs no communication.
at::Tensor GatherColumns(const at::Tensor& local, int64_t group);

}  // namespace legoai::parallel
