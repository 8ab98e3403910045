// The slots of this worker: each trains one rank, on its own processor if there are enough, and on its own GPU if the worker has
// GPUs. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/hardware.pb.h"
#include "proto/legoai/v1/worker.pb.h"

namespace legoai::agent {

class Slots {
 public:
  // Slot s uses the (s mod n)-th of n >= 1 `processors` (launch::AllowedCpus), and the s-th of `gpus` (UUIDs, at least one per
  // slot) if there are any.
  Slots(int64_t count, std::vector<int> processors, std::vector<std::string> gpus = {});

  // Takes `count` slots, waiting until that many are free: an attempt whose trainers are being killed still holds its slots.
  // Returns them ascending, none of them faulty. Errors: FieldError (placement.slots) for none, or more than there are;
  // Unavailable for more than are not faulty; Cancelled if `given_up` returns true.
  absl::StatusOr<std::vector<int64_t>> Take(int64_t count, const std::function<bool()>& given_up);
  // Takes all that are free, be they faulty or not.
  std::vector<int64_t> TakeFree();
  void Give(const std::vector<int64_t>& slots);
  // From now on these are faulty, for these reasons, and are not given away. Who has one keeps it.
  void SetFaults(std::map<int64_t, std::string> faults);
  // What is wrong with these; empty: nothing.
  std::string FaultsOf(const std::vector<int64_t>& slots) const;
  // Makes every waiter call its `given_up` again.
  void RecheckWaiting();

  // The processors of the ranks in these slots, in the order of the slots.
  std::vector<int> ProcessorsOf(const std::vector<int64_t>& slots) const;
  // Their GPUs: UUIDs; none if the worker has none.
  std::vector<std::string> GpusOf(const std::vector<int64_t>& slots) const;
  int64_t count() const { return count_; }
  int64_t free() const;  // and not faulty

 private:
  int64_t SoundLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsFreeLocked(int64_t slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t FreeLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t count_;
  const std::vector<int> processors_;
  const std::vector<std::string> gpus_;
  mutable Mutex mutex_;
  Condition changed_;
  std::vector<bool> taken_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, std::string> faults_ ABSL_GUARDED_BY(mutex_);  // why, by slot
};

// The devices of this machine's slots: processors or GPUs. Thread-safety: reads of the machine and its environment.
struct SlotDevices {
  v1::Device device;                 // of one slot; for GPUs from the catalog or the file, with their real memory size
  std::vector<v1::SlotDevice> gpus;  // in the order of slots; none if slots are processors
  std::string reason;                // for the log: "GPUs by --device=auto: 4 NVIDIA H200, driver 580.65.06"
};

// `wish` is "auto", "cpu" or "cuda". auto: the kind of `device_file`; without one GPUs if NVML finds any, else processors.
// `device_file` empty: for processors the measured device or the catalog's; for GPUs the catalog's. Errors: FieldError of
// --device, --device_file, "device" (no GPU; a card missing from the catalog), CUDA_VISIBLE_DEVICES (cards of different kinds).
// Unavailable: there are GPUs, but they fail.
absl::StatusOr<SlotDevices> FindSlotDevices(const std::string& wish, const std::string& device_file);

}  // namespace legoai::agent
