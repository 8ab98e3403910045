// Memory that an operator takes and gives back inside its own kernel, which no Trace shows.
//
// Which rule an operator has stands in simulator/cost/operator_table.h: every operator has one, "none" said explicitly. The rules
// for CPU follow what LibTorch 2.11 asks of its allocator; those for CUDA what its kernels are published to take (cuBLAS
// workspaces are part of a device's reserve). Thread-safety: const.
#pragma once

#include <cstdint>

#include "core/trace/effects.h"
#include "proto/legoai/v1/hardware.pb.h"
#include "simulator/cost/operator_table.h"

namespace legoai::sim {

struct WorkspaceContext {
  v1::DeviceKind kind = v1::CUDA;
  int64_t threads = 1;          // of a CPU rank
  bool onednn_bfloat16 = true;  // of a CPU: comm::OneDnnComputesBfloat16() where the ranks run
};

// Bytes, unrounded. `row` is the operator's.
int64_t WorkspaceBytes(const graph::InstructionView& op, const OperatorRow& row, const WorkspaceContext& context);

}  // namespace legoai::sim
