// Initial values of parameters: a function of (seed, full name, global index), so that every layout of a model starts from the
// same weights.
//
// Element i of the parameter takes word i % 4 of Philox block i / 4 under key `seed`; a 64-bit FNV-1a hash of the name
// distinguishes the blocks of parameters. Pairs of words become pairs of normals by Box and Muller, in doubles, rounded to fp32
// at the end.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "core/mesh/shard_spec.h"
#include "worker/model/module.h"

namespace legoai::model {

uint64_t HashName(std::string_view name);

// Fills `out`, fp32 on CPU, contiguous, of shape spec.sizes, with the part of the global tensor that `spec` names. Writes host
// memory directly, not through operators: do not use it under a recorder. Errors: c10::Error if `out` does not fit. Uses
// at::get_num_threads() threads.
void FillParameter(const parallel::ShardSpec& spec, const InitRule& rule, uint64_t seed, const at::Tensor& out);

}  // namespace legoai::model
