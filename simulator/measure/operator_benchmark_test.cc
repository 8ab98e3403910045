#include "simulator/measure/operator_benchmark.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "core/trace/testing/trace_builder.h"
#include "proto/errors.h"
#include "simulator/capture/capture_stages.h"
#include "simulator/estimate/estimate.h"
#include "simulator/measure/eager_overhead.h"

namespace legoai::sim {
namespace {

TEST(OperatorBenchmarkTest, AnOperatorOfOneSignatureHasOneTimeOverStagesAndCores) {
  graph::TraceBuilder first, second;
  for (graph::TraceBuilder* b : {&first, &second}) {
    auto a = b->Input("a", {64, 64});
    b->Op("aten::mm", {a, a}, {b->New(v1::FLOAT32, {64, 64})});
    b->Op("aten::mm", {a, a}, {b->New(v1::FLOAT32, {64, 64})});
    b->Op("aten::t", {a}, {b->View(b->StorageOf(a), v1::FLOAT32, {64, 64}, {1, 64})});
  }
  auto benchmark = BenchmarkOperators({{&first.trace(), 0, 0}, {&second.trace(), 1, 1}}, 2);
  ASSERT_TRUE(benchmark.ok()) << benchmark.status();
  ASSERT_EQ(benchmark->operators.size(), 1u);  // a view has none
  EXPECT_GT(benchmark->operators.entries().begin()->second, 0);
  EXPECT_GE(benchmark->dispatch_seconds, 0);
  EXPECT_LT(benchmark->dispatch_seconds, 1e-2);
}

TEST(OperatorBenchmarkTest, AnOperatorThatFailsIsNamed) {
  graph::TraceBuilder b;
  auto a = b.Input("a", {2, 3});
  b.Op("aten::mm", {a, a}, {b.New(v1::FLOAT32, {2, 3})});
  auto benchmark = BenchmarkOperators({{&b.trace(), 0, 0}}, 2);
  EXPECT_EQ(benchmark.status().code(), absl::StatusCode::kInternal);
  EXPECT_NE(benchmark.status().message().find("aten::mm"), std::string::npos);
}

v1::SimRequest Request(const char* cluster) {
  v1::SimRequest request;
  *request.mutable_model() =
      model::Llama({.vocab = 100, .hidden = 32, .intermediate = 64, .layers = 2, .heads = 4, .kv_heads = 2, .positions = 64});
  *request.mutable_cluster() = *ParseCluster(cluster);
  *request.mutable_recipe() = parallel::DefaultRecipe();
  request.mutable_recipe()->mutable_training()->set_local_batch_size(2);
  request.mutable_recipe()->mutable_training()->set_seq_len(32);
  request.set_cost_mode(v1::COST_BENCHMARK);
  return request;
}

// Every operator of real recipes can be called: nothing falls back to the roofline.
TEST(OperatorBenchmarkTest, WholeStepsRestOnMeasurements) {
  for (v1::DType dtype : {v1::FLOAT32, v1::BFLOAT16}) {
    v1::SimRequest request = Request("cpu:2x1");
    request.mutable_recipe()->mutable_training()->set_mixed_precision_param(dtype);
    auto estimate = EstimateRecipe(request);
    ASSERT_TRUE(estimate.ok()) << estimate.status();
    ASSERT_EQ(estimate->cost_models_size(), 1);
    EXPECT_EQ(estimate->cost_models(0).name(), "benchmark");
    EXPECT_GT(estimate->step_time_seconds(), 0);
  }
}

// Stages that send to and gather from ranks that are not there.
TEST(EagerOverheadTest, EveryStageOfARecipeRunsAsItTrains) {
  const v1::SimRequest request = Request("cpu:2x2");
  v1::Recipe recipe = request.recipe();
  recipe.mutable_training()->set_global_batch_size(8);
  recipe.mutable_parallelism()->set_pipeline_parallel_degree(2);
  recipe.mutable_parallelism()->set_data_parallel_shard_degree(2);
  const auto resolved = parallel::ResolvedRecipe::Create(recipe, request.model(), /*world_size=*/4);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  const auto captured = CaptureStages(*resolved);
  ASSERT_TRUE(captured.ok()) << captured.status();
  std::vector<graph::Trace> traces;
  for (const auto& stage : *captured) traces.push_back(stage.Flat());
  ASSERT_EQ(traces.size(), 2u);
  const std::vector<StageTrace> stages = {{&traces[0], 0, captured->front().rank}, {&traces[1], 1, captured->back().rank}};
  std::atomic<int64_t> done = 0;
  const Replays replays{.warm_up = 1, .timed = 2};
  const auto overhead = MeasureEagerOverhead(*resolved, stages, /*replayed=*/{0, 0}, replays, &done);
  ASSERT_TRUE(overhead.ok()) << overhead.status();
  EXPECT_EQ(done, replays.all() * static_cast<int64_t>(traces[0].instructions.size() + traces[1].instructions.size()));
  // With nothing taken off, it is a share of the whole step: many times what dispatch costs.
  const auto least = MeasureEagerOverhead();
  ASSERT_TRUE(least.ok()) << least.status();
  EXPECT_GT(*overhead, *least);
  // A replay that took longer than any step leaves what a small step says.
  const auto none = MeasureEagerOverhead(*resolved, stages, /*replayed=*/{1e3, 1e3}, replays, &done);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_GT(*none, 0);
  EXPECT_LT(*none, *overhead);
}

// Before anything is captured: this model could not be.
TEST(OperatorBenchmarkTest, OtherDevicesAreRefused) {
  v1::SimRequest request = Request("h100-sxm-80:2x1");
  request.mutable_model()->clear_architecture();
  auto estimate = EstimateRecipe(request);
  ASSERT_TRUE(GetFieldViolation(estimate.status()).has_value()) << estimate.status();
  EXPECT_EQ(GetFieldViolation(estimate.status())->field(), "--benchmark");
}

}  // namespace
}  // namespace legoai::sim
