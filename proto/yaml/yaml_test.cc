#include "proto/yaml/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/hardware.pb.h"
#include "proto/legoai/v1/plan.pb.h"

namespace legoai {
namespace {

TEST(ToYaml, PrintsBlocks) {
  v1::Device device;
  device.set_type("h100");
  device.set_kind(v1::CUDA);
  device.set_kernel_launch_seconds(1e-05);
  for (const v1::DType dtype : {v1::BFLOAT16, v1::FLOAT32}) device.add_peak_flops()->set_dtype(dtype);
  device.add_sources("line\nbreak: \"x\"");
  EXPECT_THAT(ToYaml(device), testing::StartsWith(R"(type: "h100"
kind: "cuda"
memory_bytes: 0
memory_bandwidth_bytes_per_second: 0.0
peak_flops:
  - dtype: "bfloat16"
    flops_per_second: 0.0
  - dtype: "float32"
    flops_per_second: 0.0
efficiencies: []
kernel_launch_seconds: 1.0e-05
host_dispatch_seconds: 0.0
reserve_bytes: 0
reserve_source: ""
allocation_rounding_bytes: 0
sources:
  - "line\nbreak: \"x\""
)"));
}

TEST(ToYaml, QuotesKeysThatWouldBeOtherValues) {
  EXPECT_EQ(ToYaml(Tree{{"no", 1}, {"1F1B", 2}, {"a b", 3}, {"tp_divides-heads", nullptr}}),
            "\"no\": 1\n\"1F1B\": 2\n\"a b\": 3\ntp_divides-heads: null\n");
}

TEST(ToYaml, NestsListsAndEmptyThings) {
  EXPECT_EQ(ToYaml(Tree::parse(R"([[1,[2]],{"a":{"b":{}}}])")), "- - 1\n  - - 2\n- a:\n    b: {}\n");
  EXPECT_EQ(ToYaml(Tree::object()), "{}\n");
}

TEST(ToYaml, WritesNumbersThatAreNotFinite) {
  Tree tree;
  tree["a"] = std::numeric_limits<double>::quiet_NaN();
  tree["b"] = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(ToYaml(tree), "a: .nan\nb: -.inf\n");
}

}  // namespace
}  // namespace legoai
