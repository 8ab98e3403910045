// Rows for a store, as a service that has worked for a while would have them. The same for the same arguments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/legoai/v1/control_plane.pb.h"

namespace legoai::testing {

v1::PlanResult DemoPlan(int64_t slots);
v1::StepMetrics DemoMetrics(int64_t attempt, int64_t step);
std::vector<v1::Worker> DemoWorkers(const std::string& running_job);
// Of two ranks of which the second has not entered the last collective.
v1::FlightRecord DemoFlightRecord(int64_t ranks, int64_t time_us);
// Submitted `age_us` ago, in a state that follows from `index`.
v1::Job DemoJob(int64_t index, const std::string& id, int64_t now_us);

}  // namespace legoai::testing
