// What the results of an operator take on the device that a step is simulated for.
//
// A Trace says what the CPU's kernels give, strides included (worker/graph/fake/fake_device.h). Of the operators of our models
// CUDA's kernels give as many bytes, but for two: memory-efficient attention (fp32) pads the log-sum-exp to a multiple of 32
// tokens, and layer norm keeps mean and rstd of 16-bit inputs in fp32. Compared with PyTorch 2.11's own account of its CUDA
// kernels in simulator/capture/cuda_results_test.cc. Torch-free. Thread-safety: const.
#pragma once

#include <cstdint>

#include "core/trace/instruction_view.h"
#include "proto/legoai/v1/hardware.pb.h"
#include "simulator/cost/operator_table.h"

namespace legoai::sim {

// Bytes of the new storage of the result at a place, `recorded` of them in the Trace. `row` is the operator's.
int64_t ResultBytes(const graph::InstructionView& op, const OperatorRow& row, int place, int64_t recorded, v1::DeviceKind kind);

}  // namespace legoai::sim
