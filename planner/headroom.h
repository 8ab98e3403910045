// How much of a stage's device is left, the same for ranking, explaining and printing. Torch-free, pure. Units:
// bytes.
#pragma once

#include <cstdint>

#include "proto/legoai/v1/estimate.pb.h"

namespace legoai::planner {

// What tensors may take: capacity less the reserve.
int64_t UsableBytes(const v1::StageEstimate& stage);
// What is left of that at the peak; negative if the stage does not fit.
int64_t HeadroomBytes(const v1::StageEstimate& stage);
// The stage with the smallest headroom. `estimate` has at least one.
const v1::StageEstimate& FullestStage(const v1::Estimate& estimate);

}  // namespace legoai::planner
