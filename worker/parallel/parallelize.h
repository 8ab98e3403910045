// Turns a model without memory and a recipe into this rank's part of the parallel model. parallelize.cc applies the techniques in
// a fixed order; each works on the result of the previous ones, and none depends on another.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "worker/model/language_model.h"
#include "worker/parallel/fsdp.h"

namespace legoai::parallel {

struct ParallelizedModel {
  std::unique_ptr<model::LanguageModel> model;  // the layers of this pipeline rank's chunks
  std::unique_ptr<DataParallel> data_parallel;
  Precision precision;
  int64_t seq_len = 0;
};

// Uses the current comm::Runtime, whose rank and groups must be those of `resolved`. Errors: InvalidArgument naming the recipe's
// field that a technique cannot support.
absl::StatusOr<ParallelizedModel> Parallelize(std::unique_ptr<model::LanguageModel> model, const ResolvedRecipe& resolved);

// From training.mixed_precision_param, mixed_precision_reduce and dtype; an unset field takes its default. Errors:
// InvalidArgument, by field, for a type other than float32, bfloat16 and, but of mixed_precision_reduce, float16.
absl::StatusOr<Precision> PrecisionOf(const v1::Training& training);

// Gives parameters and buffers their memory, this rank's parts only: the weights are a function of seed, name and global
// index, rounded to the masters' type, hence the same in every layout. `initialize`: fills the masters by their rules; otherwise
// their contents are undefined (a fake device, or weights that are loaded next). Once.
void Materialize(ParallelizedModel& parallelized, c10::Device device, uint64_t seed, bool initialize);

// Fills `out`, of the shape of Parameter::master and any floating-point type, with the parameter's initial values.
void Initialize(const model::Parameter& p, uint64_t seed, const at::Tensor& out);

}  // namespace legoai::parallel
