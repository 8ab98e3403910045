// Jobs in words and tables, for people. Thread-safety: pure functions.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <optional>
#include <string>

#include "proto/legoai/v1/control_plane.pb.h"
#include "proto/legoai/v1/job.pb.h"
#include "server/cli/output.h"

namespace legoai::cli {

// In the time zone of the machine: "2026-11-21 20:52:25".
std::string TimeText(int64_t time_us);

// The state's name, coloured if the stream supports it: green for good states, red for failures, yellow for cancelled.
std::string StateText(v1::JobState state, Stream stream = Stream::kOut);

// Predicted and measured step time and peak memory; empty if nothing was measured.
std::string MeasuredText(const v1::Attempt& attempt);

// Where each rank's time went before the report, and how much of each collective no computation hid.
std::string RanksText(const v1::StepMetrics& report);

std::string JobsTable(const google::protobuf::RepeatedPtrField<v1::Job>& jobs);
// Everything about one, with its attempts.
std::string JobText(const v1::Job& job, const google::protobuf::RepeatedPtrField<v1::Attempt>& attempts);
// One line: its current activity, with a bar while it trains. `seconds_per_step`: used for the remaining time instead of the
// latest step.
std::string ProgressText(const v1::Job& job, const v1::PlanningProgress* planning,
                         std::optional<double> seconds_per_step = std::nullopt);
// How it ended, or its current state.
std::string OutcomeText(const v1::Job& job);
std::string TransitionText(const v1::Transition& transition);
std::string LogText(const v1::LogLine& line);

}  // namespace legoai::cli
