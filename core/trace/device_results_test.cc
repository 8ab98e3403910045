#include "core/trace/device_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/trace/testing/trace_builder.h"

namespace legoai::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Geometry& GeometryOf(const Trace& trace, TraceBuilder::Tensor tensor) {
  return trace.geometries[trace.values[tensor.value].geometry];
}

struct Norm {
  explicit Norm(v1::DType dtype) {
    const auto x = b.New(dtype, {3, 8}), weight = b.New(dtype, {8});
    out = b.New(dtype, {3, 8}), mean = b.New(dtype, {3, 1}), rstd = b.New(dtype, {3, 1});
    b.Op("aten::native_layer_norm", {x, std::vector<int64_t>{8}, weight, weight, 1e-5}, {out, mean, rstd});
  }
  TraceBuilder b;
  TraceBuilder::Tensor out, mean, rstd;
};

TEST(DeviceResults, StatisticsOf16BitsAreFloatsOnAGpu) {
  const Norm norm(v1::BFLOAT16);
  const Trace program = ProgramFor(v1::CUDA, norm.b.trace()).value();
  for (const auto& statistic : {norm.mean, norm.rstd}) {
    EXPECT_EQ(GeometryOf(program, statistic).dtype, v1::FLOAT32);
    EXPECT_THAT(GeometryOf(program, statistic).sizes, ElementsAre(3, 1));
    EXPECT_EQ(program.storages[program.values[statistic.value].storage].bytes, 12);
  }
  EXPECT_EQ(program.values[norm.mean.value].geometry, program.values[norm.rstd.value].geometry) << "equal ones are one";
  EXPECT_EQ(GeometryOf(program, norm.out).dtype, v1::BFLOAT16);
  EXPECT_EQ(ProgramFor(v1::CPU, norm.b.trace()).value().Dump(true), norm.b.trace().Dump(true));
  const Norm of_floats(v1::FLOAT32);
  EXPECT_EQ(ProgramFor(v1::CUDA, of_floats.b.trace()).value().Dump(true), of_floats.b.trace().Dump(true));
}

struct Attention {
  explicit Attention(v1::DType dtype) {
    const auto q = b.New(dtype, {2, 3, 40, 8});
    out = b.New(dtype, {2, 3, 40, 8});
    storage = b.AddStorage(2 * 3 * 40 * 4);
    lse = b.View(storage, v1::FLOAT32, {2, 3, 40}, {120, 1, 3});
    b.Op("lego::attention", {q, q, q, true, 0.5}, {out, lse});
  }
  TraceBuilder b;
  TraceBuilder::Tensor out, lse;
  uint32_t storage = 0;
};

TEST(DeviceResults, TheLogSumExpIsDenseAndPaddedForFloats) {
  for (const v1::DType dtype : {v1::FLOAT32, v1::BFLOAT16}) {
    const Attention attention(dtype);
    const int64_t tokens = dtype == v1::FLOAT32 ? 64 : 40;
    const Trace program = ProgramFor(v1::CUDA, attention.b.trace()).value();
    EXPECT_THAT(GeometryOf(program, attention.lse).sizes, ElementsAre(2, 3, tokens));
    EXPECT_THAT(GeometryOf(program, attention.lse).strides, ElementsAre(3 * tokens, tokens, 1));
    EXPECT_EQ(program.storages[attention.storage].bytes, 2 * 3 * tokens * 4);
  }
}

TEST(DeviceResults, WhatIsReadInPartsIsRefused) {
  Attention attention(v1::FLOAT32);
  const auto half = attention.b.View(attention.storage, v1::FLOAT32, {2, 3, 20}, {120, 1, 3});
  attention.b.Op("aten::exp", {half}, {attention.b.New(v1::FLOAT32, {2, 3, 20})});
  const absl::Status refused = ProgramFor(v1::CUDA, attention.b.trace()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(refused.message(), HasSubstr("lego::attention"));
  EXPECT_TRUE(ProgramFor(v1::CPU, attention.b.trace()).ok());
}

}  // namespace
}  // namespace legoai::graph
