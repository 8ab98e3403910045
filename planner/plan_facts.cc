#include "planner/plan_facts.h"

#include <algorithm>

namespace legoai::planner {

int64_t UsableBytes(const v1::StageEstimate& stage) { return stage.capacity_bytes() - stage.reserve_bytes(); }

int64_t HeadroomBytes(const v1::StageEstimate& stage) { return UsableBytes(stage) - stage.peak_allocated_bytes(); }

const v1::StageEstimate& FullestStage(const v1::Estimate& estimate) {
  return *std::min_element(estimate.stages().begin(), estimate.stages().end(),
                           [](const auto& a, const auto& b) { return HeadroomBytes(a) < HeadroomBytes(b); });
}

}  // namespace legoai::planner
