// Thins a job's curve for plotting: keeps the first and last point, all held-out losses, and of the others those that preserve
// the shape of the loss (largest triangle three buckets: S. Steinarsson, "Downsampling Time Series for Visual Representation",
// University of Iceland 2013, chapter 4.2). gRPC-free. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

namespace legoai::server {

// The part of a step's report that the choice depends on.
struct CurvePoint {
  double step = 0;
  double loss = 0;  // not finite: none
  bool held_out = false;
};

// Indices of at most `most` (at least 2) points of `curve`, which ascends by step; all of them if there are no more. If there are
// more held-out losses than that, they are thinned evenly, and the last one stays.
std::set<size_t> Downsample(const std::vector<CurvePoint>& curve, size_t most);

}  // namespace legoai::server
