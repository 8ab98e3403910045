// Checks of this machine before it trains, each part in a process of legoai-trainer (worker/train/machine_check.h), which is
// killed if it does not end in time: the disk of the runs, each slot's device, and then, among the slots that have passed, what
// connects them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "core/process/other_user.h"
#include "proto/legoai/v1/machine_check.pb.h"

namespace legoai::agent {

struct CheckPlan {
  std::string trainer;  // path of legoai-trainer
  std::string runs;     // the folder
  std::optional<launch::OtherUser> user = std::nullopt;  // as whom the processes run; unset: as this one
  std::string worker;   // "workers/a": agents that share the folder do not meet there
  std::vector<int64_t> slots;
  std::vector<int> processors = {};    // of each of them; empty: their processes are pinned to none
  std::vector<std::string> gpus = {};  // of each of them, UUIDs; empty: they are processors
  int64_t threads = 1;            // of each process
  absl::Duration limit;           // for disk and devices, and once more for what connects them
};

// Blocks; to be called on a thread that lives as long, since its processes die with it. Polls `given_up`. The results: of the
// disk, of the slots ascending, of their pairs. Nothing if it was given up. Without number.
std::optional<v1::MachineCheck> CheckTheMachine(const CheckPlan& plan, const std::function<bool()>& given_up);

// What the results mean, for people. Thread-safety: pure functions.

// By slot why it must get nothing new: its device has failed, or it is to blame for pairs that did (worker/launch/check_pairs.h).
std::map<int64_t, std::string> FaultsOf(const v1::MachineCheck& check);
// The slots that have passed: their devices were checked, and they have no such fault.
std::set<int64_t> PassedSlots(const v1::MachineCheck& check);
// Why the worker must get nothing new; empty: it may.
std::string FaultOfDisk(const v1::MachineCheck& check);

}  // namespace legoai::agent
