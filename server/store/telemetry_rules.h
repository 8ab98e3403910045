// What is kept of an agent's reports, the same in every back end. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/metrics.pb.h"

namespace legoai::store {

// What the curve keeps of a report: of its rows of ranks the first alone, without collectives.
v1::StepMetrics CurveOf(const v1::StepMetrics& metrics);

// The steps of an attempt that no later attempt did again: from the first one that it reported to before the first one that a
// later attempt reported.
struct Stretch {
  int64_t attempt = 0;
  int64_t first_step = 0;
  int64_t until_step = std::numeric_limits<int64_t>::max();
};

// Sets until_step of all, of which attempt and first_step are set, ascending by attempt. Then they follow each other: an
// attempt's ends where or before a later one's begins.
void CutStretches(std::vector<Stretch>* stretches);

// Makes a job's log line `last` of all those up to it that were removed: it says so.
void SayRemoved(int64_t last, v1::LogLine* line);

}  // namespace legoai::store
