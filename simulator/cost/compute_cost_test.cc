#include "simulator/cost/compute_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <utility>

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

v1::Efficiency* AddCurve(v1::Device* device, bool unaligned, std::initializer_list<std::pair<double, double>> points) {
  auto* entry = device->add_efficiencies();
  entry->set_op_class("matmul");
  entry->set_dtype(v1::BFLOAT16);
  entry->set_operator_("aten::mm");
  entry->set_unaligned(unaligned);
  entry->set_fraction(points.end()[-1].second);
  for (const auto& [least_seconds, fraction] : points) {
    auto* point = entry->add_curve();
    point->set_least_seconds(least_seconds);
    point->set_fraction(fraction);
  }
  return entry;
}

// The peak is 1e5 FLOP/s.
OpFacts Product(double least_seconds, bool unaligned = false) {
  return {OpClass::kMatmul, v1::BFLOAT16, 1e5 * least_seconds, 0, 0, unaligned};
}

TEST(RooflineTest, AnOperatorsCurveIsInterpolatedInTheLogarithmAndEndsInATimeAndAShare) {
  v1::Device device = TestDevice();
  AddCurve(&device, false, {{0.01, 0.1}, {1, 0.4}, {4, 0.8}});
  AddCurve(&device, true, {{1, 0.2}});
  ASSERT_OK_AND_ASSIGN(auto model, RooflineModel::Create(device));
  const auto seconds = [&](const OpFacts& facts) { return model->Seconds("aten::mm", facts).value(); };
  EXPECT_NEAR(seconds(Product(1)), 1 / 0.4, 1e-12);
  EXPECT_NEAR(seconds(Product(2)), 2 / std::sqrt(0.4 * 0.8), 1e-12);  // half way from 1 to 4
  EXPECT_NEAR(seconds(Product(0.1)), 0.1 / std::sqrt(0.1 * 0.4), 1e-12);
  EXPECT_NEAR(seconds(Product(40)), 40 / 0.8, 1e-12);
  EXPECT_NEAR(seconds(Product(1e-5)), 0.01 / 0.1, 1e-12);
  EXPECT_NEAR(seconds(Product(3, /*unaligned=*/true)), 3 / 0.2, 1e-12);
  OpFacts of_bytes = Product(1);
  of_bytes.read_bytes = 4000;  // four seconds at the bandwidth
  EXPECT_NEAR(seconds(of_bytes), 4 / 0.8, 1e-12);
  OpFacts other_type = Product(1);
  other_type.dtype = v1::FLOAT32;
  EXPECT_EQ(seconds(other_type), model->Seconds(other_type).value());
  EXPECT_EQ(model->Seconds("aten::bmm", Product(1)).value(), 2);
}

// However a class's work is cut into calls of whatever operators, aligned or not.
TEST(RooflineTest, NoCallTakesLessThanTheLeast) {
  v1::Device device = TestDevice();
  AddCurve(&device, false, {{0.01, 0.1}, {1, 0.9}, {4, 0.7}});
  AddCurve(&device, true, {{1, 0.2}});
  for (const double launch : {0.001, 5.0}) {  // a what-if may make it longer than calls that were measured
    device.set_kernel_launch_seconds(launch);
    ASSERT_OK_AND_ASSIGN(const auto model, RooflineModel::Create(device));
    for (const double least : {1e-4, 0.01, 0.3, 1.0, 2.0, 5.0}) {
      for (const bool unaligned : {false, true}) {
        OpFacts facts = Product(least, unaligned);
        facts.read_bytes = 100;
        EXPECT_LE(model->LeastSeconds(facts).value(), model->Seconds("aten::mm", facts).value()) << least << " " << launch;
        EXPECT_LE(model->LeastSeconds(facts).value(), model->Seconds(facts).value()) << least << " " << launch;
      }
    }
  }
  device.set_kernel_launch_seconds(0.001);
  ASSERT_OK_AND_ASSIGN(const auto model, RooflineModel::Create(device));
  EXPECT_NEAR(model->LeastSeconds(Product(9)).value(), 10, 1e-12);
}

TEST(RooflineTest, ACurveThatDoesNotAscendIsRefused) {
  v1::Device device = TestDevice();
  AddCurve(&device, false, {{1, 0.1}, {1, 0.4}});
  EXPECT_EQ(GetFieldViolation(RooflineModel::Create(device).status())->field(), "device.efficiencies.curve");
  v1::Device negative = TestDevice();
  AddCurve(&negative, false, {{1, 0.1}, {2, -1}});
  EXPECT_EQ(GetFieldViolation(RooflineModel::Create(negative).status())->value(), "aten::mm");
}

// Otherwise one of two would count, and one without a type nowhere.
TEST(RooflineTest, AnOperatorHasOneCurveOfAType) {
  v1::Device device = TestDevice();
  AddCurve(&device, false, {{1, 0.1}});
  AddCurve(&device, true, {{1, 0.1}});
  EXPECT_TRUE(RooflineModel::Create(device).ok());
  v1::Device twice = device;
  AddCurve(&twice, false, {{1, 0.4}});
  EXPECT_EQ(GetFieldViolation(RooflineModel::Create(twice).status())->field(), "device.efficiencies.operator");
  AddCurve(&device, false, {{1, 0.4}})->set_dtype(v1::DTYPE_UNSPECIFIED);
  EXPECT_EQ(GetFieldViolation(RooflineModel::Create(device).status())->field(), "device.efficiencies.dtype");
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
