#include "simulator/cost/compute_cost.h"

#include <gtest/gtest.h>

#include "core/hardware/catalog.h"
#include "core/trace/testing/trace_builder.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"

namespace legoai::sim {
namespace {

using graph::TraceBuilder;

v1::Device TestDevice() {
  v1::Device device;
  device.set_type("test");
  device.set_memory_bandwidth_bytes_per_second(1000);
  device.set_kernel_launch_seconds(0.001);
  for (auto [dtype, peak] : {std::pair{v1::FLOAT32, 1e4}, {v1::BFLOAT16, 1e5}}) {
    auto* entry = device.add_peak_flops();
    entry->set_dtype(dtype);
    entry->set_flops_per_second(peak);
  }
  for (const char* name : {"matmul", "attention", "elementwise", "reduction", "copy", "optimizer"}) {
    auto* entry = device.add_efficiencies();
    entry->set_op_class(name);
    entry->set_fraction(0.5);
  }
  return device;
}

TEST(RooflineTest, LargestOfLaunchArithmeticAndTraffic) {
  ASSERT_OK_AND_ASSIGN(auto model, RooflineModel::Create(TestDevice()));
  EXPECT_DOUBLE_EQ(*model->Seconds({OpClass::kMatmul, v1::BFLOAT16, 1e5, 10, 10}), 2.0);
  EXPECT_DOUBLE_EQ(*model->Seconds({OpClass::kMatmul, v1::FLOAT32, 1e5, 10, 10}), 20.0);
  EXPECT_DOUBLE_EQ(*model->Seconds({OpClass::kMatmul, v1::BFLOAT16, 1, 1000, 1000}), 4.0);
  EXPECT_DOUBLE_EQ(*model->Seconds({OpClass::kElementwise, v1::BFLOAT16, 1, 300, 200}), 1.0);
  EXPECT_DOUBLE_EQ(*model->Seconds({OpClass::kCopy, v1::INT64, 0, 0, 0}), 0.001);
  EXPECT_DOUBLE_EQ(*model->Seconds({OpClass::kView, v1::FLOAT32, 0, 0, 0}), 0.0);
  auto missing = model->Seconds({OpClass::kMatmul, v1::FLOAT64, 1, 1, 1});
  EXPECT_EQ(GetFieldViolation(missing.status())->value(), "FLOAT64");
  EXPECT_FALSE(model->Seconds({OpClass::kCollective, v1::FLOAT32, 1, 1, 1}).ok());
}

TEST(RooflineTest, EveryCatalogDeviceHasAModelAndIncompleteOnesAreRefused) {
  for (const auto& device : ListDevices()) EXPECT_TRUE(RooflineModel::Create(device).ok()) << device.type();
  v1::Device device = TestDevice();
  device.mutable_efficiencies()->RemoveLast();
  EXPECT_EQ(GetFieldViolation(RooflineModel::Create(device).status())->value(), "optimizer");
}

TEST(RooflineTest, ATypeMayHaveAnEfficiencyOfItsOwn) {
  v1::Device device = TestDevice();
  auto* own = device.add_efficiencies();
  own->set_op_class("attention");
  own->set_dtype(v1::BFLOAT16);
  own->set_fraction(0.05);
  ASSERT_OK_AND_ASSIGN(auto model, RooflineModel::Create(device));
  EXPECT_DOUBLE_EQ(*model->Seconds({OpClass::kAttention, v1::BFLOAT16, 1e5, 10, 10}), 20.0);
  EXPECT_DOUBLE_EQ(*model->Seconds({OpClass::kAttention, v1::FLOAT32, 1e5, 10, 10}), 20.0);
  EXPECT_DOUBLE_EQ(*model->Seconds({OpClass::kMatmul, v1::BFLOAT16, 1e5, 10, 10}), 2.0);
}

TEST(BenchmarkModelTest, FromTheTableOrAnErrorWithTheSignature) {
  TraceBuilder b;
  auto x = b.New(v1::FLOAT32, {100}), y = b.New(v1::FLOAT32, {100});
  b.Op("aten::add.Tensor", {x, y}, {x});
  b.Op("aten::mul.Tensor", {x, y}, {x});
  BenchmarkTable table;
  table.Set(SignatureOf(graph::InstructionView(b.trace(), b.trace().instructions[0])), 0.25);
  const BenchmarkModel model(&table);
  ASSERT_OK_AND_ASSIGN(auto add, model.Time(b.trace(), b.trace().instructions[0]));
  EXPECT_EQ(add.seconds, 0.25);
  EXPECT_STREQ(add.model, "benchmark");
  const absl::Status mul = model.Time(b.trace(), b.trace().instructions[1]).status();
  EXPECT_NE(mul.message().find("aten::mul.Tensor(FLOAT32[100]{1}"), std::string::npos) << mul;
}

}  // namespace
}  // namespace legoai::sim
