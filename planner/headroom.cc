#include "planner/headroom.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_format.h"

namespace legoai::planner {

int64_t UsableBytes(const v1::StageEstimate& stage) { return stage.capacity_bytes() - stage.reserve_bytes(); }

int64_t HeadroomBytes(const v1::StageEstimate& stage) { return UsableBytes(stage) - stage.peak_allocated_bytes(); }

const v1::StageEstimate& FullestStage(const v1::Estimate& estimate) {
  return *std::min_element(estimate.stages().begin(), estimate.stages().end(),
                           [](const auto& a, const auto& b) { return HeadroomBytes(a) < HeadroomBytes(b); });
}

std::string BytesText(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; std::abs(value) >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  const int digits = unit == 0 ? 0 : std::abs(value) < 10 ? 2 : std::abs(value) < 100 ? 1 : 0;
  return absl::StrFormat("%.*f %s", digits, value, kUnits[unit]);
}

}  // namespace legoai::planner
