// Watches whether the slots' GPUs are sound, on a thread of its own, since a driver may be slow to answer: by Xid events, and
// by what the cards say of themselves every two seconds. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "core/hardware/gpu_health.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/worker.pb.h"
#include "worker/agent/attempt_log.h"
#include "worker/agent/health.h"

namespace legoai::agent {

class GpuWatch {
 public:
  // `worker`: of its slots' devices; without any there is nothing to watch. Both references outlive it.
  GpuWatch(const v1::Worker& worker, Health& health, const JsonLog& log);
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  // An operator has had the slot checked, and it has passed: the ECC errors until now are no longer held against it.
  void TakeBack(int64_t slot);

 private:
  void Work();
  bool IsOver(absl::Duration wait);
  bool Read(const sim::GpuHealthReader& reader);  // whether a card is lost that was not
  void TellOfXid(const sim::XidEvent& event);

  const std::string worker_;        // as `lego` takes it
  const std::vector<int> indices_;  // of NVML, by slot
  Health& health_;
  const JsonLog& log_;
  std::vector<bool> lost_;  // when it was read last, by slot; of the thread alone
  Mutex mutex_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  Condition ended_;
  std::vector<int64_t> ecc_errors_ ABSL_GUARDED_BY(mutex_);        // as read last, by slot
  std::vector<int64_t> known_ecc_errors_ ABSL_GUARDED_BY(mutex_);  // not held against it
  std::thread thread_;                                             // last: it uses the rest
};

}  // namespace legoai::agent
