// What operators give otherwise on a GPU than a Trace says, which has the results of the CPU's kernels, strides included
// (worker/graph/fake/fake_device.h). Of the operators of our models CUDA's kernels give the same but for what only their own
// gradients read: memory-efficient attention (fp32) pads the log-sum-exp to a multiple of 32 tokens, flash attention lays it
// otherwise, and layer norm keeps mean and rstd of 16-bit inputs in fp32. simulator/capture/cuda_results_test.cc compares this
// with PyTorch 2.11's shape functions for its CUDA kernels. Pure functions.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "core/trace/effects.h"
#include "core/trace/trace.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::graph {

// The result at a position, as a GPU gives it; nothing: as the Trace says.
std::optional<Geometry> ResultOnGpu(const InstructionView& op, int place);

// A Trace of one level as a program for a device: what executes it finds the tensors that the device's operators give. Errors:
// Unimplemented where something else than the gradient's operator reads them in its own way.
absl::StatusOr<Trace> ProgramFor(v1::DeviceKind kind, Trace trace);

}  // namespace legoai::graph
