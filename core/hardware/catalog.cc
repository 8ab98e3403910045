#include "core/hardware/catalog.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/hardware/catalog_files.h"
#include "core/hardware/host.h"
#include "core/hardware/nvml.h"
#include "core/process/host_resources.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/read_file.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai::sim {
namespace {

constexpr int64_t kMostDevicesPerNode = 1 << 16, kMostNodes = 1 << 20, kMostBytes = int64_t{1} << 50;

double GibiBytes(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

// Keeps the first fault; what is asked later then does nothing.
class Checker {
 public:
  void Whole(const std::string& field, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most) Fail(field, absl::StrCat(value), absl::StrCat("must lie between ", least, " and ", most));
  }
  // What is divided by.
  void Positive(const std::string& field, double value) {
    if (!(value > 0) || !std::isfinite(value)) Fail(field, absl::StrCat(value), "must be a positive, finite number");
  }
  void NotNegative(const std::string& field, double value) {
    if (!(value >= 0) || !std::isfinite(value)) Fail(field, absl::StrCat(value), "must be a finite number and not negative");
  }
  void Share(const std::string& field, double value) {
    if (!(value >= 0 && value <= 1)) Fail(field, absl::StrCat(value), "must lie between 0 and 1");
  }
  void Fail(const std::string& field, const std::string& value, const std::string& remedy) {
    if (status_.ok()) status_ = FieldError(field, value, remedy);
  }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

void CheckLink(const std::string& field, const v1::Link& link, Checker* check) {
  check->Positive(field + ".bandwidth_bytes_per_second", link.bandwidth_bytes_per_second());
  check->Positive(field + ".efficiency", link.efficiency());
  check->NotNegative(field + ".latency_seconds", link.latency_seconds());
}

void CheckEfficiency(const v1::Efficiency& efficiency, Checker* check) {
  check->Positive("device.efficiencies.fraction", efficiency.fraction());
  if (efficiency.operator_().empty() != efficiency.curve().empty()) {
    check->Fail("device.efficiencies.curve", efficiency.operator_(), "an operator has a curve, and a class of operators none");
  }
  double before = 0;
  for (const auto& point : efficiency.curve()) {
    check->Positive("device.efficiencies.curve.fraction", point.fraction());
    if (!(point.least_seconds() > before)) {
      check->Fail("device.efficiencies.curve.least_seconds", absl::StrCat(point.least_seconds()), "must ascend from above zero");
    }
    before = point.least_seconds();
  }
}

void CheckDevice(const v1::Device& device, Checker* check) {
  if (device.kind() != v1::CPU && device.kind() != v1::CUDA) {
    check->Fail("device.kind", v1::DeviceKind_Name(device.kind()), "must be CPU or CUDA");
  }
  check->Whole("device.memory_bytes", device.memory_bytes(), 1, kMostBytes);
  check->Whole("device.reserve_bytes", device.reserve_bytes(), 0, kMostBytes);
  check->Whole("device.allocation_rounding_bytes", device.allocation_rounding_bytes(), 1, int64_t{1} << 30);
  check->Positive("device.memory_bandwidth_bytes_per_second", device.memory_bandwidth_bytes_per_second());
  check->NotNegative("device.kernel_launch_seconds", device.kernel_launch_seconds());
  check->NotNegative("device.host_dispatch_seconds", device.host_dispatch_seconds());
  check->NotNegative("device.communication_compute_share", device.communication_compute_share());
  check->Share("device.measured_while_busy", device.measured_while_busy());
  if (device.peak_flops().empty()) check->Fail("device.peak_flops", "", "give at least one dtype's peak");
  for (const auto& peak : device.peak_flops()) check->Positive("device.peak_flops.flops_per_second", peak.flops_per_second());
  for (const auto& efficiency : device.efficiencies()) CheckEfficiency(efficiency, check);
}

void CheckTiers(const v1::Cluster& cluster, Checker* check) {
  int64_t below = 1;
  for (const auto& tier : cluster.tiers()) {
    if (tier.group_size() < below || tier.group_size() % below != 0) {
      return check->Fail("tiers.group_size", absl::StrCat(tier.group_size()),
                         absl::StrCat("must be a multiple of the tier below, ", below));
    }
    CheckLink("tiers.link", tier.link(), check);
    below = tier.group_size();
  }
  const int64_t devices = cluster.devices_per_node() * cluster.nodes();
  if (below != devices) {
    check->Fail("tiers.group_size", absl::StrCat(below), absl::StrCat("the last tier must hold all ", devices, " devices"));
  }
}

// The catalog is part of the program: a file that does not parse is a broken build.
template <class Message, size_t N>
std::vector<Message> ParseAll(const CatalogFile (&files)[N]) {
  std::vector<Message> messages;
  for (const auto& file : files) {
    Message message;
    if (!google::protobuf::TextFormat::ParseFromString(file.text, &message)) {
      std::fprintf(stderr, "catalog file %s is broken\n", file.name);
      std::abort();
    }
    messages.push_back(std::move(message));
  }
  std::sort(messages.begin(), messages.end(), [](const auto& a, const auto& b) { return a.type() < b.type(); });
  return messages;
}

// What `word` may have been meant as: the names that it begins, as "h100" does, or else the nearest one.
std::string Meant(std::string_view word, const std::vector<std::string>& names) {
  const std::string small = absl::AsciiStrToLower(absl::string_view(word.data(), word.size()));
  std::vector<std::string> begun;
  for (const std::string& name : names) {
    if (!small.empty() && absl::StartsWith(name, small)) begun.push_back(name);
  }
  return begun.empty() ? Nearest(small, names) : absl::StrJoin(begun, " or ");
}

template <class Message>
absl::StatusOr<Message> Find(const std::vector<Message>& messages, std::string_view field, std::string_view type) {
  for (const auto& message : messages) {
    if (message.type() == type) return message;
  }
  std::vector<std::string> names;
  for (const auto& message : messages) names.push_back(message.type());
  return FieldError(field, type,
                    absl::StrCat("unknown; did you mean ", Meant(type, names), "? Known are ", absl::StrJoin(names, ", ")));
}

// Keeps the first fault that the parser of text-format files finds.
class FirstFault : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (text_.empty()) text_ = absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Where in `tree` there is text of no UTF-8, which does not cross a wire, or with lines or what moves a terminal's cursor, which
// servers refuse. Empty: nowhere.
std::string UnfitText(const Tree& tree, const std::string& place = "") {
  if (tree.is_string()) {
    const auto& text = tree.get_ref<const std::string&>();
    return IsUtf8(text) && IsPrintable(text) ? "" : place;
  }
  if (!tree.is_structured()) return "";
  for (const auto& [key, inner] : tree.items()) {
    const std::string inside =
        tree.is_array() ? absl::StrCat(place, "[", key, "]") : absl::StrCat(place, place.empty() ? "" : ".", key);
    if (std::string unfit = UnfitText(inner, inside); !unfit.empty()) return unfit;
  }
  return "";
}

template <class Message>
absl::Status LoadText(const std::string& path, std::string_view field, Message* message) {
  ASSIGN_OR_RETURN(const auto text, ReadFileOf(field, path, kMostTextBytes, "give the path of a text-format file"));
  FirstFault fault;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&fault);
  if (!parser.ParseFromString(text, message)) {
    return FieldError(field, path,
                      absl::StrCat("is no text-format ", Message::descriptor()->full_name(), " message: ", fault.text()));
  }
  if (const std::string unfit = UnfitText(ToTree(*message)); !unfit.empty())
    return FieldError(field, path, absl::StrCat(unfit, " must be text in UTF-8 without control characters"));
  return absl::OkStatus();
}

// The engine lets ranks share the cores (simulator/engine/lower_trace.h); memory is divided here.
void ShareHost(v1::Cluster* cluster) {
  if (cluster->host_memory_bytes() == 0) cluster->set_host_memory_bytes(launch::HostMemoryBytes());
  if (cluster->host_cores() == 0) cluster->set_host_cores(HostPhysicalCores());
  cluster->mutable_device()->set_memory_bytes(cluster->host_memory_bytes() / cluster->devices_per_node());
}

absl::Status AddTier(std::string_view name, int64_t group_size, const std::string& link_type, v1::Cluster* cluster) {
  ASSIGN_OR_RETURN(auto link, FindLink(link_type));
  v1::Tier* tier = cluster->add_tiers();
  tier->set_name(std::string(name));
  tier->set_group_size(group_size);
  *tier->mutable_link() = link;
  return absl::OkStatus();
}

// "8x16" or "8".
bool ParseSizes(std::string_view text, int64_t* per_node, int64_t* nodes) {
  std::vector<absl::string_view> parts = absl::StrSplit(absl::string_view(text.data(), text.size()), 'x');
  *nodes = 1;
  if (parts.size() > 2 || !absl::SimpleAtoi(parts[0], per_node)) return false;
  if (parts.size() == 2 && !absl::SimpleAtoi(parts[1], nodes)) return false;
  return *per_node > 0 && *nodes > 0 && *per_node <= kMostDevicesPerNode && *nodes <= kMostNodes;
}

// How many devices a node's link joins: NVIDIA's HGX A100 boards come with up to 16, HGX H100, H200, B200 and B300 boards and
// AMD's MI300X boards with 8, a GB200 NVL72 rack with 72 (their data sheets). 0: not known.
int64_t LargestNode(const v1::Device& device) {
  static const auto* const kLargest =
      new std::map<std::string, int64_t>{{"nvlink3", 16}, {"nvlink4", 8}, {"nvlink5", 8}, {"nvlink5-nvl72", 72}, {"xgmi3", 8}};
  const auto found = kLargest->find(device.node_link());
  return found == kLargest->end() ? 0 : found->second;
}

// "h100-sxm-80:64" is meant as 64 devices more often than as one node of them.
absl::Status CheckNodeSize(std::string_view text, const v1::Device& device, int64_t per_node, int64_t nodes) {
  const int64_t largest = LargestNode(device);
  if (largest == 0 || per_node <= largest) return absl::OkStatus();
  const std::string meant = nodes == 1 && per_node % largest == 0 ? absl::StrCat("; ", per_node, " devices are ", device.type(),
                                                                                 ":", largest, "x", per_node / largest)
                                                                  : "";
  return FieldError("--cluster", text,
                    absl::StrCat("asks for ", per_node, " devices in one node, and ", device.node_link(), " joins at most ",
                                 largest, " of ", device.type(), meant, ". A machine of another shape goes as a .txtpb file"));
}

absl::StatusOr<v1::Device> DeviceOfFile(const std::string& path) {
  v1::Device device;
  RETURN_IF_ERROR(LoadText(path, "--cluster", &device));
  return device;
}

absl::StatusOr<v1::Device> DeviceOfType(std::string_view type, const v1::Device* local_cpu) {
  if (type.ends_with(".txtpb")) return DeviceOfFile(std::string(type));
  if (local_cpu != nullptr && type == local_cpu->type()) return *local_cpu;
  return Find(ListDevices(), "--cluster", type);
}

// Takes "@LINK" off the end of "TYPE:SIZES@LINK" and gives LINK; nothing where there is none.
std::optional<std::string> TakeClusterLink(std::string_view* text) {
  const size_t colon = text->rfind(':'), at = text->rfind('@');
  if (colon == std::string_view::npos || at == std::string_view::npos || at < colon) return std::nullopt;
  std::string link(text->substr(at + 1));
  *text = text->substr(0, at);
  return link;
}

absl::StatusOr<v1::Cluster> ClusterFromFile(const std::string& path) {
  v1::Cluster cluster;
  absl::Status status = LoadText(path, "--cluster", &cluster);
  if (!status.ok()) return status;
  if (cluster.name().empty()) cluster.set_name(path);
  status = CheckCluster(cluster);
  if (!status.ok()) return Annotate(status, path);
  return cluster;
}

// `cluster` may know its host already.
absl::StatusOr<v1::Cluster> FillCluster(const v1::Device& device, int64_t devices_per_node, int64_t nodes, v1::Cluster cluster) {
  cluster.set_name(absl::StrCat(device.type(), ":", devices_per_node, "x", nodes));
  *cluster.mutable_device() = device;
  cluster.set_devices_per_node(devices_per_node);
  cluster.set_nodes(nodes);
  absl::Status status = AddTier("node", devices_per_node, device.node_link(), &cluster);
  if (status.ok() && device.has_measured_node_link()) *cluster.mutable_tiers(0)->mutable_link() = device.measured_node_link();
  if (status.ok() && nodes > 1) status = AddTier("cluster", devices_per_node * nodes, device.cluster_link(), &cluster);
  if (!status.ok()) return status;
  if (device.kind() == v1::CPU) ShareHost(&cluster);
  status = CheckCluster(cluster);
  if (!status.ok()) return status;
  return cluster;
}

}  // namespace

const std::vector<v1::Device>& ListDevices() {
  static const auto* const devices = new std::vector<v1::Device>(ParseAll<v1::Device>(kDeviceFiles));
  return *devices;
}

const std::vector<v1::Link>& ListLinks() {
  static const auto* const links = new std::vector<v1::Link>(ParseAll<v1::Link>(kLinkFiles));
  return *links;
}

absl::StatusOr<v1::Device> FindDevice(std::string_view type) { return Find(ListDevices(), "device", type); }

absl::StatusOr<v1::Device> FindDeviceOfGpu(std::string_view nvml_name, int64_t memory_bytes) {
  std::vector<std::string> known;
  for (const v1::Device& device : ListDevices()) {
    for (const std::string& name : device.nvml_names()) {
      known.push_back(absl::StrFormat("%s of %.1f GiB", name, GibiBytes(device.memory_bytes())));
      if (name == nvml_name && IsSameMemory(device.memory_bytes(), memory_bytes)) return device;
    }
  }
  return FieldError("device", nvml_name,
                    absl::StrFormat("a GPU of this name with %.1f GiB is not in the catalog (it has %s): describe it in a "
                                    "text-format file of the Device message and give that as --device_file",
                                    GibiBytes(memory_bytes), absl::StrJoin(known, ", ")));
}

absl::StatusOr<v1::Link> FindLink(std::string_view type) { return Find(ListLinks(), "link", type); }

absl::StatusOr<v1::Device> LoadDevice(const std::string& path) {
  v1::Device device;
  absl::Status status = LoadText(path, "device", &device);
  if (!status.ok()) return status;
  return device;
}

absl::StatusOr<v1::Calibration> LoadCalibration(const std::string& path) {
  v1::Calibration calibration;
  absl::Status status = LoadText(path, "calibration", &calibration);
  if (!status.ok()) return status;
  return calibration;
}

double PeakFlops(const v1::Device& device, v1::DType dtype) {
  for (const auto& peak : device.peak_flops()) {
    if (peak.dtype() == dtype) return peak.flops_per_second();
  }
  return 0;
}

double RanksPerCore(const v1::Cluster& cluster) {
  if (cluster.device().kind() != v1::CPU || cluster.host_cores() <= 0) return 1;
  return std::max(1.0, static_cast<double>(cluster.devices_per_node()) / static_cast<double>(cluster.host_cores()));
}

std::string AssumedEfficiencies(const v1::Device& device) {
  const bool assumed = std::any_of(device.efficiencies().begin(), device.efficiencies().end(),
                                   [](const auto& efficiency) { return absl::StartsWith(efficiency.source(), "assumption"); });
  if (!assumed) return "";
  return absl::StrCat("Times are roofline estimates with efficiencies that the catalog assumes for ", device.type(),
                      ", not calibrated by measurements of this cluster (docs/recipe.md, Figures).");
}

absl::StatusOr<v1::Cluster> MakeCluster(const v1::Device& device, int64_t devices_per_node, int64_t nodes) {
  return FillCluster(device, devices_per_node, nodes, v1::Cluster());
}

absl::StatusOr<v1::Cluster> MakeHostCluster(const v1::Device& device, int64_t devices, const HostShare& host, int64_t hosts) {
  v1::Cluster cluster;
  cluster.set_host_memory_bytes(host.memory_bytes);
  cluster.set_host_cores(host.cores);
  return FillCluster(device, devices, hosts, std::move(cluster));
}

absl::StatusOr<v1::Cluster> ParseCluster(std::string_view text, const v1::Device* local_cpu) {
  std::string path(text);
  std::string_view sized = text;
  const std::optional<std::string> link = TakeClusterLink(&sized);
  const size_t colon = sized.rfind(':');
  const bool of_device_file = sized.substr(0, colon).ends_with(".txtpb") && colon != std::string_view::npos;
  if (!of_device_file && (path.find('/') != std::string::npos || path.ends_with(".txtpb"))) return ClusterFromFile(path);
  int64_t per_node = 0, nodes = 0;
  ASSIGN_OR_RETURN(auto device, DeviceOfType(sized.substr(0, colon), local_cpu));
  if (colon == std::string_view::npos || !ParseSizes(sized.substr(colon + 1), &per_node, &nodes)) {
    return FieldError("--cluster", text,
                      absl::StrCat("write TYPE:DEVICES_PER_NODExNODES, such as h100-sxm-80:8x16 (at most ", kMostDevicesPerNode,
                                   " devices in a node and ", kMostNodes,
                                   " nodes; for TYPE also the .txtpb file of a device; @LINK behind it for another link between "
                                   "nodes), or the path of a cluster's .txtpb file"));
  }
  if (link) {
    if (auto known = Find(ListLinks(), "--cluster", *link); !known.ok()) return known.status();
    device.set_cluster_link(*link);
  }
  if (link && nodes == 1)
    return FieldError("--cluster", text, absl::StrCat("has one node, and @", *link, " is a link between nodes: leave it out"));
  RETURN_IF_ERROR(CheckNodeSize(text, device, per_node, nodes));
  auto cluster = MakeCluster(device, per_node, nodes);
  if (cluster.ok() && link) cluster->set_name(absl::StrCat(cluster->name(), "@", *link));
  return cluster;
}

absl::Status CheckCluster(const v1::Cluster& cluster) {
  Checker check;
  check.Whole("devices_per_node", cluster.devices_per_node(), 1, kMostDevicesPerNode);
  check.Whole("nodes", cluster.nodes(), 1, kMostNodes);
  check.Whole("host_memory_bytes", cluster.host_memory_bytes(), 0, kMostBytes);
  check.Whole("host_cores", cluster.host_cores(), 0, kMostNodes);
  check.NotNegative("price_per_gpu_hour", cluster.price_per_gpu_hour());
  CheckDevice(cluster.device(), &check);
  if (check.status().ok()) CheckTiers(cluster, &check);
  return check.status();
}

v1::RunningCost RunningCostOf(const v1::Cluster& cluster, double tokens_per_step, double step_seconds) {
  v1::RunningCost cost;
  if (step_seconds <= 0 || tokens_per_step <= 0) return cost;
  const double tokens_per_second = tokens_per_step / step_seconds;
  const double gpus = static_cast<double>(cluster.devices_per_node() * cluster.nodes());
  cost.set_tokens_per_day(tokens_per_second * 24 * 3600);
  cost.set_gpu_hours_per_billion_tokens(1e9 / tokens_per_second / 3600 * gpus);
  cost.set_price_per_billion_tokens(cost.gpu_hours_per_billion_tokens() * cluster.price_per_gpu_hour());
  return cost;
}

}  // namespace legoai::sim
