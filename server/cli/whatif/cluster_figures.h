// The figures of a cluster by names, to ask what another figure would do: "link.nvlink4.bandwidth" 0.5x, "memory" 120GiB.
// Thread-safety: pure functions.
//
// Names: memory, memory.bandwidth, compute.peak, launch.time (the shortest of any operator), dispatch.time (of the host for an
// operator), CLASS.efficiency of the classes of operators that the device has (matmul, attention, ...), link.LINK.bandwidth and
// link.LINK.latency, where LINK is a tier ("node", "cluster") or the type of its link.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/cluster.pb.h"

namespace legoai::cli {

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

}  // namespace legoai::cli
