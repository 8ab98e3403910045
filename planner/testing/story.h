// What a planning run might have found, put together by a test: recipes of llama3-8b on four H100, with times and memory as the
// test says. Closed forms are the real ones where the recipe is legal. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "planner/plan_facts.h"

namespace legoai::planner::testing {

inline v1::Recipe MakeRecipe(int64_t tp, v1::ActivationCheckpointMode mode) {
  v1::Recipe recipe;
  recipe.mutable_training()->set_global_batch_size(16);
  recipe.mutable_training()->set_local_batch_size(2);
  recipe.mutable_training()->set_seq_len(2048);
  recipe.mutable_training()->set_mixed_precision_param(v1::BFLOAT16);
  auto* parallelism = recipe.mutable_parallelism();
  parallelism->set_data_parallel_replicate_degree(1);
  parallelism->set_data_parallel_shard_degree(4 / tp);
  parallelism->set_tensor_parallel_degree(tp);
  parallelism->set_pipeline_parallel_degree(1);
  recipe.mutable_activation_checkpoint()->set_mode(mode);
  recipe.mutable_activation_checkpoint()->set_selective_ac_option("2");
  return recipe;
}

// 1F1B over `stages`, with microbatches of one sequence.
inline v1::Recipe MakePipeline(int64_t stages) {
  v1::Recipe recipe = MakeRecipe(1, v1::AC_NONE);
  recipe.mutable_parallelism()->set_data_parallel_shard_degree(4 / stages);
  recipe.mutable_parallelism()->set_pipeline_parallel_degree(stages);
  recipe.mutable_parallelism()->set_pipeline_parallel_schedule(v1::ONE_F_ONE_B);
  recipe.mutable_parallelism()->set_pipeline_parallel_microbatch_size(1);
  recipe.mutable_training()->set_local_batch_size(16 / (4 / stages));
  return recipe;
}

struct Seconds {
  double compute = 0, exposed = 0, bubble = 0;
};

class Story {
 public:
  Story() {
    *request_.mutable_model() = *model::ResolveModel("llama3-8b");
    *request_.mutable_cluster() = *sim::ParseCluster("h100-sxm-80:4x1");
    request_.set_global_batch(16);
    request_.set_seq_len(2048);
    request_.set_budget_seconds(8);
    facts_.request = &request_;
    facts_.space = &space_;
  }
  Story(const Story&) = delete;

  // Of 80 GiB.
  Story& Ranked(const v1::Recipe& recipe, const Seconds& seconds, int64_t gib = 40) {
    facts_.ranked.push_back(Add(recipe, seconds, gib));
    result_.set_captured(result_.captured() + 1);
    return *this;
  }
  // Simulated and too large, among the rejected too.
  Story& Unfit(const v1::Recipe& recipe, const Seconds& seconds, int64_t gib) {
    facts_.unfit.push_back(Add(recipe, seconds, gib));
    result_.set_captured(result_.captured() + 1);
    result_.set_captured_unfit(result_.captured_unfit() + 1);
    return Rejected(recipe, "out_of_memory", "stage 0 needs too much");
  }
  Story& Rejected(const v1::Recipe& recipe, const std::string& rule, const std::string& reason) {
    auto* rejected = result_.add_rejected();
    *rejected->mutable_recipe() = recipe;
    rejected->set_rule(rule);
    rejected->set_reason(reason);
    return *this;
  }
  // Its estimate is `ratio` times that of the first ranked.
  Story& NotSimulated(const v1::Recipe& recipe, double ratio) {
    Survivor& survivor = survivors_.emplace_back(Survivor{recipe, {}, 0});
    survivor.roofline.step_seconds = ratio * (facts_.ranked.empty() ? 1 : facts_.ranked[0].survivor->roofline.step_seconds);
    facts_.not_simulated.push_back(&survivor);
    result_.set_not_reached(result_.not_reached() + 1);
    return *this;
  }

  v1::PlanRequest& request() { return request_; }
  LegalSpace& space() { return space_; }
  PlanFacts& facts() { return facts_; }
  v1::PlanResult& result() { return result_; }

 private:
  SimulatedRecipe Add(const v1::Recipe& recipe, const Seconds& seconds, int64_t gib) {
    Survivor& survivor = survivors_.emplace_back(Survivor{recipe, {}, 0});
    if (const auto roofline = EstimateTime(request_, recipe); roofline.ok()) survivor.roofline = *roofline;
    v1::Estimate& estimate = estimates_.emplace_back();
    *estimate.mutable_recipe() = recipe;
    estimate.set_step_time_seconds(seconds.compute + seconds.exposed + seconds.bubble);
    estimate.mutable_breakdown()->set_compute_seconds(seconds.compute);
    estimate.mutable_breakdown()->set_exposed_communication_seconds(seconds.exposed);
    estimate.mutable_breakdown()->set_bubble_seconds(seconds.bubble);
    auto* stage = estimate.add_stages();
    stage->set_capacity_bytes(int64_t{80} << 30);
    stage->set_peak_allocated_bytes(gib << 30);
    stage->set_peak_at("model.layers.1, backward");
    auto* share = estimate.add_cost_models();
    share->set_name("roofline");
    share->set_share_of_compute_time(1);
    return {&estimate, &survivor};
  }

  v1::PlanRequest request_;
  LegalSpace space_;
  PlanFacts facts_;
  v1::PlanResult result_;
  std::deque<Survivor> survivors_;
  std::deque<v1::Estimate> estimates_;
};

}  // namespace legoai::planner::testing
