#include "core/trace/device_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/trace/testing/trace_builder.h"

namespace legoai::graph {
namespace {

using ::testing::ElementsAre;

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
  const Trace program = ProgramFor(v1::CUDA, norm.b.trace());
  for (const auto& statistic : {norm.mean, norm.rstd}) {
    EXPECT_EQ(GeometryOf(program, statistic).dtype, v1::FLOAT32);
    EXPECT_THAT(GeometryOf(program, statistic).sizes, ElementsAre(3, 1));
    EXPECT_EQ(program.storages[program.values[statistic.value].storage].bytes, 12);
  }
  EXPECT_EQ(program.values[norm.mean.value].geometry, program.values[norm.rstd.value].geometry) << "equal ones are one";
  EXPECT_EQ(GeometryOf(program, norm.out).dtype, v1::BFLOAT16);
  EXPECT_EQ(ProgramFor(v1::CPU, norm.b.trace()).Dump(true), norm.b.trace().Dump(true));
  const Norm of_floats(v1::FLOAT32);
  EXPECT_EQ(ProgramFor(v1::CUDA, of_floats.b.trace()).Dump(true), of_floats.b.trace().Dump(true));
}

TEST(DeviceResults, ARollIsRowMajorOnAGpu) {
  TraceBuilder b;
  const auto x = b.View(b.AddStorage(3 * 8 * 4), v1::FLOAT32, {3, 8}, {1, 3});
  const auto rolled = b.View(b.AddStorage(3 * 8 * 4), v1::FLOAT32, {3, 8}, {1, 3});
  b.Op("aten::roll", {x, std::vector<int64_t>{4}, std::vector<int64_t>{1}}, {rolled});
  const Trace program = ProgramFor(v1::CUDA, b.trace());
  EXPECT_THAT(GeometryOf(program, rolled).strides, ElementsAre(8, 1));
  EXPECT_THAT(GeometryOf(program, x).strides, ElementsAre(1, 3));
  EXPECT_EQ(ProgramFor(v1::CPU, b.trace()).Dump(true), b.trace().Dump(true));
}

}  // namespace
}  // namespace legoai::graph
