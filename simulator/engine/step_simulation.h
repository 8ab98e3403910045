// How long a training step takes and where the time goes, from Traces, cost models and a cluster.
//
// A rank's step is split without gaps or overlaps: at every moment either an operator of its compute stream runs (compute, or
// optimizer), or that stream is idle: for communication of this rank (exposed communication, collectives on the compute stream
// included), for the host to dispatch (launch), or for another stage (bubble). The breakdown is the mean over the stages, so its
// parts add up to the step time. For equal stages without communication the bubble is (p - 1)/(m + p - 1) of the step.
//
// Thread-safety: pure functions. Units: seconds.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/cluster.pb.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "simulator/engine/lower_trace.h"
#include "simulator/engine/simulate.h"

namespace legoai::sim {

struct StepSimulation {
  double step_seconds = 0;
  v1::Breakdown breakdown;  // mean over the stages
  std::vector<v1::Breakdown> stages;
  std::map<std::string, double> module_compute_seconds;  // full module path -> operators of all stages, all phases
  std::vector<v1::CostModelShare> cost_models;           // shares add up to 1
  std::vector<TaskId> critical_path;                     // first to last: each one's end let the next start
  int64_t operators = 0;
  LoweredStep lowered;  // with `schedule`: when every task ran
  Schedule schedule;
};

// Errors: those of LowerTraces; FailedPrecondition for a deadlock, naming queues and what each waits for.
absl::StatusOr<StepSimulation> SimulateStep(const std::vector<StageTrace>& stages, const v1::Cluster& cluster,
                                            const ComputeCostModel& compute, const CollectiveCostModel& collectives);

// A lower bound of the simulated step: all the work of one rank's compute stream, each task alone, of the stage with the most.
// The work of one instance of each instruction. Errors: those of the cost models.
absl::StatusOr<double> LeastStepSeconds(const std::vector<StageTrace>& stages, const ComputeCostModel& compute,
                                        const CollectiveCostModel& collectives);

// By instruction: what it takes alone on the compute stream, collectives there included; 0 of all else, and of what never runs.
// Errors: those of the cost models.
absl::StatusOr<std::vector<double>> ComputeStreamSeconds(const StageTrace& stage, const ComputeCostModel& compute,
                                                         const CollectiveCostModel& collectives);

// Which operators and modules take the most time in a step, and its critical path: the details of `lego simulate`.
//
// Thread-safety: a pure function.

// Fills largest_operators, largest_modules and critical_path, for the stage with the most compute: its compute stream,
// collectives on it included, with the times that each takes alone. Errors: NotFound for an operator without a rule.
absl::Status AddStepDetails(const std::vector<StageTrace>& stages, const v1::Cluster& cluster, const StepSimulation& step,
                            v1::Estimate* estimate);

}  // namespace legoai::sim
