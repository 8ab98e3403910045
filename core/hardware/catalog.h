// Devices, links and clusters: the catalog (catalog/*.txtpb, compiled in) and the two ways in which a cluster is named.
//
// Thread-safety: all functions are safe to call from several threads. Numbers are those of data sheets, of which
// `efficiencies` take a share; every number has a source in its file. One network adapter for each device is assumed.
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

// The device of the catalog that answers to this name of NVML and has this memory, within 3 % of it (drivers keep different
// shares for themselves). Errors: FieldError of "device" with what to do.
absl::StatusOr<v1::Device> FindDeviceOfGpu(std::string_view nvml_name, int64_t memory_bytes);

// A Device message in text format, for instance this machine as it was measured.
absl::StatusOr<v1::Device> LoadDevice(const std::string& path);

// A Calibration message in text format (`lego-measure --device=cuda`).
absl::StatusOr<v1::Calibration> LoadCalibration(const std::string& path);

// In FLOP/s; 0 if the device names none for `dtype`.
double PeakFlops(const v1::Device& device, v1::DType dtype);

// How many ranks take turns on a core of a CPU host; 1 where each has one for itself, and on other devices. A device's figures
// are those of a rank that is alone on its core.
double RanksPerCore(const v1::Cluster& cluster);

// One sentence for whoever reads times of `device`, if some of its efficiencies are assumptions by their source; else empty.
std::string AssumedEfficiencies(const v1::Device& device);

// `nodes` nodes of `devices_per_node` devices, joined by the device's node_link and cluster_link. A cpu's ranks share the
// host, which is taken to be like this one: its memory is divided among them; see RanksPerCore for its cores.
absl::StatusOr<v1::Cluster> MakeCluster(const v1::Device& device, int64_t devices_per_node, int64_t nodes);

// What a host of CPU ranks has for them; 0: as this one.
struct HostShare {
  int64_t memory_bytes = 0;
  int64_t cores = 0;
};
// One host, which need not be this one.
absl::StatusOr<v1::Cluster> MakeHostCluster(const v1::Device& device, int64_t devices, const HostShare& host);

// "h100-sxm-80:8x16" (type, devices a node, nodes), "mine.txtpb:8x16" with a text-format file of a Device (`lego calibrate`) for
// the type, either of them with another link between nodes behind it ("h100-sxm-80:8x16@efa-p5"), or the path of a text-format
// file of the Cluster message. A node is what the fast links join: of gb200-nvl72 a rack of 72. `local_cpu`: what stands for type
// "cpu" instead of the catalog's entry; null: the catalog's. Errors: FieldError of "--cluster", also of more devices a node than
// the node's link joins.
absl::StatusOr<v1::Cluster> ParseCluster(std::string_view text, const v1::Device* local_cpu = nullptr);

// What every user of a Cluster may rely on: sizes that are positive and not absurd (their products fit), finite numbers, tiers
// that divide each other and end with all devices, a device with bandwidth and at least one peak. Errors: FieldError of the
// field.
absl::Status CheckCluster(const v1::Cluster& cluster);

// What training at a predicted speed uses up: tokens a day, GPU-hours and money. Thread-safety: a pure function.

// Of steps of `tokens_per_step` tokens on all devices of `cluster`; empty where a step takes no time. Money needs
// Cluster.price_per_gpu_hour.
v1::RunningCost RunningCostOf(const v1::Cluster& cluster, double tokens_per_step, double step_seconds);

}  // namespace legoai::sim
