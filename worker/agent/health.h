// What is wrong with this machine's slots, and what its last check has found: for the server, and for the slots themselves,
// which give no faulty one away. Thread-safe; says in the log what comes and goes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/process/mutex.h"
#include "proto/legoai/v1/machine_check.pb.h"
#include "proto/legoai/v1/worker.pb.h"
#include "worker/agent/attempt_log.h"
#include "worker/agent/slots.h"

namespace legoai::agent {

class Health {
 public:
  // `worker`: of its slots' devices. `changed` is called after each change, on the thread that made it. Both references outlive
  // it.
  Health(const v1::Worker& worker, Slots& slots, const JsonLog& log, std::function<void()> changed);

  // A check is under way.
  void BeginCheck();
  // It has ended with this for these slots, or, without a result, was given up. Its number is given here. `takes_back`: an
  // operator has asked for it, and Xids that came before it are no longer held against slots that have passed.
  void EndCheck(const std::vector<int64_t>& slots, bool takes_back, std::optional<v1::MachineCheck> check);
  // The slot has this fault, or, with an empty reason, has it no longer.
  void Set(int64_t slot, v1::FaultCause cause, const std::string& reason);

  v1::WorkerHealth Get() const;

 private:
  using Key = std::pair<int64_t, v1::FaultCause>;  // slot and cause

  void SetLocked(int64_t slot, v1::FaultCause cause, const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeCheck(const std::vector<int64_t>& slots, bool takes_back, v1::MachineCheck check)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeBackXid(int64_t slot, int64_t begin_us) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::map<int64_t, std::string> FaultySlots() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell();
  std::string NameOf(int64_t slot) const;

  const v1::Worker worker_;
  Slots& slots_;
  const JsonLog& log_;
  const std::function<void()> changed_;
  mutable Mutex mutex_;
  bool checking_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<Key, v1::SlotFault> faults_ ABSL_GUARDED_BY(mutex_);
  std::string fault_ ABSL_GUARDED_BY(mutex_);  // of the whole worker
  int64_t checks_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<v1::MachineCheck> check_ ABSL_GUARDED_BY(mutex_);  // the last
};

}  // namespace legoai::agent
