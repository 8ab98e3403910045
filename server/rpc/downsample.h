// Fewer points of a job's curve, for drawing: its first and last point, all held-out losses, and of the others those that keep
// the shape of the loss (largest triangle three buckets: S. Steinarsson, "Downsampling Time Series for Visual Representation",
// University of Iceland 2013, chapter 4.2). gRPC-free. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "proto/legoai/v1/metrics.pb.h"

namespace legoai::server {

// At most `most` (at least 2) of `points`, which ascend by step, in their order. All of them where they are few enough. Where
// there are more held-out losses than that, they are thinned out evenly; the last one stays.
std::vector<v1::StepMetrics> Downsample(std::vector<v1::StepMetrics> points, size_t most);

}  // namespace legoai::server
