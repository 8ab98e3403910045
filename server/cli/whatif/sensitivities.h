// How far a recipe's step time hangs on each figure of the cluster: `lego sweep --sensitivities`. Thread-safety: pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/json/reflect.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/sim.pb.h"

namespace legoai::cli {

// Each figure is taken this much smaller and this much larger.
inline constexpr double kSensitivityShare = 0.2;

struct Sensitivity {
  std::string figure, now;                    // "link.nvlink4.bandwidth", "450 GB/s"
  double less_seconds = 0, more_seconds = 0;  // the step then; 0: the figure cannot be so
};

struct Sensitivities {
  v1::Estimate estimate;          // with the figures as they are
  std::vector<Sensitivity> rows;  // the largest effect first
};

// The request itself, then for each figure that can be changed one with less and one with more of it. Memory is left out: it
// decides whether a recipe fits, not how long a step takes.
struct SensitivityRequests {
  std::vector<v1::SimRequest> requests;
  struct Place {
    std::string figure, now;
    size_t less = 0, more = 0;  // in `requests`; 0: not there
  };
  std::vector<Place> places;
};
absl::StatusOr<SensitivityRequests> RequestsForSensitivities(const v1::SimRequest& request);

// Of the answers to these requests. Errors: that of the first that failed.
absl::StatusOr<Sensitivities> ReadSensitivities(const SensitivityRequests& requests,
                                                const std::vector<absl::StatusOr<v1::Estimate>>& estimates);

std::string SensitivitiesText(const Sensitivities& sensitivities);
std::string SensitivitiesCsv(const Sensitivities& sensitivities);
// {"estimate": the JSON of `simulate`, "sensitivities": [{"figure", "now", "less_step_time_seconds", "more_step_time_seconds"}]}
Tree SensitivitiesTree(const Sensitivities& sensitivities);

}  // namespace legoai::cli
