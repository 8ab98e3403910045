// Automatic wrapping (Zhang et al. 2024, SimpleFSDP, section 3.3.2): which parameters share FSDP's collectives, so that these
// hide behind computation and the training step stays within memory. Algorithm 1 of the paper goes over the gathers of a forward
// or a backward in their order: one joins the bucket before it as long as the step under way hides the whole bucket.
//
// A step, here, is the computation with the parameters of one bucket. Beside it the next bucket is gathered, and in backward the
// gradients of the bucket before are reduced (core/trace/passes orders them so). Times and bytes come from whoever has a Trace
// and cost models; neither torch nor Traces are known here.
//
// Thread-safety: pure functions. Units: seconds, bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace legoai::planner {

// alpha + beta n of the paper.
struct LinkTime {
  double latency_seconds = 0, seconds_per_byte = 0;
  double Of(int64_t bytes) const { return latency_seconds + seconds_per_byte * static_cast<double>(bytes); }
};

// A module's own parameters, alone: what is measured of the step in which each is gathered right before its use.
struct WrapModule {
  std::string name;            // "layers.0.mlp.up_proj"
  int64_t gather_bytes = 0;    // of the whole parameters
  int64_t reduce_bytes = 0;    // of the whole gradients; 0 in a forward
  double compute_seconds = 0;  // T_ci: from its gather to the next one
  int64_t peak_bytes = 0;      // M_ci: the most that lives meanwhile, all of the step included
  int64_t held_bytes = 0;      // what a module takes beyond that while others of its bucket are computed with
};

// A forward or a backward, in the order of its gathers; each module once.
struct WrapPass {
  LinkTime gather, reduce;
  std::vector<WrapModule> modules;
};

using WrapBuckets = std::vector<std::vector<std::string>>;  // names of modules; each module of the pass in one

struct WrapLimits {
  int64_t memory_bytes = 0;  // M_max: what tensors of a device may take
  // Beyond the paper's time constraint: a bucket is filled up, hidden or not, while latency is a larger share of its time than
  // this. Where communication takes longer than computation no bucket hides, and only the number of latencies counts. 1: never.
  double latency_share = 1;
};

// Algorithm 1. A module that fits no constraint is a bucket of its own.
WrapBuckets WrapGreedily(const WrapPass& pass, const WrapLimits& limits);

// Each layer is a bucket, and each module outside of them, as one would list them by hand.
WrapBuckets WrapLayers(const WrapPass& pass);

// Of one rank's step.
struct WrapStage {
  WrapPass forward, backward;
};

// What to try as buckets of forward and backward alike, each once, with few names. The algorithm decides them apart: so there are
// those of the forward, those of the backward, and their common parts; each also with fuller buckets (latency_share); and one
// for each layer. Whoever asks simulates them and takes the best. A backward without gathers decides nothing. `stages`: of a
// pipeline; what several have is in the bucket of the first.
std::vector<WrapBuckets> ProposeBuckets(const std::vector<WrapStage>& stages, int64_t memory_bytes);

// Buckets of a forward, and of a backward where these are others. `backward` is empty where they are the same.
struct WrapPlan {
  WrapBuckets forward, backward;
  bool operator==(const WrapPlan&) const = default;
};
// Whether both join the same modules: a backward lists them the other way round.
bool JoinTheSame(const WrapBuckets& a, const WrapBuckets& b);

// What to try: buckets of both alike, and for each fullness what the algorithm makes of forward and backward, each for itself.
std::vector<WrapPlan> ProposePlans(const std::vector<WrapStage>& stages, int64_t memory_bytes);

// The same buckets with fewer names: "layers.0.mlp" where a bucket has all modules that any has below it.
WrapBuckets WithFewNames(const WrapBuckets& buckets);

}  // namespace legoai::planner
