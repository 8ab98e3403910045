// Describes this machine for the server. Thread-safety: reads of the machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/worker.pb.h"

namespace legoai::agent {

struct MachineOptions {
  std::string name;  // empty: the host's
  std::string pool;
  std::optional<int64_t> slots = std::nullopt;  // unset: one per GPU or physical core
  std::string device = "auto";                  // or "cpu", "cuda" (slots.h)
  std::string device_file;                      // empty: as slots.h says
};

struct ThisWorker {
  v1::Worker worker;          // all fields that the agent sets, with an `instance` unique to this process
  std::string device_reason;  // why its slots are GPUs or processors
};

// Errors: FieldError of an option; those of FindSlotDevices.
absl::StatusOr<ThisWorker> ThisMachine(const MachineOptions& options);

// Whether this machine's own device file exists.
bool HasBeenMeasured();

// How much of this machine is in use, for heartbeats: sampled by a separate thread, because a driver may be slow to answer and a
// heartbeat must not wait for it. Thread-safe.
class UseWatch {
 public:
  // `gpus`: NVML indices of the slots' cards; none if slots are processors. A card that fails is not reported.
  UseWatch(std::vector<int> gpus, absl::Duration interval);
  ~UseWatch();
  UseWatch(const UseWatch&) = delete;
  UseWatch& operator=(const UseWatch&) = delete;

  // The last sample; nothing before the first, or if the last one is outdated because a driver does not answer. The processors'
  // share covers the time since the previous sample.
  std::optional<v1::WorkerUse> Latest() const;

 private:
  void Work();

  const std::vector<int> gpus_;
  const absl::Duration interval_;
  mutable Mutex mutex_;
  Condition ended_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<v1::WorkerUse> latest_ ABSL_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point looked_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses the rest
};

}  // namespace legoai::agent
