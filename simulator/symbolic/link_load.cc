#include "simulator/symbolic/link_load.h"

#include <algorithm>

namespace legoai::sim {

double SustainedBandwidth(const v1::Link& link) { return link.bandwidth_bytes_per_second() * link.efficiency(); }

LinkLoad NarrowestLink(const v1::Cluster& cluster, const RankLine& line, double bytes) {
  LinkLoad narrowest;
  double longest = -1;
  int64_t inside = 1;  // ranks of the line in one unit of the tier below
  for (int t = 0; t < cluster.tiers_size() && inside < line.size; ++t) {
    const int64_t unit = cluster.tiers(t).group_size(), end = (line.first / unit + 1) * unit;
    const int64_t here = std::min(line.size, (end - line.first + line.stride - 1) / line.stride);
    if (here <= inside) continue;  // the ring has no hop of this tier
    const double carried = bytes / static_cast<double>(inside);
    const double seconds = carried / SustainedBandwidth(cluster.tiers(t).link());
    if (seconds > longest) longest = seconds, narrowest.tier = t, narrowest.bytes = carried;
    inside = here;
  }
  return narrowest;
}

}  // namespace legoai::sim
