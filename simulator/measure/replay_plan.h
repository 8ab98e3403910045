// Predicts how long replaying captured steps on this machine will take, and decides how often they are replayed.
//
// Predictions use the speed of this CPU's cores as just measured (core_processes.h). They are only for progress reports; step
// times do not use them. Pure functions. Units: seconds.
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

// All replays should take no longer than this, and an eager recipe's own steps, which are as many, as long again; a timed replay
// needs a warm-up before it.
inline constexpr double kReplaySeconds = 120;
// Beyond this the benchmark is refused: single operators would take minutes without any progress report.
inline constexpr double kMostReplaySeconds = 600;

// Predicted seconds of one step, by instruction.
absl::StatusOr<std::vector<double>> PredictSeconds(const graph::Trace& trace, const CoreSpeed& speed);

// The type in which most of the steps' matrix products are computed.
absl::StatusOr<v1::DType> ProductDtype(const std::vector<StageTrace>& stages);

// As many replays as fit into kReplaySeconds, at least 2. Errors: FieldError of --benchmark, with cause and remedy, if 2 take
// longer than kMostReplaySeconds.
absl::StatusOr<Replays> PlanReplays(double seconds_of_one, const CoreSpeed& speed);

// A progress text: how many replays, in which type, and how much slower that is than float32 here, if it is.
std::string ReplayText(const Replays& replays, const CoreSpeed& speed);

// By stage: the result of PredictSeconds.
using PredictedStages = std::vector<std::vector<double>>;

// The progress of replays, stage by stage, after `done` instructions in all. The remaining time is at first the predicted one and
// is increasingly scaled by the time it really took.
v1::SimProgress ReplayProgress(const std::string& text, const Replays& replays, const PredictedStages& predicted, int64_t done,
                               double elapsed_seconds);

}  // namespace legoai::sim
