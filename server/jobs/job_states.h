// The state machine of a job: which state may follow which. gRPC-free. Thread-safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/legoai/v1/job.pb.h"

namespace legoai::server {

// Succeeded, failed, cancelled: nothing follows.
bool IsFinal(v1::JobState state);
// Has slots, or may still have them: leased, starting, running, cancelling.
bool HoldsLease(v1::JobState state);
bool MayFollow(v1::JobState from, v1::JobState to);
std::vector<v1::JobState> ActiveStates();   // all that are not final
std::string StateText(v1::JobState state);  // "queued"

}  // namespace legoai::server
