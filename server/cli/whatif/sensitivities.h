// The figures of a cluster by name, and how far a recipe's step time depends on each: `lego sweep --sensitivities`.
// Thread-safety: pure functions.
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

// The figures of a cluster by names, to ask what another figure would do: "link.nvlink4.bandwidth" 0.5x, "memory" 120GiB.
//
// Names: memory, memory.bandwidth, compute.peak, launch.time (the shortest of any operator), dispatch.time (of the host for an
// operator), CLASS.efficiency of the classes of operators that the device has (matmul, attention, ...), link.LINK.bandwidth and
// link.LINK.latency, where LINK is a tier ("node", "cluster") or the type of its link.

// Whether `name` has the form of such a figure, of whatever cluster.
bool IsClusterFigure(const std::string& name);

// Those that `cluster` has, links by type.
std::vector<std::string> ClusterFigures(const v1::Cluster& cluster);

// As people read it, with its unit. Errors: FieldError with the figures that there are.
absl::StatusOr<std::string> ClusterFigureText(const v1::Cluster& cluster, const std::string& name);

// `value`: a multiple of the figure ("0.5x"), or its new value: bytes ("120GiB"), bytes per second ("450GB/s"), seconds ("5us"),
// a share ("0.7"). compute.peak takes multiples alone, as a device has a peak for each precision. Errors: FieldError of `name`,
// also of an efficiency above 1.
absl::Status SetClusterFigure(const std::string& name, const std::string& value, v1::Cluster* cluster);

// `text` of --cluster, TYPE:DEVICES_PER_NODExNODES, with this many devices instead: as many nodes of the same size as they fill,
// or a part of one. Errors: FieldError of gpus; a cluster of a file has its own tiers and cannot be sized so.
absl::StatusOr<std::string> ResizedCluster(const std::string& text, int64_t devices);

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
