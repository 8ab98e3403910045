#include "planner/space.h"

#include <algorithm>

namespace legoai::planner {
namespace {

// Ascending.
std::vector<int64_t> Divisors(int64_t number) {
  std::vector<int64_t> divisors, large;
  for (int64_t d = 1; d <= number / d; ++d) {
    if (number % d != 0) continue;
    divisors.push_back(d);
    if (d != number / d) large.push_back(number / d);
  }
  divisors.insert(divisors.end(), large.rbegin(), large.rend());
  return divisors;
}

// Local batch and microbatch of each degree split; shares that do not come out even are left to the legality rules.
void AppendBatches(const v1::PlanRequest& request, Candidate candidate, std::vector<Candidate>* out) {
  const int64_t ranks = candidate.replicate * candidate.shard;
  const int64_t share = std::max<int64_t>(request.global_batch() / ranks, 1);
  for (int64_t size : Divisors(share)) {
    candidate.local_batch = candidate.pipeline > 1 ? share : size;
    candidate.microbatch = size;
    for (auto checkpointing : {v1::AC_NONE, v1::AC_FULL}) {
      for (auto precision : {v1::BFLOAT16, v1::FLOAT32}) {
        candidate.checkpointing = checkpointing;
        candidate.precision = precision;
        candidate.schedule = v1::ONE_F_ONE_B;
        out->push_back(candidate);
        if (candidate.pipeline == 1) continue;
        candidate.schedule = v1::GPIPE;
        out->push_back(candidate);
      }
    }
  }
}

}  // namespace

std::vector<Candidate> Enumerate(const v1::PlanRequest& request, int64_t world_size) {
  std::vector<Candidate> candidates;
  for (int64_t pipeline : Divisors(world_size)) {
    for (int64_t tensor : Divisors(world_size / pipeline)) {
      for (int64_t shard : Divisors(world_size / pipeline / tensor)) {
        Candidate candidate;
        candidate.pipeline = pipeline;
        candidate.tensor = tensor;
        candidate.shard = shard;
        candidate.replicate = world_size / pipeline / tensor / shard;
        AppendBatches(request, candidate, &candidates);
      }
    }
  }
  return candidates;
}

v1::Recipe ToRecipe(const Candidate& candidate, const v1::PlanRequest& request) {
  v1::Recipe recipe = request.base();
  auto* training = recipe.mutable_training();
  training->set_global_batch_size(request.global_batch());
  training->set_seq_len(request.seq_len());
  training->set_local_batch_size(candidate.local_batch);
  training->set_mixed_precision_param(candidate.precision);
  auto* parallelism = recipe.mutable_parallelism();
  parallelism->set_data_parallel_replicate_degree(candidate.replicate);
  parallelism->set_data_parallel_shard_degree(candidate.shard);
  parallelism->set_tensor_parallel_degree(candidate.tensor);
  parallelism->set_pipeline_parallel_degree(candidate.pipeline);
  parallelism->set_pipeline_parallel_microbatch_size(candidate.pipeline > 1 ? candidate.microbatch : 1);
  parallelism->set_pipeline_parallel_schedule(candidate.schedule);
  recipe.mutable_activation_checkpoint()->set_mode(candidate.checkpointing);
  return recipe;
}

}  // namespace legoai::planner
