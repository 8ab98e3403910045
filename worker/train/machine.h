// What a trainer process runs on: its device, the runtime over all ranks, the flight recorder, the memory counter.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
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
  // Opens only the device. Call it once in a process, before the first tensor. Errors: FieldError for a missing device; of "gpu"
  // for a GPU that CUDA does not show this process.
  static absl::StatusOr<std::unique_ptr<Machine>> Open(const v1::Start& start);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Creates this rank's flight ring; call it before Connect(). ResourceExhausted: the disk is full.
  absl::Status MakeRecorder(const v1::Start& start, const parallel::ResolvedRecipe& resolved);

  // Connects to the other ranks and makes the runtime current for the rest of this object's lifetime. `say` hears what a log
  // should say of how they are connected.
  absl::Status Connect(const v1::Start& start, const parallel::ResolvedRecipe& resolved,
                       const std::function<void(const std::string&)>& say);

  c10::Device device() const { return device_; }
  comm::Runtime& runtime() { return *runtime_; }
  // Of the device; after Connect().
  comm::StepTimeline& timeline() { return *timeline_; }
  // The most bytes that tensors on the device held since the start.
  int64_t PeakMemoryBytes() const;
  // Maximum over all ranks, for small integers; a collective and a barrier.
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

// The communication that this rank waits in, from its flight ring: "gloo:all_gather of group dp_shard"; empty: none. From any
// thread.
std::string CommunicationOf(const std::string& run_directory, int64_t rank);

}  // namespace legoai::train
