// What a trainer process runs on: its device, the runtime over all ranks, the flight recorder, the count of memory.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/legoai/v1/launch.pb.h"
#include "worker/comm/cuda_plugin.h"
#include "worker/comm/flight_recorder.h"
#include "worker/comm/runtime.h"
#include "worker/comm/step_timeline.h"

namespace legoai::train {

class Machine {
 public:
  // The device alone: before the first tensor, once in a process. Errors: FieldError for a device that is not here; of "gpu" for
  // a GPU that CUDA does not show this process.
  static absl::StatusOr<std::unique_ptr<Machine>> Open(const v1::Start& start);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Makes this rank's flight ring, before Connect(). ResourceExhausted: the disk is full.
  absl::Status MakeRecorder(const v1::Start& start, const parallel::ResolvedRecipe& resolved);

  // Meets the other ranks and makes the runtime current, from here to the end of this object.
  absl::Status Connect(const v1::Start& start, const parallel::ResolvedRecipe& resolved);

  c10::Device device() const { return device_; }
  comm::Runtime& runtime() { return *runtime_; }
  // Of the device; after Connect().
  comm::StepTimeline& timeline() { return *timeline_; }
  // The most bytes that tensors on the device held since the start.
  int64_t PeakMemoryBytes() const;
  // Largest value over all ranks, for small whole numbers; all ranks call it at the same place. Also a barrier.
  absl::StatusOr<int64_t> Max(int64_t value);

 private:
  explicit Machine(c10::Device device) : device_(device) {}

  const c10::Device device_;
  const comm::CudaPlugin* plugin_ = nullptr;  // null on CPU
  std::unique_ptr<comm::FlightRecorder> recorder_;
  std::unique_ptr<comm::StepTimeline> timeline_;  // the streams write into it
  std::unique_ptr<comm::Runtime> runtime_;
  std::unique_ptr<comm::RuntimeScope> scope_;
};

// The communication that this rank waits in, as its flight ring says, "gloo:all_gather of group dp_shard"; empty: in none. From
// any thread.
std::string CommunicationOf(const std::string& run_directory, int64_t rank);

}  // namespace legoai::train
