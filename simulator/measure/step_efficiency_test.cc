#include "simulator/measure/step_efficiency.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "core/hardware/catalog.h"
#include "simulator/cost/compute_cost.h"

namespace legoai::sim {
namespace {

// Peaks that no CPU comes near, and a bandwidth below any's: the fractions say which of the two a class is held against.
TEST(StepEfficiency, EveryClassIsHeldAgainstWhatBoundsIt) {
  v1::Device device = *FindDevice("cpu");
  device.clear_peak_flops();
  for (const v1::DType dtype : {v1::FLOAT32, v1::BFLOAT16}) {
    auto* peak = device.add_peak_flops();
    peak->set_dtype(dtype);
    peak->set_flops_per_second(1e18);
  }
  device.set_memory_bandwidth_bytes_per_second(1e6);
  ASSERT_EQ(MeasureEfficiencies(2, "by a test", &device), absl::OkStatus());
  std::map<std::pair<std::string, v1::DType>, double> fractions;
  for (const auto& efficiency : device.efficiencies()) {
    EXPECT_EQ(efficiency.source(), "by a test");
    EXPECT_TRUE(fractions.insert({{efficiency.op_class(), efficiency.dtype()}, efficiency.fraction()}).second);
  }
  // At 1 MB/s the traffic of everything takes longer than it really does, products' too.
  for (const char* op_class : {"matmul", "attention", "elementwise", "reduction", "copy", "optimizer"}) {
    EXPECT_EQ((fractions[{op_class, v1::DTYPE_UNSPECIFIED}]), 1) << op_class;
    if (std::string(op_class) != "optimizer") {
      EXPECT_EQ((fractions[{op_class, v1::BFLOAT16}]), 1) << op_class;
    }
  }
  EXPECT_EQ(fractions.size(), 11u) << "parameters are updated in fp32 alone";

  device.set_memory_bandwidth_bytes_per_second(1e18);
  ASSERT_EQ(MeasureEfficiencies(2, "by a test", &device), absl::OkStatus());
  for (const auto& efficiency : device.efficiencies()) {
    EXPECT_GT(efficiency.fraction(), 0) << efficiency.op_class();
    EXPECT_LT(efficiency.fraction(), 1e-3) << efficiency.op_class();
  }
  EXPECT_TRUE(RooflineModel::Create(device).ok());
}

}  // namespace
}  // namespace legoai::sim
