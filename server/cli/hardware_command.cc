#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/hardware/catalog.h"
#include "core/hardware/host.h"
#include "core/hardware/nvml.h"
#include "core/process/host_resources.h"
#include "proto/errors.h"
#include "proto/legoai/v1/hardware.pb.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/machine.h"
#include "server/cli/output.h"

namespace legoai::cli {
namespace {

std::string Peak(const v1::Device& device, v1::DType dtype) {
  const double peak = sim::PeakFlops(device, dtype);
  return peak > 0 ? FlopsText(peak) : "-";
}

void AddDevice(const std::string& name, const v1::Device& device, Table* table) {
  const bool host = device.kind() == v1::CPU;
  std::string node_link = device.node_link();
  if (device.has_measured_node_link()) {
    absl::StrAppend(&node_link, " (", BandwidthText(device.measured_node_link().bandwidth_bytes_per_second()), ")");
  }
  table->Add({name, Peak(device, v1::BFLOAT16), Peak(device, v1::FLOAT32),
              BytesText(device.memory_bytes() > 0 ? device.memory_bytes() : launch::HostMemoryBytes()),
              BytesText(device.reserve_bytes()), BandwidthText(device.memory_bandwidth_bytes_per_second()), node_link,
              device.cluster_link(), host ? "one core; its memory is divided among the ranks" : ""});
}

std::string DevicesTable(const std::optional<v1::Device>& host) {
  Table table({"<type", "peak bf16", "peak fp32", "memory", "reserve", "bandwidth", "<in a node", "<between nodes", "<"});
  for (const v1::Device& device : sim::ListDevices()) {
    if (host && device.kind() == v1::CPU) continue;
    AddDevice(device.type(), device, &table);
  }
  if (host) AddDevice(host->type() + " (measured)", *host, &table);
  return table.Text();
}

std::string LinksTable() {
  Table table({"<link", "bandwidth", "latency", "efficiency"});
  for (const v1::Link& link : sim::ListLinks()) {
    table.Add({link.type(), BandwidthText(link.bandwidth_bytes_per_second()), SecondsText(link.latency_seconds()),
               PercentText(link.efficiency())});
  }
  return table.Text();
}

// This machine's, as CUDA_VISIBLE_DEVICES leaves them. None and a reason where there is none, or they cannot be asked.
struct HostGpus {
  std::vector<sim::Gpu> gpus;
  std::string reason;
};

HostGpus ReadGpus() {
  auto report = sim::ReadNvml();
  if (report.ok()) return {std::move(report->gpus), ""};
  const bool none = absl::IsFailedPrecondition(report.status());
  return {{}, none ? "none that CUDA can use" : std::string(report.status().message())};
}

// The catalog's type of a card; empty: it is not there.
std::string TypeOf(const sim::Gpu& gpu) {
  const auto device = sim::FindDeviceOfGpu(gpu.name, gpu.memory_bytes);
  return device.ok() ? device->type() : "";
}

Tree GpusTree(const std::vector<sim::Gpu>& gpus) {
  Tree tree = Tree::array();
  for (const sim::Gpu& gpu : gpus) {
    tree.push_back({{"index", gpu.index},
                    {"uuid", gpu.uuid},
                    {"name", gpu.name},
                    {"type", TypeOf(gpu).empty() ? Tree(nullptr) : Tree(TypeOf(gpu))},
                    {"memory_bytes", gpu.memory_bytes}});
  }
  return tree;
}

std::string GpusLines(const HostGpus& found) {
  if (found.gpus.empty()) return absl::StrCat("GPUs: ", found.reason, "\n");
  std::string text;
  for (const sim::Gpu& gpu : found.gpus) {
    const std::string type = TypeOf(gpu);
    absl::StrAppend(&text, "GPU ", gpu.index, ": ", gpu.name, ", ", BytesText(gpu.memory_bytes), ", ", gpu.uuid, ", ",
                    type.empty() ? "not in the catalog" : type, "\n");
  }
  return text;
}

absl::StatusOr<int> List(const Arguments& arguments) {
  ASSIGN_OR_RETURN(auto host, LoadHostDevice());
  if (host) WarnIfMeasuredBusy(*host);
  if (arguments.format() != Format::kTable) {
    Tree tree;
    tree["devices"] = Tree::array();
    for (const v1::Device& device : sim::ListDevices()) tree["devices"].push_back(ToTree(device));
    tree["links"] = Tree::array();
    for (const v1::Link& link : sim::ListLinks()) tree["links"].push_back(ToTree(link));
    tree["this_machine"] = host.has_value() ? ToTree(*host) : Tree(nullptr);
    tree["gpus"] = GpusTree(ReadGpus().gpus);
    tree["host"] = {{"cores", sim::HostPhysicalCores()}, {"memory_bytes", launch::HostMemoryBytes()}};
    Print(TreeText(arguments.format(), tree));
    return kDone;
  }
  Print(DevicesTable(host) + "\n" + LinksTable());
  Print(absl::StrCat("\nthis machine: ", sim::HostPhysicalCores(), " physical cores, ", BytesText(launch::HostMemoryBytes()),
                     host.has_value() ? ", measured" : ", not measured: run `lego hardware --measure`", "\n",
                     GpusLines(ReadGpus()),
                     "bandwidths are one way, for one device; a device's file has the source of every number\n"));
  return kDone;
}

absl::StatusOr<int> Measure(const Arguments& arguments) {
  const std::string path = arguments.Text("out", HostDevicePath());
  ASSIGN_OR_RETURN(const auto device, MeasureHost("--out", path));
  if (arguments.format() == Format::kTable) {
    Print(DevicesTable(device) + "\nkept in " + path + ", used for clusters of type cpu\n");
  } else {
    Print(TreeText(arguments.format(), ToTree(device)));
  }
  return kDone;
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  if (arguments.Has("measure")) return Measure(arguments);
  if (arguments.Has("out")) return FieldError("--out", arguments.Text("out"), "goes with --measure");
  return List(arguments);
}

}  // namespace

Command HardwareCommand() {
  CommandSpec spec;
  spec.name = "hardware";
  spec.summary = "Lists the devices and links that clusters are made of, or measures this machine's CPU.";
  spec.options = {
      {"measure", "", "measures matrix products, memory bandwidth and dispatch of this machine's cores, about ten seconds"},
      {"out", "FILE", "with --measure: where to keep the result (~/.cache/legoai/this-machine.txtpb, or LEGOAI_HOST_DEVICE)"}};
  spec.example = "lego hardware --measure";
  return {spec, Run};
}

}  // namespace legoai::cli
