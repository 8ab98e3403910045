// The values a parameter starts from: a function of (seed, full name, global index), so that every layout of the same model
// starts from the same weights.
//
// Element i of the parameter takes word i % 4 of Philox block i / 4 under key `seed`; blocks are told apart by a 64-bit FNV-1a
// hash of the name. Pairs of words become pairs of normals by Box and Muller, in doubles, rounded to fp32 at the end.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "core/mesh/shard_spec.h"
#include "worker/model/module.h"

namespace legoai::model {

uint64_t HashName(std::string_view name);

// Fills `out`, fp32 on CPU, contiguous, of shape spec.sizes, with the part of the global tensor that `spec` names. Writes host
// memory, not by operators: not for use under a recorder. Errors: c10::Error if `out` does not fit. Uses at::parallel_for.
void FillParameter(const parallel::ShardSpec& spec, const InitRule& rule, uint64_t seed, const at::Tensor& out);

}  // namespace legoai::model
