// What a capture takes on CUDA, against PyTorch's own account of its CUDA kernels (testdata/record_cuda_results.py): geometries
// of everything that later operators read, and bytes of everything.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/trace/effects.h"
#include "simulator/memory/memory_simulator.h"
#include "worker/graph/fake/testing/capture_recorder.h"
#include "worker/model/ops.h"

namespace legoai::sim {
namespace {

using at::Tensor;
using nlohmann::json;

using Inputs = std::vector<Tensor>;

struct Snippet {
  std::function<Inputs()> inputs;
  std::function<Tensor(const Inputs&)> function;
  const char *forward, *backward;  // its operators
};

// [batch, heads, kv_heads, seq, head_dim]; inputs lie by sequence, as models make them.
Snippet Attention(const std::vector<int64_t>& n, at::TensorOptions options) {
  auto make = [n, options](int64_t heads) { return at::empty({n[0], n[3], heads, n[4]}, options); };
  return {[=] {
            return Inputs{make(n[1]), make(n[2]), make(n[2])};
          },
          [](const Inputs& x) {
            return model::AttentionFunction(x[0].transpose(1, 2), x[1].transpose(1, 2), x[2].transpose(1, 2), true, 0.3);
          },
          "lego::attention", "lego::attention_backward"};
}

// [batch, seq, dim]
Snippet LayerNorm(const std::vector<int64_t>& n, at::TensorOptions options) {
  return {[=] {
            return Inputs{at::empty({n[0], n[1], n[2]}, options), at::empty({n[2]}, options), at::empty({n[2]}, options)};
          },
          [=](const Inputs& x) { return at::layer_norm(x[0], {n[2]}, x[1], x[2]); }, "aten::native_layer_norm",
          "aten::native_layer_norm_backward"};
}

graph::Trace CaptureOf(const Snippet& snippet) {
  testing::CaptureRecorder recorder(/*real=*/false);
  const Inputs inputs = snippet.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    recorder.Input("x" + std::to_string(i), inputs[i].set_requires_grad(true), graph::Category::kInput);
  }
  recorder.SetRecording(true);
  snippet.function(inputs).sum().backward();
  recorder.SetRecording(false);
  return recorder.Finish().trace;
}

MemoryProfile ProfileOf(const graph::Trace& trace, v1::DeviceKind kind) {
  auto profile = SimulateMemory(trace, {.kind = kind, .rounding_bytes = 1, .threads = 1});
  EXPECT_TRUE(profile.ok()) << profile.status();
  return profile.ok() ? *profile : MemoryProfile();
}

size_t Find(const graph::Trace& trace, const std::string& name) {
  for (size_t i = 0; i < trace.instructions.size(); ++i) {
    if (trace.instructions[i].kind == graph::Instruction::Kind::kOperator && trace.OperatorName(trace.instructions[i]) == name)
      return i;
  }
  ADD_FAILURE() << name << " was not captured";
  return 0;
}

int64_t Born(const MemoryProfile& profile, size_t i) {
  return profile.live_bytes[i] - (i == 0 ? profile.start_bytes : profile.live_bytes[i - 1]);
}

int64_t Sum(const json& results) {
  int64_t bytes = 0;
  for (const json& result : results) bytes += result["bytes"].get<int64_t>();
  return bytes;
}

void ExpectGeometry(const graph::InstructionView& op, int place, const json& expected) {
  ASSERT_NE(op.Result(place), nullptr);
  const graph::Geometry& geometry = op.GeometryOf(*op.Result(place));
  EXPECT_EQ(v1::DType_Name(geometry.dtype), expected["dtype"].get<std::string>());
  EXPECT_EQ(geometry.sizes, expected["sizes"].get<std::vector<int64_t>>());
  EXPECT_EQ(geometry.strides, expected["strides"].get<std::vector<int64_t>>());
}

void Check(const json& expected) {
  SCOPED_TRACE(expected.dump());
  const auto sizes = expected["sizes"].get<std::vector<int64_t>>();
  const auto options = at::TensorOptions().dtype(expected["dtype"] == "FLOAT32" ? at::kFloat : at::kBFloat16);
  const Snippet snippet = expected["operator"] == "attention" ? Attention(sizes, options) : LayerNorm(sizes, options);
  const graph::Trace trace = CaptureOf(snippet);
  const size_t forward = Find(trace, snippet.forward), backward = Find(trace, snippet.backward);
  const MemoryProfile profile = ProfileOf(trace, v1::CUDA);
  EXPECT_EQ(Born(profile, forward), Sum(expected["results"]));
  EXPECT_EQ(Born(profile, backward), Sum(expected["gradients"]));
  // The others, statistics, go to the backward operator alone.
  ExpectGeometry(graph::InstructionView(trace, trace.instructions[forward]), 0, expected["results"][0]);
  for (int i = 0; i < 3; ++i) {
    ExpectGeometry(graph::InstructionView(trace, trace.instructions[backward]), i, expected["gradients"][i]);
  }
  // What the CPU takes is what the Trace says.
  int64_t recorded = 0;
  graph::InstructionView(trace, trace.instructions[forward]).ForEachResult([&](int, uint32_t value) {
    recorded += trace.storages[trace.values[value].storage].bytes;
  });
  EXPECT_EQ(Born(ProfileOf(trace, v1::CPU), forward), recorded);
}

TEST(CudaResultsTest, CapturesTakeWhatPyTorchSaysOfItsKernels) {
  std::ifstream file("simulator/capture/testdata/cuda_results.json");
  const json reference = json::parse(file);
  ASSERT_GE(reference["cases"].size(), 18u);
  for (const json& expected : reference["cases"]) Check(expected);
}

}  // namespace
}  // namespace legoai::sim
