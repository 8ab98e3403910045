#include "simulator/cost/collective_cost.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/operators/op_facts.h"
#include "proto/status.h"

namespace legoai::sim {
namespace {

// What the busiest node sends in a double binary tree of heap shape, in units of S: inner in one tree, leaf in the other.
double BusiestTreeNode(int64_t nodes) { return nodes <= 2 ? 1.0 : nodes <= 4 ? 1.5 : 2.0; }

// Links of a device whose bandwidths add up to the link's: AMD's boards of eight join each two of them. 0: a switch.
int64_t MeshLinks(const v1::Cluster& cluster) {
  return cluster.tiers_size() > 0 && cluster.tiers(0).link().type() == "xgmi3" ? 7 : 0;
}

// On GPUs that NVLink joins. The rack of an NVL72 has a host for every four of them, which hand each other no memory.
bool HasSymmetricMemory(const v1::Cluster& cluster) {
  const std::string link = cluster.tiers_size() > 0 ? cluster.tiers(0).link().type() : "";
  return cluster.device().kind() == v1::CUDA && absl::StartsWith(link, "nvlink") && !absl::EndsWith(link, "nvl72");
}

// See NodeBandwidthShare.
double ShareOfMesh(int64_t ranks, int64_t links) {
  if (links == 0) return 1;
  return static_cast<double>(std::clamp<int64_t>(ranks - 1, 1, links)) / static_cast<double>(links);
}

// What a group of one copies within its device.
int64_t CopiedBytes(Effect kind, int64_t bytes) { return kind == Effect::kAllReduce || kind == Effect::kBroadcast ? 0 : bytes; }

}  // namespace

absl::StatusOr<CollectiveCall> ParseCollective(const graph::InstructionView& op) {
  const graph::EffectRow* const row = graph::FindEffect(op.name());
  if (row == nullptr || !row->IsCommunication()) return absl::NotFoundError(absl::StrCat(op.name(), " is no collective"));
  if (const char* const missing = graph::MissingOperand(op.trace(), op.instruction()))
    return absl::InvalidArgumentError(absl::StrCat(op.name(), " has ", missing));
  CollectiveCall call{row->effect, DistinctBytes(op.GeometryOf(*op.Input(row->tensor))), *op.Constant<int64_t>(row->group), -1};
  if (row->IsMessage()) call.peer = *op.Constant<int64_t>(row->peer);
  return call;
}

CollectiveCostModel::CollectiveCostModel(const v1::Cluster& cluster)
    : mesh_links_(MeshLinks(cluster)),
      devices_(cluster.devices_per_node() * cluster.nodes()),
      launch_seconds_(cluster.device().kernel_launch_seconds()),
      memory_bandwidth_(cluster.device().memory_bandwidth_bytes_per_second()),
      has_tree_(cluster.device().kind() != v1::CPU),
      has_symmetric_memory_(HasSymmetricMemory(cluster)) {
  for (const auto& tier : cluster.tiers()) {
    const v1::Link& link = tier.link();
    tiers_.push_back({tier.group_size(), link.latency_seconds(), link.bandwidth_bytes_per_second() * link.efficiency()});
  }
}

double NodeBandwidthShare(const v1::Cluster& cluster, int64_t ranks) { return ShareOfMesh(ranks, MeshLinks(cluster)); }

double CollectiveCostModel::NodeBandwidth(int64_t ranks) const { return tiers_[0].bandwidth * ShareOfMesh(ranks, mesh_links_); }

int CollectiveCostModel::TierBetween(int64_t a, int64_t b) const {
  for (size_t t = 0; t < tiers_.size(); ++t) {
    if (a / tiers_[t].group_size == b / tiers_[t].group_size) return static_cast<int>(t);
  }
  return static_cast<int>(tiers_.size()) - 1;
}

int CollectiveCostModel::TierOf(const mesh::RankLine& ranks) const { return TierOf(ranks.first, ranks.last()); }

int CollectiveCostModel::TierOf(int64_t from, int64_t to) const { return from == to ? -1 : TierBetween(from, to); }

CollectiveCostModel::Spread CollectiveCostModel::SpreadOf(const mesh::RankLine& line, int64_t unit_size) {
  if (line.stride >= unit_size) return {line.size, 1};
  Spread spread{0, line.size};
  const bool alike = unit_size % line.stride == 0;  // all units but the first and the last hold as many
  int64_t rank = line.first, left = line.size;
  while (left > 0) {
    const int64_t end = (rank / unit_size + 1) * unit_size;
    const int64_t here = std::min(left, (end - rank + line.stride - 1) / line.stride);
    const int64_t times = alike && spread.units > 0 ? std::max<int64_t>(1, left / here) : 1;
    spread.units += times;
    spread.fewest = std::min(spread.fewest, here);
    rank += times * here * line.stride;
    left -= times * here;
  }
  return spread;
}

absl::StatusOr<CollectiveCostModel::Shape> CollectiveCostModel::ShapeOf(const mesh::RankLine& ranks) const {
  if (ranks.size < 1 || ranks.first < 0 || ranks.last() >= devices_) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group of ", ranks.size, " ranks does not lie within the ", devices_, " devices of the cluster"));
  }
  Shape shape;
  shape.ranks = ranks.size;
  shape.tier = TierOf(ranks);
  shape.cheapest_hop = shape.slowest = HUGE_VAL;
  int64_t below = ranks.size, share = 1;  // units of the tier below; fewest ranks in one of them
  for (int t = 0; t <= shape.tier; ++t) {
    const Spread spread = SpreadOf(ranks, tiers_[t].group_size);
    // A ring closes at its outermost tier.
    const int64_t hops = below - spread.units + (t == shape.tier ? spread.units : 0);
    if (hops > 0) {
      const double bandwidth = t == 0 ? NodeBandwidth(spread.fewest) : tiers_[t].bandwidth;
      shape.slowest = std::min(shape.slowest, bandwidth * static_cast<double>(share));
      shape.hop_latencies += static_cast<double>(hops) * tiers_[t].latency;
      shape.cheapest_hop = std::min(shape.cheapest_hop, tiers_[t].latency);
      shape.tiers_with_hops.push_back(t);
    }
    if (t == 0) shape.per_node = spread.fewest;
    shape.units.push_back(spread.units);
    below = spread.units;
    share = spread.fewest;
  }
  return shape;
}

double CollectiveCostModel::Ring(const Shape& shape, double bytes) const {
  double steps = static_cast<double>(shape.ranks - 1);
  return shape.hop_latencies - shape.cheapest_hop + steps / static_cast<double>(shape.ranks) * bytes / shape.slowest;
}

double CollectiveCostModel::Tree(const Shape& shape, double bytes) const {
  double per_node = static_cast<double>(shape.per_node);
  double latency = 2 * (per_node - 1) * tiers_[0].latency;
  double inside = 2 * bytes * (per_node - 1) / per_node / NodeBandwidth(shape.per_node), between = 0;
  if (shape.tier > 0) {
    latency += 2 * std::ceil(std::log2(static_cast<double>(shape.units[0]))) * tiers_[shape.tier].latency;
    double sent = BusiestTreeNode(shape.units[0]) * bytes;
    for (int t = 1; t <= shape.tier; ++t) between = std::max(between, sent / (per_node * tiers_[t].bandwidth));
  }
  return latency + std::max(inside, between);
}

// Pairwise exchange: in each step every rank trades S / P with one other.
double CollectiveCostModel::AllToAll(const mesh::RankLine& ranks, int64_t per_node, double bytes) const {
  double slowest = 0, part = bytes / static_cast<double>(ranks.size);
  for (int64_t rank : {ranks.first, ranks.last()}) {
    double seconds = 0;
    for (int64_t i = 0; i < ranks.size; ++i) {
      const int64_t other = ranks[i];
      if (other == rank) continue;
      const int tier = TierBetween(rank, other);
      seconds += tiers_[tier].latency + part / (tier == 0 ? NodeBandwidth(per_node) : tiers_[tier].bandwidth);
    }
    slowest = std::max(slowest, seconds);
  }
  return slowest;
}

double CollectiveCostModel::Rotation(const Shape& shape, double bytes) const {
  double slowest = 0;
  for (const int t : shape.tiers_with_hops)
    slowest = std::max(slowest, tiers_[t].latency + bytes / (t == 0 ? NodeBandwidth(2) : tiers_[t].bandwidth));
  return slowest;
}

double CollectiveCostModel::LocalCopy(int64_t bytes) const {
  return std::max(launch_seconds_, 2 * static_cast<double>(bytes) / memory_bandwidth_);
}

absl::StatusOr<double> CollectiveCostModel::Time(Effect kind, int64_t bytes, const mesh::RankLine& ranks,
                                                 AllReduceAlgorithm algorithm) const {
  ASSIGN_OR_RETURN(const auto shape, ShapeOf(ranks));
  if (shape.tier < 0) return LocalCopy(CopiedBytes(kind, bytes));
  const double size = static_cast<double>(bytes), ring = Ring(shape, size);
  switch (kind) {
    case Effect::kAllGather:
    case Effect::kReduceScatter: return launch_seconds_ + ring;
    case Effect::kAllReduce:
      if (algorithm == AllReduceAlgorithm::kTree) return launch_seconds_ + Tree(shape, size);
      if (algorithm == AllReduceAlgorithm::kRing || !has_tree_) return launch_seconds_ + 2 * ring;
      return launch_seconds_ + std::min(2 * ring, Tree(shape, size));
    case Effect::kBroadcast: return launch_seconds_ + shape.hop_latencies - shape.cheapest_hop + size / shape.slowest;
    case Effect::kAllToAll: return launch_seconds_ + AllToAll(ranks, shape.per_node, size);
    case Effect::kRotate: return launch_seconds_ + Rotation(shape, size);
    default: break;
  }
  return absl::InvalidArgumentError("a message takes MessageTime");
}

bool CollectiveCostModel::RotatesThroughMemory(const mesh::Group& group) const {
  return has_symmetric_memory_ && group.dim == mesh::Dim::kTp && TierOf(group.ranks) == 0;
}

absl::StatusOr<double> CollectiveCostModel::Time(Effect kind, int64_t bytes, const mesh::Group& group) const {
  ASSIGN_OR_RETURN(const double seconds, Time(kind, bytes, group.ranks));
  if (kind != Effect::kRotate || !RotatesThroughMemory(group)) return seconds;
  return seconds + 2 * static_cast<double>(std::min(bytes, kLastPieceBytes)) / memory_bandwidth_;
}

absl::StatusOr<double> CollectiveCostModel::MessageTime(int64_t bytes, int64_t from, int64_t to) const {
  if (std::min(from, to) < 0 || std::max(from, to) >= devices_) {
    return absl::InvalidArgumentError(absl::StrCat("a message from rank ", from, " to ", to, " leaves the cluster"));
  }
  if (from == to) return LocalCopy(bytes);
  const int tier = TierBetween(from, to);
  const double bandwidth = tier == 0 ? NodeBandwidth(2) : tiers_[tier].bandwidth;
  return launch_seconds_ + tiers_[tier].latency + static_cast<double>(bytes) / bandwidth;
}

}  // namespace legoai::sim
