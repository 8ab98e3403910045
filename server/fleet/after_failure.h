// What becomes of a job whose attempt has failed, been lost, or was given up: it restarts, at once or later, or has failed.
// gRPC-free. Thread-safety: functions of the transaction that is given.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "proto/legoai/v1/job.pb.h"
#include "server/fleet/failure_policy.h"
#include "server/fleet/resume_point.h"
#include "server/store/store.h"

namespace legoai::server {

// Moves `job` on, whose latest attempt is stored as it has ended, with `error`. One that was asked to end is cancelled instead.
absl::Status AfterFailure(store::Transaction& transaction, v1::Job* job, FailureCause cause, const absl::Status& error,
                          int64_t now_us);

// Where `point` has no whole checkpoint: `job` has failed, with `reason` before what is said of them where it is not empty.
absl::Status FailAsNoneIsWhole(store::Transaction& transaction, v1::Job* job, const ResumePoint& point, std::string_view reason,
                               int64_t now_us);

}  // namespace legoai::server
