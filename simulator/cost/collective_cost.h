// Times of collectives and messages over the tiers of a cluster, from an alpha-beta model and step counts.
//
// Symbols: P ranks in the group, N nodes that they span, m = P / N ranks in a node; l_C, l_T latency of a hop inside and between
// nodes; B_C, B_T bandwidth of a device's link inside and of a device's network adapter between (data sheet times efficiency); S
// bytes of the whole tensor (all-gather: of the output, reduce-scatter: of the input). One adapter for each device is assumed: a
// group with m ranks in a node runs m rings, each through its own adapter, so nodes are joined by m B_T, and groups of the other
// ranks of the same nodes (2-D meshes: "strided" groups) do not share adapters with it. More than two tiers work likewise. If a
// node has no switch but a link between every two devices (AMD's Infinity Fabric, link type "xgmi3"), B_C is that of the links
// that a group uses: m - 1 of a device's seven, and one of them for a message.
//
// By counting the steps and hops of each algorithm (rings and trees: Thakur et al. 2005; double trees: Sanders et al. 2009):
// - ring all-gather, reduce-scatter: P - 1 steps, in each of which every link carries S / P. A block passes P - 1 consecutive
//   hops, at worst all but one of the cheapest: T = sum of hop latencies - cheapest + (P - 1)/P S / B, with B the slowest of
//   B_C and m B_T, since all links work at once.
// - ring all-reduce: a reduce-scatter and an all-gather.
// - tree all-reduce (a double binary tree across nodes, a chain inside): up and down ceil(log2 N) hops between and m - 1 inside;
//   each tree carries half of S; a node is inner in one tree and a leaf in the other, so it sends (and receives) up S/2 twice and
//   down to two children S/2: 2 S over m B_T (less for up to four nodes); inside, a link carries S up and S down, less the head's
//   share: 2 S (m - 1)/m over B_C. Both parts are pipelined: the slower counts.
// - all-reduce is the faster of ring and tree, as NCCL chooses; Gloo has the ring only.
// - all-to-all: P - 1 pairwise exchanges of S / P. Broadcast: a chain, pipelined. Send: one hop.
// - rotation: each rank sends S to the next, all at once, so the slowest of these hops; between nodes it has one adapter.
// - rotation of tensor parallel on GPUs that NVLink joins on one host, which goes through symmetric memory and not through NCCL
//   (worker/comm/cuda/symmetric_ring.h): the hop, and behind its last piece the copy out of the slot within the device, two
//   times the piece over its memory's bandwidth. l_C stays: it is NCCL's for a step of its protocol LL128, a store to the peer's
//   memory that the peer looks for, and so is the counter of a slot. No multiprocessor is taken.
// Left out: NVLink SHARP, protocol switches at small sizes, stragglers.
//
// Thread-safety: const after construction. Units: seconds, bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/trace/effects.h"
#include "proto/legoai/v1/cluster.pb.h"

namespace legoai::sim {

using graph::Effect;

enum class AllReduceAlgorithm : uint8_t { kFastest, kRing, kTree };

struct CollectiveCall {
  Effect kind = Effect::kAllReduce;
  int64_t bytes = 0;  // S
  int64_t group = 0;  // index into Trace.groups
  int64_t peer = -1;  // of messages: index in the group
};

// Parses a collective's or message's instruction. Errors: NotFound for any other operator, InvalidArgument if operands are
// missing or the group is unknown.
absl::StatusOr<CollectiveCall> ParseCollective(const graph::InstructionView& op);

// The most that the last piece of a rotation through symmetric memory has: a slot of worker/comm/symmetric_slots.h.
inline constexpr int64_t kLastPieceBytes = int64_t{16} << 20;

// The share of its link bandwidth that a device can use towards its node's other devices in a group with `ranks` ranks there: all
// of it behind a switch; in a mesh, which has a link to each other device, the links to those of the group.
double NodeBandwidthShare(const v1::Cluster& cluster, int64_t ranks);

class CollectiveCostModel {
 public:
  explicit CollectiveCostModel(const v1::Cluster& cluster);

  // Of a collective over `ranks` (rank r is device r of the cluster). A group of one copies within its device. Takes constant
  // time in the number of ranks if nodes and larger units hold multiples of the stride, except for an all-to-all. Errors:
  // InvalidArgument if a rank is outside the cluster.
  absl::StatusOr<double> Time(Effect kind, int64_t bytes, const mesh::RankLine& ranks,
                              AllReduceAlgorithm algorithm = AllReduceAlgorithm::kFastest) const;
  // The same of a group of a Trace, with what is said of tensor parallel's rotations above.
  absl::StatusOr<double> Time(Effect kind, int64_t bytes, const mesh::Group& group) const;
  // Whether rotations round it go through symmetric memory.
  bool RotatesThroughMemory(const mesh::Group& group) const;
  // One message between two ranks.
  absl::StatusOr<double> MessageTime(int64_t bytes, int64_t from, int64_t to) const;
  // The tier over which a group communicates: the outermost one that it spans; -1 for one rank.
  int TierOf(const mesh::RankLine& ranks) const;
  int TierOf(int64_t from, int64_t to) const;  // of a message

 private:
  struct Tier {
    int64_t group_size;
    double latency, bandwidth;
  };
  // How a group is spread over the tiers.
  struct Shape {
    int64_t ranks = 0;
    int tier = -1;                               // outermost one spanned
    std::vector<int64_t> units;                  // units[t]: groups of tier t that it spans
    double slowest = 0;                          // bytes per second that a ring sustains
    double hop_latencies = 0, cheapest_hop = 0;  // of the closed ring
    std::vector<int> tiers_with_hops;            // of the closed ring
    int64_t per_node = 1;                        // fewest ranks of the group in one node
  };
  // How many units of a tier a group spans, and the fewest of its ranks in one of them.
  struct Spread {
    int64_t units = 0, fewest = 0;
  };
  static Spread SpreadOf(const mesh::RankLine& line, int64_t unit_size);
  absl::StatusOr<Shape> ShapeOf(const mesh::RankLine& ranks) const;
  int TierBetween(int64_t a, int64_t b) const;
  double Ring(const Shape& shape, double bytes) const;
  double Tree(const Shape& shape, double bytes) const;
  double AllToAll(const mesh::RankLine& ranks, int64_t per_node, double bytes) const;
  double Rotation(const Shape& shape, double bytes) const;
  // What a device has towards the others of its node in a group with `ranks` ranks there.
  double NodeBandwidth(int64_t ranks) const;
  double LocalCopy(int64_t bytes) const;

  std::vector<Tier> tiers_;
  int64_t mesh_links_;  // of a device to the others of its node, one to each; 0: a switch joins them
  int64_t devices_;
  double launch_seconds_, memory_bandwidth_;
  bool has_tree_, has_symmetric_memory_;
};

}  // namespace legoai::sim
