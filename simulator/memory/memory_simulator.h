// Replays the storages of a Trace: live memory after every instruction, the peak, and its composition.
//
// External storages live from the start with their initial bytes; others from the first instruction that mentions them until they
// are freed. During an operator its workspace is live too (workspace.h). Thread-safety: pure functions. One pass over the
// instructions, constant time per operand.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/operators/operator_table.h"
#include "core/trace/effects.h"
#include "core/trace/instances.h"
#include "core/trace/trace.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::sim {

struct MemoryOptions {
  v1::DeviceKind kind = v1::CUDA;
  int64_t rounding_bytes = 512;  // of each storage, for peak_allocated_bytes
  int64_t threads = 1;           // of a CPU rank: workspaces
  bool onednn_bfloat16 = true;   // of a CPU: comm::OneDnnComputesBfloat16() where the ranks run
  bool timeline = false;
  bool live_bytes = true;
};

// Live bytes by graph::Category; workspace is last.
inline constexpr int kCategoryCount = static_cast<int>(graph::Category::kReduceScatterBuffer) + 1;
using CategoryBytes = std::array<int64_t, kCategoryCount + 1>;

struct TimelinePoint {
  uint32_t position = 0;  // after the instruction there (core/trace/instances.h); during it if it has workspace
  CategoryBytes bytes{};
};

struct MemoryProfile {
  int64_t start_bytes = 0;           // external storages before the first instruction
  int64_t peak_requested_bytes = 0;  // largest sum of live storages and workspace, unrounded
  int64_t peak_allocated_bytes = 0;  // the same with every storage rounded up; may be at another instruction
  v1::MemoryByCategory categories;   // at the requested peak; they add up to it
  uint32_t peak_position = 0;
  std::string peak_at;                  // "model.layers.3.mlp, backward"
  std::vector<int64_t> live_bytes;      // by position: after the instruction there, without workspace; unless asked not to
  std::vector<TimelinePoint> timeline;  // where it changed, if asked for
};

// Options of a device: its kind and rounding.
MemoryOptions MemoryOptionsOf(const v1::Device& device);

// Errors: NotFound for an operator without a row (operator_table.h); Internal if the Trace frees a storage that is not live.
absl::StatusOr<MemoryProfile> SimulateMemory(const graph::Trace& trace, const MemoryOptions& options);
// Of a Trace of two levels.
absl::StatusOr<MemoryProfile> SimulateMemory(const graph::Trace& trace, const graph::Instances& instances,
                                             const MemoryOptions& options);

v1::MemoryByCategory ToProto(const CategoryBytes& bytes);
int64_t Sum(const v1::MemoryByCategory& categories);

// Sizes of an operator's results on the simulated device.
//
// A Trace has the results of the CPU's kernels, strides included (worker/graph/fake/fake_device.h). For the operators of our
// models CUDA's kernels give the same sizes, with two exceptions: memory-efficient attention (fp32) pads the log-sum-exp to a
// multiple of 32 tokens, and layer norm keeps mean and rstd of 16-bit inputs in fp32. simulator/capture/cuda_results_test.cc
// compares this with PyTorch 2.11's shape functions for its CUDA kernels. Thread-safety: const.

// Bytes of the new storage of the result at position `place`, which has `recorded` bytes in the Trace. `row` is the operator's.
int64_t ResultBytes(const graph::InstructionView& op, const OperatorRow& row, int place, int64_t recorded, v1::DeviceKind kind);

}  // namespace legoai::sim
