#include "simulator/symbolic/link_load.h"

#include <algorithm>

namespace legoai::sim {

namespace {

// Of the tier's link, in a group with `here` ranks in one of its units.
double SustainedBandwidth(const v1::Cluster& cluster, int tier, int64_t here) {
  const v1::Link& link = cluster.tiers(tier).link();
  const double share = tier == 0 ? NodeBandwidthShare(cluster, here) : 1;
  return link.bandwidth_bytes_per_second() * link.efficiency() * share;
}

}  // namespace

LinkLoad NarrowestLink(const v1::Cluster& cluster, const mesh::RankLine& line, double bytes) {
  LinkLoad narrowest;
  double longest = -1;
  int64_t inside = 1;  // ranks of the line in one unit of the tier below
  for (int t = 0; t < cluster.tiers_size() && inside < line.size; ++t) {
    const int64_t unit = cluster.tiers(t).group_size(), end = (line.first / unit + 1) * unit;
    const int64_t here = std::min(line.size, (end - line.first + line.stride - 1) / line.stride);
    if (here <= inside) continue;  // the ring has no hop of this tier
    const double carried = bytes / static_cast<double>(inside);
    const double bandwidth = SustainedBandwidth(cluster, t, here);
    if (carried / bandwidth > longest) {
      longest = carried / bandwidth;
      narrowest = {t, carried, 0, bandwidth};
    }
    inside = here;
  }
  return narrowest;
}

}  // namespace legoai::sim
