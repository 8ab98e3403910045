// What a program for a GPU must know of results before passes rewrite it. A Trace has the results of the CPU's kernels
// (worker/graph/fake/fake_device.h), and what CUDA's give otherwise goes from an operator to its own gradient as it is
// (worker/graph/executor.cc). But layer norm and its gradient may become parts of fused kernels, alone or both, and mean and rstd
// of 16-bit inputs, which CUDA keeps in fp32, must then be of one type for whoever writes and reads them. And aten::roll, whose
// result others read element by element, keeps its input's strides on CPU and is row-major on CUDA (PyTorch 2.11,
// ATen/native/cuda/TensorTransformations.cu). Pure function.
#pragma once

#include "core/trace/trace.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::graph {

// The Trace with layer norm's statistics and the results of aten::roll as the device has them.
Trace ProgramFor(v1::DeviceKind kind, Trace trace);

}  // namespace legoai::graph
