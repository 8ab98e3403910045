// A closed-form step time, to order recipes before capture: an estimate, not a prediction (every reported result comes from a
// capture). Matrix products and attention at the device's efficiencies, a rough count of memory traffic, collectives by
// collective_cost.h with the overlap that the schedule allows, the pipeline's bubble, the host's dispatch. Of a calibrated device
// the efficiencies are those of classes of operators; the curves of single ones are the simulator's.
//
// Thread-safety: a pure function. Units: seconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/cluster.pb.h"
#include "simulator/cost/collective_cost.h"
#include "simulator/symbolic/stage_sizes.h"

namespace legoai::sim {

// The load of each kind of communication on the links of a cluster in a step, to find the bottleneck link.
//
// Thread-safety: pure functions. Units: bytes, seconds.

// Kinds of communication, by parallel dimension.
enum class LinkUse : uint8_t { kTensor, kContext, kShard, kReplicate, kPipeline };
inline constexpr size_t kLinkUses = 5;

struct LinkLoad {
  int tier = -1;                // of Cluster.tiers, the one that takes longest; -1: nothing is sent
  double bytes = 0;             // that one device's link of this tier carries each way
  double seconds = 0;           // of the collectives or messages, one after the other
  double bytes_per_second = 0;  // that large messages reach on this link
  // Sharding's gathers and reductions, the replicas' reductions, and keys and values that rotate; the others are waited for.
  bool runs_beside_compute = false;
};

using LinkLoads = std::array<LinkLoad, kLinkUses>;  // by LinkUse

// The bottleneck of a ring over `line` in which each rank passes on `bytes`: the ranks of a unit share its outgoing link, each
// with its own adapter. `seconds` is not set. Every unit is assumed to hold as many ranks of the line as that of its first rank.
LinkLoad NarrowestLink(const v1::Cluster& cluster, const mesh::RankLine& line, double bytes);

struct RooflineEstimate {
  double step_seconds = 0;
  double compute_seconds = 0;        // of the slowest stage, all microbatches
  double communication_seconds = 0;  // exposed
  double bubble_seconds = 0;
  double optimizer_seconds = 0;
  LinkLoads loads;  // each of the stage where it is largest, exposed or not
};

// Errors: those of the cost models (a device without peaks or efficiencies, a world larger than the cluster).
absl::StatusOr<RooflineEstimate> EstimateStep(const parallel::ResolvedRecipe& resolved, const v1::Cluster& cluster);

}  // namespace legoai::sim
