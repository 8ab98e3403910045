#include "simulator/capture/operator_benchmark.h"

#include <gtest/gtest.h>

#include "proto/errors.h"
#include "simulator/capture/estimate.h"
#include "simulator/hardware/catalog.h"
#include "worker/graph/trace_builder.h"
#include "worker/parallel/recipe.h"

namespace legoai::sim {
namespace {

TEST(OperatorBenchmarkTest, TimesEachDistinctOperatorOnce) {
  graph::TraceBuilder b;
  auto a = b.New(v1::FLOAT32, {256, 256}), small = b.New(v1::FLOAT32, {4, 4});
  b.Op("aten::mm", {a, a}, {a});
  b.Op("aten::mm", {a, a}, {a});
  b.Op("aten::mm", {small, small}, {small});
  b.Op("aten::t", {a}, {a});
  auto table = BenchmarkOperators({&b.trace()}, 2);
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ(table->size(), 2u);
  const double* large = table->Find(SignatureOf(graph::InstructionView(b.trace(), b.trace().instructions[0])));
  const double* tiny = table->Find(SignatureOf(graph::InstructionView(b.trace(), b.trace().instructions[2])));
  ASSERT_TRUE(large != nullptr && tiny != nullptr);
  EXPECT_GT(*tiny, 0);
  EXPECT_GT(*large, *tiny);  // 260,000 times the arithmetic
}

TEST(OperatorBenchmarkTest, AnOperatorThatFailsIsNamed) {
  graph::TraceBuilder b;
  auto a = b.New(v1::FLOAT32, {2, 3});
  b.Op("aten::mm", {a, a}, {a});
  auto table = BenchmarkOperators({&b.trace()}, 2);
  EXPECT_EQ(table.status().code(), absl::StatusCode::kInternal);
  EXPECT_NE(table.status().message().find("aten::mm"), std::string::npos);
}

v1::SimRequest Request(const char* cluster) {
  v1::SimRequest request;
  v1::Model* model = request.mutable_model();
  model->set_architecture(v1::LLAMA);
  model->set_hidden_size(32);
  model->set_num_attention_heads(4);
  model->set_num_key_value_heads(2);
  model->set_head_dim(8);
  model->set_intermediate_size(64);
  model->set_num_hidden_layers(2);
  model->set_vocab_size(100);
  model->set_max_position_embeddings(64);
  model->set_norm_eps(1e-5);
  model->set_rope_theta(10000);
  model->set_initializer_range(0.02);
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

TEST(OperatorBenchmarkTest, OtherDevicesAreRefused) {
  auto estimate = EstimateRecipe(Request("h100-sxm-80:2x1"));
  ASSERT_FALSE(estimate.ok());
  EXPECT_EQ(GetFieldViolation(estimate.status())->field(), "--benchmark");
}

}  // namespace
}  // namespace legoai::sim
