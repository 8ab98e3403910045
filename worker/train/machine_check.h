// What legoai-trainer finds of the machine that it is to train on: `legoai-trainer --check=FD`, a process for each part of a
// check, started by an agent (worker/agent/machine_checks.h). What a device or a disk does to it ends with it.
#pragma once

#include <cstdint>
#include <string>

#include "proto/legoai/v1/machine_check.pb.h"

namespace legoai::train {

// Reads a v1::CheckTask from the socket `fd`, answers with its results as v1::CheckResult, each as soon as it is known, and waits
// until the other end closes: rank 0 serves the others' rendezvous until then. Owns `fd`. To be called once in a process,
// before the first tensor. Returns the exit code of the process: 0, or 1 if the socket fails.
int RunCheck(int fd);

// The single checks. Blocking; a device that hangs never lets them return.

// Writes `bytes` to `file` of `folder`, makes them durable, reads them back from the disk, and removes the file.
v1::CheckResult CheckDisk(const std::string& folder, const std::string& file, int64_t bytes);

// Opens the task's device and checks it: memory is taken, written, copied there and back again, and a matrix product is
// compared with what the host's integers give. All numbers are small integers, so that every sum is exact in float32, whatever
// its order.
v1::CheckResult CheckDevice(const v1::CheckTask& task);

}  // namespace legoai::train
