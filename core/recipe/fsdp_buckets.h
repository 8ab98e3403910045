// Which parameters share FSDP's collectives where the passes of core/trace/passes decide it ([compile]; Zhang et al. 2024,
// SimpleFSDP, section 3.3). A bucket lists modules by TorchTitan's names: tok_embeddings, layers.0, layers.0.mlp,
// layers.0.self_attn.q_proj, norm, output. `layers.*` stands for each layer, with a bucket of its own. A parameter in no bucket
// has collectives of its own. Pure functions; the recipe has its defaults.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::parallel {

using FsdpBucket = std::vector<std::string>;  // names of modules

// Whether each parameter is captured with collectives of its own, which passes join and move.
bool PassesJoinCollectives(const v1::Recipe& recipe);

// Errors: FieldError of a recipe whose fsdp_bucketing is still "auto": who trains it would not know the buckets.
absl::Status CheckBucketsArePlanned(const v1::Recipe& recipe);

// fsdp_buckets with `*` replaced; none unless fsdp_bucketing is "manual".
std::vector<FsdpBucket> FsdpBuckets(const v1::Recipe& recipe, int64_t layers);

// The same of fsdp_backward_buckets: those of a backward's gathers and of gradients. Where none are listed they are FsdpBuckets.
std::vector<FsdpBucket> FsdpBackwardBuckets(const v1::Recipe& recipe, int64_t layers);

// The index of the bucket that has a parameter, by its name ("model.layers.0.mlp.up_proj.weight"); -1: none.
int64_t BucketOf(const std::vector<FsdpBucket>& buckets, const std::string& parameter);

// "model.layers.0.mlp.up_proj.weight" and "transformer.h.0.mlp.c_fc.weight" are "layers.0.mlp.up_proj" and "layers.0.mlp.c_fc".
std::string ModuleOfParameter(const std::string& parameter);

// All names that a bucket may have, but for those with `*`.
std::vector<std::string> BucketableModules(const v1::Model& model);

}  // namespace legoai::parallel
