// Where the time of a step went: its phases, and what its communication took and left the device idle for. Torch-free.
//
// Exposed is the part of a communication, from its start to its end, in which the compute stream waits: for an event of another
// stream, in a collective of its own, or at the end of the step. On a CPU that is all the time in which nothing is computed; on a
// GPU, time in which the host has not yet said what to compute next is not counted. Of a message the time counts in which its
// receiver waits for the sender: a pipeline's bubble shows there. Groups of one rank do not communicate.
//
// Thread-safety: values and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/mesh/mesh.h"
#include "proto/legoai/v1/metrics.pb.h"
#include "worker/comm/step_timeline.h"

namespace legoai::train {

// Sums over steps, in nanoseconds.
struct StepBreakdown {
  struct Collective {
    int64_t count = 0, ns = 0, exposed_ns = 0;
  };
  int64_t steps = 0;
  int64_t step_ns = 0, data_ns = 0;  // as the host's clock has them
  int64_t forward_ns = 0, backward_ns = 0, optimizer_ns = 0;
  int64_t exposed_ns = 0;                                               // of all communication, what overlaps counted once
  std::map<std::pair<std::string, std::string>, Collective> collectives;  // by kind and group

  void Add(const StepBreakdown& other);
  // Means over the steps; all zero where there are none.
  v1::RankMetrics Means(int64_t rank) const;
};

// Of one step, without step_ns and data_ns, which are not of the device.
StepBreakdown BreakdownOf(const comm::StepTimes& times, const std::vector<mesh::Group>& groups);

}  // namespace legoai::train
