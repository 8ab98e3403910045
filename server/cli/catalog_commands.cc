#include <google/protobuf/text_format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/checkpoint/files.h"
#include "core/hardware/catalog.h"
#include "core/hardware/host.h"
#include "core/hardware/nvml.h"
#include "core/model/catalog.h"
#include "core/model/model_facts.h"
#include "core/process/host_resources.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/legoai/v1/hardware.pb.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/machine.h"
#include "server/cli/output.h"
#include "simulator/cost/calibration.h"

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

Tree ModelTree(const v1::Model& model) {
  Tree tree;
  tree["name"] = model.name();
  tree["hub_names"] = model::HubNames(model.name());
  tree["parameters"] = model::ParameterCount(model);
  tree["architecture"] = EnumText(model.architecture());
  tree["num_hidden_layers"] = model.num_hidden_layers();
  tree["hidden_size"] = model.hidden_size();
  tree["intermediate_size"] = model.intermediate_size();
  tree["num_attention_heads"] = model.num_attention_heads();
  tree["num_key_value_heads"] = model.num_key_value_heads();
  tree["vocab_size"] = model.vocab_size();
  tree["max_position_embeddings"] = model.max_position_embeddings();
  tree["tie_word_embeddings"] = model.tie_word_embeddings();
  return tree;
}

absl::StatusOr<int> ListModels(const Arguments& arguments) {
  Tree list = Tree::array();
  Table table({"<name", "parameters", "<family", "layers", "width", "inner width", "heads", "kv heads", "token ids",
               "longest context", "<or as on the Hub"});
  for (const v1::Model& model : model::Catalog()) {
    list.push_back(ModelTree(model));
    table.Add({model.name(), WithCommas(model::ParameterCount(model)), EnumText(model.architecture()),
               std::to_string(model.num_hidden_layers()), std::to_string(model.hidden_size()),
               std::to_string(model.intermediate_size()), std::to_string(model.num_attention_heads()),
               std::to_string(model.num_key_value_heads()), WithCommas(model.vocab_size()),
               WithCommas(model.max_position_embeddings()), model::HubNames(model.name()).front()});
  }
  Print(arguments.format() == Format::kTable ? table.Text() : TreeText(arguments.format(), list));
  return kDone;
}

std::string Fraction(double fraction) { return absl::StrFormat("%.3f", fraction); }

std::string FitsTable(const sim::DeviceFit& fit) {
  Table table({"<operators", "<type", "points", "held back", "assumed", "its error", "measured", "error", "90 %", "within 10 %",
               "log RMSE"});
  for (const sim::ClassFit& one : fit.fits) {
    const sim::PredictionError& error = one.measured_error;
    table.Add({sim::OpClassName(one.op_class), EnumText(one.dtype), std::to_string(one.points), std::to_string(one.held_back),
               Fraction(one.assumed), PercentText(one.assumed_error.median), Fraction(one.measured), PercentText(error.median),
               PercentText(error.p90), PercentText(error.within_10_percent), Fraction(error.log_rmse)});
  }
  return table.Text();
}

std::string FiguresText(const v1::Calibration& calibration, const v1::Device& before, const v1::Device& after) {
  std::string text =
      absl::StrCat("kernel launch ", SecondsText(after.kernel_launch_seconds()), " (assumed ",
                   SecondsText(before.kernel_launch_seconds()), "), host dispatch ", SecondsText(after.host_dispatch_seconds()),
                   " (assumed ", SecondsText(before.host_dispatch_seconds()), ")\n");
  for (const auto& memory : calibration.memory()) {
    absl::StrAppend(&text, memory.name(), " ", BandwidthText(memory.bytes_per_second()), "\n");
  }
  for (const auto& load : calibration.sustained()) {
    absl::StrAppend(&text, "products of ", EnumText(load.dtype()), " without pauses: ", FlopsText(load.first_flops_per_second()),
                    " at first, ", FlopsText(load.last_flops_per_second()), " after ", SecondsText(load.seconds()), "\n");
  }
  return text;
}

std::string Heading(const v1::Calibration& calibration) {
  const auto& from = calibration.provenance();
  return absl::StrCat(from.card(), ", ", from.date(), ": ", calibration.operators_size(), " points, ",
                      calibration.left_out_size(), " left out, ", calibration.points_not_reached(), " not reached",
                      from.quick() ? "; shapes too small to rely on (--quick)" : "", "\n");
}

Tree ErrorTree(const sim::PredictionError& error) {
  return {
      {"median", error.median}, {"p90", error.p90}, {"within_10_percent", error.within_10_percent}, {"log_rmse", error.log_rmse}};
}

Tree FitTree(const v1::Calibration& calibration, const sim::DeviceFit& fit) {
  Tree tree;
  tree["provenance"] = ToTree(calibration.provenance());
  tree["fits"] = Tree::array();
  for (const sim::ClassFit& one : fit.fits) {
    tree["fits"].push_back({{"op_class", sim::OpClassName(one.op_class)},
                            {"dtype", EnumText(one.dtype)},
                            {"points", one.points},
                            {"held_back", one.held_back},
                            {"assumed", one.assumed},
                            {"assumed_error", ErrorTree(one.assumed_error)},
                            {"measured", one.measured},
                            {"measured_error", ErrorTree(one.measured_error)}});
  }
  tree["notes"] = fit.notes;
  tree["device"] = ToTree(fit.device);
  return tree;
}

absl::Status WriteDevice(const std::string& path, const v1::Calibration& calibration, const v1::Device& device) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(device, &text);
  const auto& from = calibration.provenance();
  const std::string heading = absl::StrCat("# ", device.type(), " as ", from.card(), " measured it, ", from.date(),
                                           ": made by `lego calibrate`, errors are those of points held back from the fit\n");
  return checkpoint::WriteFile(path, heading + text);
}

absl::StatusOr<int> Calibrate(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto calibration, sim::LoadCalibration(arguments.positional().front()));
  const auto assumed = sim::FindDevice(arguments.Text("type"));
  if (!assumed.ok()) return Annotate(assumed.status(), "--type");
  ASSIGN_OR_RETURN(const auto fit, sim::FitDevice(calibration, *assumed));
  const std::string out = arguments.Text("out");
  if (!out.empty()) {
    RETURN_IF_ERROR(WriteDevice(out, calibration, fit.device));
  }
  if (arguments.format() != Format::kTable) {
    Print(TreeText(arguments.format(), FitTree(calibration, fit)));
    return kDone;
  }
  Print(Heading(calibration) + "\n" + FitsTable(fit) + "\n" + FiguresText(calibration, *assumed, fit.device));
  for (const std::string& note : fit.notes) Print(absl::StrCat("note: ", note, "\n"));
  Print("errors are |predicted / measured - 1| on the points held back: their median, and what 90 % stay below\n");
  if (!out.empty()) Print(absl::StrCat("kept in ", out, ": --cluster ", out, ":8x1 computes with it\n"));
  return kDone;
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

Command ModelsCommand() {
  CommandSpec spec;
  spec.name = "models";
  spec.summary = "Lists the models that are known by name; any Hugging Face config.json of their families works too.";
  spec.details = "A model's name on Hugging Face's Hub stands for it too; -o json lists all of them.";
  spec.example = "lego models";
  return {spec, ListModels};
}

Command CalibrateCommand() {
  CommandSpec spec;
  spec.name = "calibrate";
  spec.summary =
      "Fits a device's efficiencies on what a card measured (lego-measure --device=cuda), and says how well they hold.";
  spec.positional = "FILE";
  spec.least_positional = spec.most_positional = 1;
  spec.options = {{"type", "TYPE", "the catalog's device that the card is (lego hardware)", false, /*required=*/true},
                  {"out", "FILE.txtpb", "where to keep the device, for --cluster FILE.txtpb:8x1"}};
  spec.details = "A class of operators or a type with too few points keeps what the catalog assumes, and is named.";
  spec.example = "lego calibrate calibration.txtpb --type h100-sxm-80 --out my-h100.txtpb";
  return {spec, Calibrate};
}

}  // namespace legoai::cli
