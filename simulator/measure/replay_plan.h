// What replaying captured steps on this machine will take, told before it is begun, and how often they are replayed.
//
// Predictions rest on the speed of this CPU's cores as just measured (core_processes.h): they are for people who wait, no step time
// is made of them. Pure functions. Units: seconds.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/dtype.pb.h"
#include "proto/legoai/v1/sim.pb.h"
#include "simulator/engine/lower_trace.h"
#include "simulator/measure/core_processes.h"
#include "simulator/measure/step_replay.h"

namespace legoai::sim {

// All replays should take no longer than this; one that is to count needs another before it.
inline constexpr double kReplaySeconds = 120;
// Beyond this the benchmark is refused: then single operators take minutes, in which nothing can be told.
inline constexpr double kMostReplaySeconds = 600;

// Predicted seconds by instruction of one step.
absl::StatusOr<std::vector<double>> PredictSeconds(const graph::Trace& trace, const CoreSpeed& speed);

// In which type most of the steps' matrix products are computed.
absl::StatusOr<v1::DType> ProductDtype(const std::vector<StageTrace>& stages);

// As many replays as fit into kReplaySeconds, of 2 at least. Errors: FieldError of --benchmark, with cause and remedy, where 2
// take longer than kMostReplaySeconds.
absl::StatusOr<Replays> PlanReplays(double seconds_of_one, const CoreSpeed& speed);

// What is done, for whoever waits: how often, in which type, and how much slower that is than float32 here, where it is.
std::string ReplayText(const Replays& replays, const CoreSpeed& speed);

// By stage, what PredictSeconds gives.
using PredictedStages = std::vector<std::vector<double>>;

// The state of replays, stage by stage, of which `done` instructions of all were carried out. At first what remains is what was
// predicted; then that gives way to what it took.
v1::SimProgress ReplayProgress(const std::string& text, const Replays& replays, const PredictedStages& predicted, int64_t done,
                               double elapsed_seconds);

}  // namespace legoai::sim
