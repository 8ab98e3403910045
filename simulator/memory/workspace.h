// Temporary memory that an operator allocates and frees inside its kernel, which no Trace shows.
//
// Each operator's rule is in core/operators/operator_table.h, "none" included. The rules for CPU follow what LibTorch 2.11
// requests from its allocator; those for CUDA what its kernels are documented to take (cuBLAS workspaces are part of a device's
// reserve). Thread-safety: const.
#pragma once

#include <cstdint>

#include "core/operators/operator_table.h"
#include "core/trace/effects.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::sim {

struct WorkspaceContext {
  v1::DeviceKind kind = v1::CUDA;
  int64_t threads = 1;          // of a CPU rank
  bool onednn_bfloat16 = true;  // of a CPU: comm::OneDnnComputesBfloat16() where the ranks run
};

// Bytes, unrounded. `row` is the operator's.
int64_t WorkspaceBytes(const graph::InstructionView& op, const OperatorRow& row, const WorkspaceContext& context);

}  // namespace legoai::sim
