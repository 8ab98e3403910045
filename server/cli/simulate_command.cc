#include "server/cli/simulate_command.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "planner/explain.h"
#include "planner/headroom.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "server/cli/interrupt.h"
#include "server/cli/job.h"
#include "server/cli/machine.h"
#include "server/cli/output.h"
#include "server/cli/progress.h"
#include "server/cli/server_call.h"
#include "simulator/hardware/catalog.h"

namespace legoai::cli {
namespace {

constexpr size_t kBarWidth = 40;

// The fields of a message of numbers with their values: "all_gather_buffer" becomes "all gather buffer".
std::vector<std::pair<std::string, double>> Numbers(const google::protobuf::Message& message, const std::string& suffix) {
  std::vector<std::pair<std::string, double>> numbers;
  const Tree tree = ToTree(message);
  for (const auto& [key, value] : tree.items()) {
    std::string name = key;
    if (name.size() > suffix.size() && name.ends_with(suffix)) name.resize(name.size() - suffix.size());
    numbers.emplace_back(absl::StrReplaceAll(name, {{"_", " "}}), value.get<double>());
  }
  return numbers;
}

std::string TimeTable(const v1::Estimate& estimate) {
  Table table({"<", "time", "share", "<"});
  for (const auto& [name, seconds] : Numbers(estimate.breakdown(), "_seconds")) {
    const double share = estimate.step_time_seconds() > 0 ? seconds / estimate.step_time_seconds() : 0;
    table.Add({name, SecondsText(seconds), PercentText(share), Bar(share, kBarWidth)});
  }
  return table.Text();
}

std::string StageText(const v1::StageEstimate& stage) {
  const int64_t headroom = planner::HeadroomBytes(stage);
  std::string text = absl::StrCat(
      "stage ", stage.stage(), " (rank ", stage.rank(), "): peak ", BytesText(stage.peak_allocated_bytes()), " of ",
      BytesText(planner::UsableBytes(stage)), " usable (", BytesText(stage.capacity_bytes()), " less ",
      BytesText(stage.reserve_bytes()), " reserve), ",
      headroom >= 0 ? BytesText(headroom) + " free" : BytesText(-headroom) + " TOO MUCH", "\n  peak at ", stage.peak_at(), "\n");
  auto categories = Numbers(stage.categories(), "_bytes");
  std::stable_sort(categories.begin(), categories.end(), [](auto& a, auto& b) { return a.second > b.second; });
  Table table({"<  category", "bytes", "share", "<"});
  for (const auto& [name, bytes] : categories) {
    if (bytes == 0) continue;
    const double share = bytes / std::max<double>(1, stage.peak_requested_bytes());
    table.Add({"  " + name, BytesText(bytes), PercentText(share), Bar(share, kBarWidth)});
  }
  return text + table.Text();
}

std::string EstimateText(const v1::SimRequest& request, const v1::Estimate& estimate) {
  std::string text =
      absl::StrCat(estimate.model(), " (", CountText(estimate.parameters()), " parameters) on ", estimate.cluster(), " (",
                   estimate.world_size(), estimate.world_size() == 1 ? " rank" : " ranks", ")\n",
                   planner::Summarize(estimate.recipe()), "\n\n");
  absl::StrAppend(&text, "step time  ", SecondsText(estimate.step_time_seconds()), "\n");
  absl::StrAppend(&text, "throughput ", CountText(estimate.tokens_per_second_per_gpu()), " tokens/s per device\n");
  const std::string utilization = absl::StrCat("MFU ", PercentText(estimate.mfu()), ", HFU ", PercentText(estimate.hfu()));
  absl::StrAppend(&text, estimate.mfu_fault().empty() ? utilization : "MFU unknown: " + estimate.mfu_fault(), ", ",
                  CountText(estimate.model_flops_per_token()), " FLOPs per token\n\n");
  absl::StrAppend(&text, TimeTable(estimate), "\n");
  for (const auto& stage : estimate.stages()) absl::StrAppend(&text, StageText(stage), "\n");
  std::string models;
  for (const auto& model : estimate.cost_models()) {
    absl::StrAppend(&models, models.empty() ? "" : ", ", PercentText(model.share_of_compute_time()), " of compute time by ",
                    model.name());
  }
  absl::StrAppend(&text, WithCommas(estimate.operators()), " operators captured in ", SecondsText(estimate.capture_seconds()),
                  ", simulated in ", SecondsText(estimate.simulate_seconds()), "; ", models, "\n");
  const std::string assumed = sim::AssumedEfficiencies(request.cluster().device());
  if (request.cost_mode() == v1::COST_ROOFLINE && !assumed.empty()) absl::StrAppend(&text, assumed, "\n");
  return text;
}

absl::StatusOr<v1::SimRequest> ReadRequest(const Arguments& arguments) {
  auto recipe = ReadRecipe(arguments.Text("recipe"), arguments);
  if (!recipe.ok()) return recipe.status();
  auto model = ReadModel(arguments, &*recipe);
  if (!model.ok()) return model.status();
  auto cluster = ResolveCluster(arguments.Text("cluster"));
  if (!cluster.ok()) return cluster.status();
  const auto trace = OutputPath(arguments, "trace"), timeline = OutputPath(arguments, "memory-timeline");
  if (!trace.ok()) return trace.status();
  if (!timeline.ok()) return timeline.status();
  v1::SimRequest request;
  *request.mutable_model() = *std::move(model);
  *request.mutable_cluster() = *std::move(cluster);
  *request.mutable_recipe() = *std::move(recipe);
  request.set_cost_mode(arguments.Has("benchmark") ? v1::COST_BENCHMARK : v1::COST_ROOFLINE);
  request.set_chrome_trace_path(*trace);
  request.set_memory_timeline_path(*timeline);
  return request;
}

absl::StatusOr<v1::Estimate> SimulateOnServer(const Arguments& arguments, const v1::SimRequest& request, InterruptGuard* guard) {
  for (const char* option : {"trace", "memory-timeline", "benchmark"}) {
    if (arguments.Has(option)) return FieldError(absl::StrCat("--", option), "", "goes without --server: it needs this machine");
  }
  const auto client = ConnectTo(arguments);
  if (!client.ok()) return client.status();
  v1::SimulateRequest call;
  *call.mutable_request() = request;
  return (*client)->Simulate(call, [guard] { return guard->interrupted(); });
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  const auto request = ReadRequest(arguments);
  if (!request.ok()) return request.status();
  InterruptGuard guard;
  ProgressLine line;
  line.ShowPassing(arguments.Has("benchmark") ? "the step is captured, and its operators are timed on this machine"
                                              : "the step is captured and simulated");
  const auto estimate = arguments.Has("server")
                            ? SimulateOnServer(arguments, *request, &guard)
                            : EstimateOne(
                                  *request, [&] { return guard.interrupted(); },
                                  [&](const v1::SimProgress& progress) { line.Show(BenchmarkText(progress)); });
  line.Clear();
  if (!estimate.ok()) return estimate.status();
  Print(arguments.format() == Format::kTable ? EstimateText(*request, *estimate)
                                             : TreeText(arguments.format(), ToTree(*estimate)));
  for (const std::string& path : {request->chrome_trace_path(), request->memory_timeline_path()}) {
    if (!path.empty()) std::fprintf(stderr, "wrote %s (open it in ui.perfetto.dev or chrome://tracing)\n", path.c_str());
  }
  if (estimate->fits()) return kDone;
  const auto& stage = planner::FullestStage(*estimate);
  std::fprintf(stderr,
               "lego simulate: does not fit: stage %lld needs %s, %s are usable; more devices to shard over, full checkpointing, "
               "a smaller "
               "local batch or a shorter sequence would help, and `lego plan` finds what fits\n",
               static_cast<long long>(stage.stage()), BytesText(stage.peak_allocated_bytes()).c_str(),
               BytesText(planner::UsableBytes(stage)).c_str());
  return kNothingFits;
}

}  // namespace

Command SimulateCommand() {
  CommandSpec spec;
  spec.name = "simulate";
  spec.summary = "Predicts step time and memory of one recipe; no device is needed. Exit code 3: it does not fit.";
  spec.options = {
      {"model", "M", "config.json, its folder, or a name of `lego models`; the recipe's [model] name if it is not given"},
      {"cluster", "C", "TYPE:DEVICES_PER_NODExNODES[@LINK] (`lego hardware`), or a Cluster as a text-format file", false, true},
      {"recipe", "R.toml", "the recipe", false, true},
      {"trace", "FILE", "writes the simulated streams as a Chrome trace"},
      {"memory-timeline", "FILE", "writes memory by category over the step as a Chrome trace"},
      {"benchmark", "", "times the step's operators on this machine instead of the roofline (clusters of type cpu)"},
      {"server", "ADDRESS", "simulates on this server instead of here: HOST:PORT"}};
  spec.recipe_keys = true;
  spec.example = "lego simulate --model llama3-8b --cluster h100-sxm-80:8x1 --recipe recipe.toml --trace step.json";
  return {spec, Run};
}

}  // namespace legoai::cli
