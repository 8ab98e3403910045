// The slots of this worker: each trains one rank, on a processor of its own where there are enough, and on a GPU of its own where
// the worker has GPUs. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/hardware.pb.h"
#include "proto/legoai/v1/worker.pb.h"

namespace legoai::agent {

class Slots {
 public:
  // Slot s is on the (s mod n)-th of n `processors` (launch::AllowedCpus), of which there must be one, and on the s-th of `gpus`
  // (UUIDs, at least one for each slot) if there are any.
  Slots(int64_t count, std::vector<int> processors, std::vector<std::string> gpus = {});

  // Takes `count` slots, waiting until as many are free: an attempt whose trainers are just being killed still holds its own.
  // Returns them ascending. Errors: FieldError (placement.slots) for more than there are, or none; Cancelled: `given_up` says so.
  absl::StatusOr<std::vector<int64_t>> Take(int64_t count, const std::function<bool()>& given_up);
  void Give(const std::vector<int64_t>& slots);
  // Asks every waiting `given_up` again.
  void RecheckWaiting();

  // Where the ranks of an attempt that has these slots run, in the order of the slots.
  std::vector<int> ProcessorsOf(const std::vector<int64_t>& slots) const;
  // On which GPUs: UUIDs; none where the worker has none.
  std::vector<std::string> GpusOf(const std::vector<int64_t>& slots) const;
  int64_t count() const { return count_; }
  int64_t free() const;

 private:
  int64_t FreeLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t count_;
  const std::vector<int> processors_;
  const std::vector<std::string> gpus_;
  mutable Mutex mutex_;
  Condition changed_;
  std::vector<bool> taken_ ABSL_GUARDED_BY(mutex_);
};

// What the slots of this machine train on: processors or GPUs. Thread-safety: reads of the machine and its
// environment.
struct SlotDevices {
  v1::Device device;                 // of one slot; of GPUs the catalog's, or that of the file, with the memory that they have
  std::vector<v1::SlotDevice> gpus;  // in the order of slots; none where slots are processors
  std::string reason;                // in a few words, for the log: "GPUs by --device=auto: 4 NVIDIA H200, driver 580.65.06"
};

// `wish` is "auto", "cpu" or "cuda". auto: what `device_file` is of; without one GPUs where NVML shows any, else processors.
// `device_file` empty: of processors as they were measured, or the catalog's; of GPUs the catalog's.
// Errors: FieldError of --device, --device_file, "device" (no GPU; a card that the catalog does not know), CUDA_VISIBLE_DEVICES
// (cards of different kinds). Unavailable: there are GPUs, and they fail.
absl::StatusOr<SlotDevices> FindSlotDevices(const std::string& wish, const std::string& device_file);

}  // namespace legoai::agent
