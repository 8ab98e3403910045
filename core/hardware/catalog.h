// Devices, links and clusters: the catalog (catalog/*.txtpb, compiled in) and the ways to name a cluster.
//
// Thread-safety: all functions are safe to call from several threads. Numbers are those of data sheets, of which `efficiencies`
// are the achievable shares; every number has a source in its file. One network adapter per device is assumed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/calibration.pb.h"
#include "proto/legoai/v1/cluster.pb.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::sim {

// All devices and links of the catalog, sorted by type.
const std::vector<v1::Device>& ListDevices();
const std::vector<v1::Link>& ListLinks();

// Errors: FieldError with the known types.
absl::StatusOr<v1::Device> FindDevice(std::string_view type);
absl::StatusOr<v1::Link> FindLink(std::string_view type);

// The device of the catalog with this NVML name and this memory, within 3 % (drivers reserve different amounts). Errors:
// FieldError of "device" with a remedy.
absl::StatusOr<v1::Device> FindDeviceOfGpu(std::string_view nvml_name, int64_t memory_bytes);

// A Device message in text format, for instance this machine as it was measured.
absl::StatusOr<v1::Device> LoadDevice(const std::string& path);

// A Calibration message in text format (`lego-measure --device=cuda`).
absl::StatusOr<v1::Calibration> LoadCalibration(const std::string& path);

// In FLOP/s; 0 if the device has none for `dtype`.
double PeakFlops(const v1::Device& device, v1::DType dtype);

// How many ranks share a core of a CPU host; 1 if each has its own, and on other devices. A device's figures hold for a rank
// alone on its core.
double RanksPerCore(const v1::Cluster& cluster);

// A sentence to show with times of `device` if the source of some of its efficiencies is an assumption; else empty.
std::string AssumedEfficiencies(const v1::Device& device);

// `nodes` nodes of `devices_per_node` devices, joined by the device's node_link and cluster_link. CPU ranks share a host, which
// is assumed to be like this one: its memory is divided among them; see RanksPerCore for its cores.
absl::StatusOr<v1::Cluster> MakeCluster(const v1::Device& device, int64_t devices_per_node, int64_t nodes);

// What a host has for its CPU ranks; 0: as this host.
struct HostShare {
  int64_t memory_bytes = 0;
  int64_t cores = 0;
};
// Hosts that need not be this one, all alike, each with `devices`.
absl::StatusOr<v1::Cluster> MakeHostCluster(const v1::Device& device, int64_t devices, const HostShare& host, int64_t hosts = 1);

// "h100-sxm-80:8x16" (type, devices a node, nodes), "mine.txtpb:8x16" with a text-format Device file (`lego calibrate`) as the
// type, either of them followed by another link between nodes ("h100-sxm-80:8x16@efa-p5"), or the path of a text-format Cluster
// file. A node is what the fast links connect: for gb200-nvl72 a rack of 72. `local_cpu` replaces the catalog's entry for type
// "cpu"; null: the catalog's. Errors: FieldError of "--cluster", also for more devices per node than the node's link connects.
absl::StatusOr<v1::Cluster> ParseCluster(std::string_view text, const v1::Device* local_cpu = nullptr);

// What every user of a Cluster may rely on: positive sizes whose products fit an int64_t, finite numbers, tiers that divide each
// other and end with all devices, a device with bandwidth and at least one peak. Errors: FieldError of the field.
absl::Status CheckCluster(const v1::Cluster& cluster);

// What training at a predicted speed costs: tokens per day, GPU-hours and money. Thread-safety: a pure function.

// For steps of `tokens_per_step` tokens on all devices of `cluster`; empty if a step takes no time. Money needs
// Cluster.price_per_gpu_hour.
v1::RunningCost RunningCostOf(const v1::Cluster& cluster, double tokens_per_step, double step_seconds);

}  // namespace legoai::sim
