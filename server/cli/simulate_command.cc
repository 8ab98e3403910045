#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/files.h"
#include "planner/plan_facts.h"
#include "planner/ranking.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/interrupt.h"
#include "server/cli/job.h"
#include "server/cli/output.h"
#include "server/cli/passes_text.h"
#include "server/cli/prediction_text.h"
#include "server/cli/server_call.h"

namespace legoai::cli {
namespace {

constexpr char kFullTrace[] = "full-trace";
constexpr char kDumpPasses[] = "dump-passes";
constexpr char kPasses[] = "passes";
constexpr char kOut[] = "out";

// A file that lego-sim fills and that is gone with this.
class PassesFile {
 public:
  static absl::StatusOr<PassesFile> Create() {
    std::error_code error;
    std::string path = (std::filesystem::temp_directory_path(error) / "lego-passes-XXXXXX").string();
    const int fd = error ? -1 : mkstemp(path.data());
    if (fd < 0) return FieldError(absl::StrCat("--", kPasses), path, "needs a folder for temporary files: set TMPDIR to one");
    close(fd);
    return PassesFile(std::move(path));
  }
  PassesFile(PassesFile&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  PassesFile& operator=(PassesFile&&) = delete;
  ~PassesFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }

  const std::string& path() const { return path_; }
  Tree Read() const {
    std::ifstream file(path_);
    return Tree::parse(file, nullptr, /*allow_exceptions=*/false);
  }

 private:
  explicit PassesFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

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
  for (const char* option : {"trace", "memory-timeline", kFullTrace, kDumpPasses, kPasses, "benchmark"}) {
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

// `passes`: the file for --passes; empty without it.
absl::StatusOr<v1::Estimate> SimulateHere(const Arguments& arguments, const v1::SimRequest& request, const std::string& passes,
                                          InterruptGuard* guard, ProgressLine* line) {
  auto show = [line](const v1::SimProgress& progress) {
    if (progress.total() > 0) {
      line->Show(BenchmarkText(progress));
    } else {
      line->Note(progress.phase());
    }
  };
  std::vector<std::string> options;
  if (arguments.Has(kFullTrace)) options.push_back(absl::StrCat("--", kFullTrace));
  if (!passes.empty()) options.push_back(absl::StrCat("--", kPasses, "=", passes));
  return EstimateOne(
      request, [guard] { return guard->interrupted(); }, show, options);
}

// What planned buckets are held against: the same recipe with FSDP's collectives as they are without a plan.
std::vector<v1::SimRequest> WithoutPlan(const v1::SimRequest& request) {
  std::vector<v1::SimRequest> others;
  if (request.recipe().compile().fsdp_bucketing() != v1::BUCKET_BY_PLAN) return others;
  for (const v1::FsdpBucketing bucketing : {v1::BUCKET_BY_BLOCK, v1::BUCKET_NOTHING}) {
    v1::SimRequest& other = others.emplace_back();
    *other.mutable_model() = request.model();
    *other.mutable_cluster() = request.cluster();
    *other.mutable_recipe() = request.recipe();
    other.set_cost_mode(request.cost_mode());
    other.mutable_recipe()->mutable_compile()->set_fsdp_bucketing(bucketing);
    if (bucketing == v1::BUCKET_BY_BLOCK) other.mutable_recipe()->mutable_compile()->set_fsdp_reorder(true);
  }
  return others;
}

// What is printed beside the estimate; null where it was not asked for.
struct Besides {
  Tree passes;
  std::vector<v1::Estimate> bucketing;  // the estimate, and without its plan
};

std::string TextOf(const Arguments& arguments, const v1::SimRequest& request, const v1::Estimate& estimate,
                   const Besides& besides) {
  const Tree bucketing = BucketingTree(besides.bucketing);
  if (arguments.format() == Format::kTable) {
    return absl::StrCat(EstimateText(request, estimate), bucketing.empty() ? "" : "\n" + BucketingText(bucketing),
                        besides.passes.is_null() ? "" : "\n" + PassesText(besides.passes));
  }
  Tree tree = ToTree(estimate);
  if (!bucketing.empty()) tree["bucketing"] = bucketing;
  if (!besides.passes.is_null()) tree["passes"] = besides.passes;
  return TreeText(arguments.format(), tree);
}

// The estimate, and what stands beside it.
absl::StatusOr<v1::Estimate> SimulateAll(const Arguments& arguments, const v1::SimRequest& request, Besides* besides) {
  InterruptGuard guard;
  ProgressLine line;
  line.ShowPassing(arguments.Has("benchmark") ? "the step is captured, and its operators are timed on this machine"
                                              : "the step is captured and simulated");
  const auto simulate = [&](const v1::SimRequest& one, const std::string& passes) {
    auto estimate = arguments.Has("server") ? SimulateOnServer(arguments, one, &guard)
                                            : SimulateHere(arguments, one, passes, &guard, &line);
    if (!estimate.ok()) line.Clear();
    return estimate;
  };
  std::optional<PassesFile> passes;
  if (arguments.Has(kPasses)) {
    ASSIGN_OR_RETURN(auto file, PassesFile::Create());
    passes.emplace(std::move(file));
  }
  ASSIGN_OR_RETURN(auto estimate, simulate(request, passes ? passes->path() : ""));
  if (passes) besides->passes = passes->Read();
  for (const v1::SimRequest& other : WithoutPlan(request)) {
    if (besides->bucketing.empty()) besides->bucketing.push_back(estimate);
    auto compared = simulate(other, "");
    if (absl::IsCancelled(compared.status())) return compared.status();
    if (compared.ok()) besides->bucketing.push_back(*std::move(compared));  // what fails beside it says nothing of it
  }
  line.Clear();
  return estimate;
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto request, ReadRequest(arguments));
  ASSIGN_OR_RETURN(const auto out, OutputPath(arguments, kOut));
  if (const std::string note = ContextNote(request.recipe(), request.model()); !note.empty())
    std::fprintf(stderr, "%s\n", note.c_str());
  Besides besides;
  ASSIGN_OR_RETURN(const auto estimate, SimulateAll(arguments, request, &besides));
  Print(TextOf(arguments, request, estimate, besides));
  if (!out.empty()) {
    RETURN_IF_ERROR(checkpoint::WriteFile(out, planner::RankSimulated(estimate).recipe_toml()));
    std::fprintf(stderr, "wrote the recipe as it was simulated to %s\n", arguments.Text(kOut).c_str());
  }
  for (const std::string& path : {request.chrome_trace_path(), request.memory_timeline_path()}) {
    if (!path.empty()) TellOfFile(path);
  }
  if (!request.dump_passes_directory().empty())
    std::fprintf(stderr, "wrote %s: the step before and after each pass\n", request.dump_passes_directory().c_str());
  if (estimate.fits()) return kDone;
  const auto& stage = planner::FullestStage(estimate);
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
      {kPasses, "", "prints what each pass of [compile] does: operators, bytes, predicted exposed communication and memory"},
      {kOut, "FILE", "writes the recipe as it was simulated, with all that was derived: planned compile.fsdp_buckets, too"},
      {"price", "P", "of a GPU for an hour, in any currency: what a billion tokens cost"},
      {"benchmark", "", "times the step's operators on this machine instead of the roofline (clusters of type cpu)"},
      {"server", "ADDRESS", "simulates on this server instead of here: HOST:PORT"}};
  spec.recipe_keys = true;
  spec.example = "lego simulate --model llama3-8b --cluster h100-sxm-80:8x1 --recipe recipe.toml --trace step.json.gz";
  return {spec, Run};
}

}  // namespace legoai::cli
