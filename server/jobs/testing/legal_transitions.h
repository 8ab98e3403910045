// Which state of a job may follow which, written out a second time, so that tests do not ask the product what is right.
#pragma once

#include "proto/legoai/v1/job.pb.h"

namespace legoai::server {

// Rows: from; columns: to, both in the order of the enum from SUBMITTED on.
inline constexpr const char* kLegalTransitions[] = {
    // subm plan queu leas star runn rest cang succ fail canc
    " .    x    .    .    .    .    .    .    .    x    x ",  // submitted
    " x    .    x    .    .    .    x    .    .    x    x ",  // planning
    " .    x    .    x    .    .    .    .    .    x    x ",  // queued
    " .    .    x    .    x    x    x    x    x    x    . ",  // leased
    " .    .    x    .    .    x    x    x    x    x    . ",  // starting
    " .    .    x    .    .    .    x    x    x    x    . ",  // running
    " .    x    .    x    .    .    .    .    .    x    x ",  // restarting
    " .    .    .    .    .    .    .    .    x    x    x ",  // cancelling
    " .    .    .    .    .    .    .    .    .    .    . ",  // succeeded
    " .    .    .    .    .    .    .    .    .    .    . ",  // failed
    " .    .    .    .    .    .    .    .    .    .    . ",  // cancelled
};

inline bool IsLegal(v1::JobState from, v1::JobState to) {
  if (from < v1::SUBMITTED || to < v1::SUBMITTED) return false;
  return kLegalTransitions[from - v1::SUBMITTED][1 + 5 * (to - v1::SUBMITTED)] == 'x';
}

}  // namespace legoai::server
