#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/plan_facts.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/interrupt.h"
#include "server/cli/job.h"
#include "server/cli/output.h"
#include "server/cli/prediction_text.h"
#include "server/cli/server_call.h"

namespace legoai::cli {
namespace {

constexpr char kFullTrace[] = "full-trace";
constexpr char kDumpPasses[] = "dump-passes";

// An absolute path: lego-sim writes there, and makes the folder.
absl::StatusOr<std::string> DumpFolder(const Arguments& arguments) {
  const std::string path = arguments.Text(kDumpPasses);
  if (path.empty()) return path;
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  if (!error && std::filesystem::exists(absolute, error) && !std::filesystem::is_directory(absolute, error))
    return FieldError(absl::StrCat("--", kDumpPasses), path, "is no folder: name one, or a new one");
  if (error) return FieldError(absl::StrCat("--", kDumpPasses), path, absl::StrCat("cannot be placed: ", error.message()));
  return absolute.string();
}

absl::StatusOr<v1::SimRequest> ReadRequest(const Arguments& arguments) {
  ASSIGN_OR_RETURN(auto request, ReadSimRequest(arguments.Text("recipe"), arguments));
  ASSIGN_OR_RETURN(const auto trace, OutputPath(arguments, "trace"));
  ASSIGN_OR_RETURN(const auto timeline, OutputPath(arguments, "memory-timeline"));
  if (arguments.Has(kFullTrace) && trace.empty() && timeline.empty())
    return FieldError(absl::StrCat("--", kFullTrace), "", "goes with --trace or --memory-timeline: name a file");
  request.set_details(true);
  if (arguments.Has("benchmark")) request.set_cost_mode(v1::COST_BENCHMARK);
  request.set_chrome_trace_path(trace);
  request.set_memory_timeline_path(timeline);
  ASSIGN_OR_RETURN(*request.mutable_dump_passes_directory(), DumpFolder(arguments));
  return request;
}

absl::StatusOr<v1::Estimate> SimulateOnServer(const Arguments& arguments, const v1::SimRequest& request, InterruptGuard* guard) {
  for (const char* option : {"trace", "memory-timeline", kFullTrace, kDumpPasses, "benchmark"}) {
    if (arguments.Has(option)) return FieldError(absl::StrCat("--", option), "", "goes without --server: it needs this machine");
  }
  ASSIGN_OR_RETURN(const auto client, ConnectTo(arguments));
  v1::SimulateRequest call;
  *call.mutable_request() = request;
  return client->Simulate(call, [guard] { return guard->interrupted(); });
}

void TellOfFile(const std::string& path) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  std::fprintf(stderr, "wrote %s%s (open it in ui.perfetto.dev or chrome://tracing)\n", path.c_str(),
               error ? "" : absl::StrCat(", ", BytesText(static_cast<int64_t>(bytes))).c_str());
}

absl::StatusOr<v1::Estimate> SimulateHere(const Arguments& arguments, const v1::SimRequest& request, InterruptGuard* guard,
                                          ProgressLine* line) {
  auto show = [line](const v1::SimProgress& progress) {
    if (progress.total() > 0) {
      line->Show(BenchmarkText(progress));
    } else {
      line->Note(progress.phase());
    }
  };
  std::vector<std::string> options;
  if (arguments.Has(kFullTrace)) options.push_back(absl::StrCat("--", kFullTrace));
  return EstimateOne(
      request, [guard] { return guard->interrupted(); }, show, options);
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto request, ReadRequest(arguments));
  if (const std::string note = ContextNote(request.recipe(), request.model()); !note.empty())
    std::fprintf(stderr, "%s\n", note.c_str());
  InterruptGuard guard;
  ProgressLine line;
  line.ShowPassing(arguments.Has("benchmark") ? "the step is captured, and its operators are timed on this machine"
                                              : "the step is captured and simulated");
  const auto estimate =
      arguments.Has("server") ? SimulateOnServer(arguments, request, &guard) : SimulateHere(arguments, request, &guard, &line);
  line.Clear();
  if (!estimate.ok()) return estimate.status();
  Print(arguments.format() == Format::kTable ? EstimateText(request, *estimate)
                                             : TreeText(arguments.format(), ToTree(*estimate)));
  for (const std::string& path : {request.chrome_trace_path(), request.memory_timeline_path()}) {
    if (!path.empty()) TellOfFile(path);
  }
  if (!request.dump_passes_directory().empty())
    std::fprintf(stderr, "wrote %s: the step before and after each pass\n", request.dump_passes_directory().c_str());
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
      {"trace", "FILE", "writes the simulated step for ui.perfetto.dev; FILE.gz is compressed"},
      {"memory-timeline", "FILE", "writes memory by category over the step for ui.perfetto.dev; FILE.gz is compressed"},
      {kFullTrace, "", "writes every operator of every microbatch into these, and every point of memory, whatever the size"},
      {kDumpPasses, "DIR", "writes the step as text before and after each pass of [compile], of each stage where there are more"},
      {"price", "P", "of a GPU for an hour, in any currency: what a billion tokens cost"},
      {"benchmark", "", "times the step's operators on this machine instead of the roofline (clusters of type cpu)"},
      {"server", "ADDRESS", "simulates on this server instead of here: HOST:PORT"}};
  spec.recipe_keys = true;
  spec.example = "lego simulate --model llama3-8b --cluster h100-sxm-80:8x1 --recipe recipe.toml --trace step.json.gz";
  return {spec, Run};
}

}  // namespace legoai::cli
