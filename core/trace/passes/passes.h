// The passes. Each is a pure function: a Trace in, a Trace with the same inputs, outputs and numbers out, but for roundings where
// a pass says so.
//
// Those of FSDP work on its collectives (shard_collectives.h) of a Trace in which each parameter has collectives of its own
// (fsdp_bucketing "none" and "manual"), and follow Zhang et al. 2024, SimpleFSDP, section 3.2. None moves anything out of the
// forward or the backward of a microbatch. All bytes that travel are the same, and all sums are of the same elements in the same
// order of ranks, so that results are equal bit by bit. An all-reduce over three replicas or more adds ranks in an order that
// depends on an element's place, so that joining several may round otherwise.
//
// Errors: Internal where the Trace's collectives are not of the form that shard_collectives.h describes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/recipe/fsdp_buckets.h"
#include "core/trace/trace.h"

namespace legoai::graph {

// "gather_at_use": a parameter is gathered right before the first operator that reads it, not before its layer, and freed right
// after the last one. With it alone every collective is exposed.
absl::StatusOr<Trace> GatherAtUse(Trace trace);

// "bucket_collectives": the gathers of a bucket become one, at the place of the first, and its reductions one, at the place of
// the last: what is sent is copied into one buffer, and copied out of it, or read in it, as before. Sums over replicas that
// follow become one, too. `backward`: the buckets of what a backward gathers and reduces; `buckets`: of all else.
absl::StatusOr<Trace> BucketCollectives(Trace trace, const std::vector<parallel::FsdpBucket>& buckets,
                                        const std::vector<parallel::FsdpBucket>& backward);

// "reorder_collectives": in forward a gather begins before the wait for the one before it, so that it runs beside the copies out
// of that and what they are for; in backward it begins after these copies, as the reduction under way runs beside them. A
// reduction is waited for when the next one is packed, or at the end of the backward.
absl::StatusOr<Trace> ReorderCollectives(Trace trace);

// "async_tensor_parallel": products of tensor and sequence parallelism are cut by the ranks whose tokens they are of, and overlap
// with the exchange of these tokens (Wang et al. 2022, "Overlap communication with dependent computation via decomposition").
// - An all-gather whose first reader is a product becomes hops round a ring (lego::rotate_into, on comm::kRotate); the product of
//   this rank's tokens runs beside the first hop, that of the tokens that come with it beside the second, and so on. Other
//   products of the same tokens take part, block by block, if all that they read is there by then: the keys and values beside
//   the queries, both products of a gated feed-forward. Later readers (weight gradients) find all tokens there.
// - A product whose result is reduce-scattered begins with the tokens of the rank before, sends its rows on while it computes the
//   next ones, and adds its own to those that come. What stands between product and reduction, as the gradient of the weight,
//   runs beside the last hop. A sum of several products is cut in its last one.
// Every element is the same product of the same row and the same column, and partial sums are added in the order of ranks as
// before; kernels may cut the sum over a row otherwise where there are fewer rows, so that results can differ by rounding
// (docs/recipe.md). Collectives that another operator reads or feeds (embedding, logits that are gathered, gathers that repeat
// one in backward) stay as they are. `trace` is of one level.
absl::StatusOr<Trace> AsyncTensorParallel(Trace trace);

// "fuse": elementwise operators that read each other's results, or the same tensor, become one lego::fused
// (core/trace/fused_kernel.h): additions, products, SiLU and GELU and their gradients, casts, rotations of RoPE, and RMSNorm as
// it follows a residual. Of float32 and bfloat16 on the compute stream, within a phase of a microbatch; what only they read is
// never written. A member waits for the group, or comes forward to it, past operators that touch none of its tensors. A group is
// made only where it moves fewer bytes, and the step's peak does not rise (step_memory.h). Values differ from the operators' one
// by one by the roundings that are left out between them, and by those of exp (worker/graph/kernel_source.h). `trace` is of one
// level.
absl::StatusOr<Trace> FuseElementwise(Trace trace);

}  // namespace legoai::graph
