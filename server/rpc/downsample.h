// Fewer points of a job's curve, for drawing: its first and last point, all held-out losses, and of the others those that keep
// the shape of the loss (largest triangle three buckets: S. Steinarsson, "Downsampling Time Series for Visual Representation",
// University of Iceland 2013, chapter 4.2). gRPC-free. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

namespace legoai::server {

// What the choice looks at of one step's report.
struct CurvePoint {
  double step = 0;
  double loss = 0;  // not finite: it has none
  bool held_out = false;
};

// Places of at most `most` (at least 2) points of `curve`, which ascends by step. All of them where they are few enough. Where
// there are more held-out losses than that, they are thinned out evenly; the last one stays.
std::set<size_t> Downsample(const std::vector<CurvePoint>& curve, size_t most);

}  // namespace legoai::server
