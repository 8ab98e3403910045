// Grid points on a device: their facts by simulator/cost, found on the fake device, and their calls on a real one.
//
// Not thread-safe: one fake device at a time in a process. Bytes, seconds.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/operators/op_facts.h"
#include "simulator/measure/operator_grid.h"

namespace legoai::sim {

struct PointFacts {
  OpFacts facts;             // as for the same call in a captured step
  int64_t tensor_bytes = 0;  // of arguments and results, including those of `before`
};

// Errors: Internal, naming the operator, for a call that its schema or Meta kernel refuses; NotFound for one that
// operator_table.h does not know.
absl::StatusOr<PointFacts> FactsOfPoint(const GridPoint& point);

// A point's tensors on a device, ready for repeated calls.
class PointCall {
 public:
  // Creates and fills the tensors and runs `before`. Errors: ResourceExhausted if they do not fit; Internal.
  static absl::StatusOr<std::unique_ptr<PointCall>> Create(const GridPoint& point, c10::Device device);
  ~PointCall();
  // Enqueues the call once and drops its results.
  absl::Status Run();

 private:
  PointCall(const c10::OperatorHandle& op, torch::jit::Stack arguments);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace legoai::sim
