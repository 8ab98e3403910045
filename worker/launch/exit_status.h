// Failures as they cross between processes of a job: a Status in the message Exit and back. Thread-safety: pure functions.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "proto/legoai/v1/launch.pb.h"

namespace legoai::launch {

// `status` is the reason of a failure, and OK for any other cause; its FieldViolation and a checkpoint's damage are kept.
v1::Exit MakeExit(v1::Exit::Cause cause, int64_t step, const absl::Status& status);

// The reason of a failure, with its FieldViolation and damage.
absl::Status ExitStatus(const v1::Exit& exit);

}  // namespace legoai::launch
