// Figures of a cluster by name, and how much a recipe's step time depends on each: `lego sweep --sensitivities`. Thread-safety:
// pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/json/reflect.h"
#include "proto/legoai/v1/cluster.pb.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/sim.pb.h"

namespace legoai::cli {

// Figures of a cluster by name, to try other values: "link.nvlink4.bandwidth" 0.5x, "memory" 120GiB.
//
// Names: memory, memory.bandwidth, compute.peak, launch.time (the shortest of any operator), dispatch.time (of the host for an
// operator), CLASS.efficiency of the classes of operators that the device has (matmul, attention, ...), link.LINK.bandwidth and
// link.LINK.latency, where LINK is a tier ("node", "cluster") or the type of its link.

// Whether `name` has the form of such a figure, for any cluster.
bool IsClusterFigure(const std::string& name);

// Those that `cluster` has, links by type.
std::vector<std::string> ClusterFigures(const v1::Cluster& cluster);

// Formatted with its unit. Errors: FieldError with the existing figures.
absl::StatusOr<std::string> ClusterFigureText(const v1::Cluster& cluster, const std::string& name);

// `value`: a multiple of the figure ("0.5x"), or its new value: bytes ("120GiB"), bytes per second ("450GB/s"), seconds ("5us"),
// a share ("0.7"). compute.peak takes only multiples, because a device has a peak for each precision. Errors: FieldError of
// `name`, also for an efficiency above 1.
absl::Status SetClusterFigure(const std::string& name, const std::string& value, v1::Cluster* cluster);

// `text` of --cluster, TYPE:DEVICES_PER_NODExNODES, with this many devices instead: as many full nodes of the same size, or part
// of one. Errors: FieldError of gpus; a cluster from a file has its own tiers and cannot be resized.
absl::StatusOr<std::string> ResizedCluster(const std::string& text, int64_t devices);

// Each figure is reduced and increased by this share.
inline constexpr double kSensitivityShare = 0.2;

struct Sensitivity {
  std::string figure, now;                    // "link.nvlink4.bandwidth", "450 GB/s"
  double less_seconds = 0, more_seconds = 0;  // step time with the changed figure; 0: it cannot be changed so
};

struct Sensitivities {
  v1::Estimate estimate;          // with unchanged figures
  std::vector<Sensitivity> rows;  // largest effect first
};

// The request itself, then for each figure that can be changed one with less and one with more. Memory is excluded: it decides
// whether a recipe fits, not how long a step takes.
struct SensitivityRequests {
  std::vector<v1::SimRequest> requests;
  struct Place {
    std::string figure, now;
    size_t less = 0, more = 0;  // index in `requests`; 0: none
  };
  std::vector<Place> places;
};
absl::StatusOr<SensitivityRequests> RequestsForSensitivities(const v1::SimRequest& request);

// From the answers to these requests. Errors: that of the first failed one.
absl::StatusOr<Sensitivities> ReadSensitivities(const SensitivityRequests& requests,
                                                const std::vector<absl::StatusOr<v1::Estimate>>& estimates);

std::string SensitivitiesText(const Sensitivities& sensitivities);
std::string SensitivitiesCsv(const Sensitivities& sensitivities);
// {"estimate": the JSON of `simulate`, "sensitivities": [{"figure", "now", "less_step_time_seconds", "more_step_time_seconds"}]}
Tree SensitivitiesTree(const Sensitivities& sensitivities);

}  // namespace legoai::cli
