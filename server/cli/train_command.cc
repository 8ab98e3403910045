#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "core/checkpoint/directory.h"
#include "core/flight/flight_analysis.h"
#include "core/hardware/catalog.h"
#include "core/hardware/host.h"
#include "core/hardware/nvml.h"
#include "core/process/run_directory.h"
#include "core/recipe/recipe.h"
#include "planner/explain.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/gang_options.h"
#include "server/cli/interrupt.h"
#include "server/cli/job.h"
#include "server/cli/job_file.h"
#include "server/cli/machine.h"
#include "server/cli/output.h"
#include "server/cli/restarts.h"
#include "server/cli/train_layout.h"
#include "worker/launch/gpus.h"
#include "worker/launch/run_training.h"

namespace legoai::cli {
namespace {

constexpr int64_t kMostRestarts = 1 << 20;
constexpr int64_t kMostRanks = 1 << 16;  // as a cluster's node has devices at the most

// --nproc, or what the recipe's degrees ask for; where they leave the sharding open, all `places`: physical cores, or GPUs.
absl::StatusOr<int64_t> ReadRanks(const Arguments& arguments, const v1::Recipe& recipe, int64_t places) {
  ASSIGN_OR_RETURN(const auto nproc, arguments.Integer("nproc", 1, kMostRanks));
  if (nproc) return *nproc;
  const v1::Parallelism& p = recipe.parallelism();
  int64_t ranks = 1;  // without the sharding that is left open
  for (const int64_t degree : {p.data_parallel_replicate_degree(), p.context_parallel_degree(), p.tensor_parallel_degree(),
                               p.pipeline_parallel_degree(), std::max<int64_t>(1, p.data_parallel_shard_degree())}) {
    if (degree > kMostRanks / ranks)
      return FieldError("parallelism", "", absl::StrCat("its degrees ask for more than ", kMostRanks, " ranks: lower them"));
    ranks *= degree;
  }
  if (p.data_parallel_shard_degree() > 0) return ranks;
  return std::max<int64_t>(1, places / ranks) * ranks;
}

// Those that this process may use, in their order; none without `device` cuda.
absl::StatusOr<std::vector<sim::Gpu>> VisibleGpus(const std::string& device) {
  if (device != "cuda") return std::vector<sim::Gpu>();
  ASSIGN_OR_RETURN(auto report, sim::ReadNvml());
  return std::move(report.gpus);
}

// What each of these cards can do; 0 where they are not alike, or the catalog does not know them: then no MFU is told.
double PeakOfGpus(const std::vector<sim::Gpu>& gpus, v1::DType dtype) {
  const auto device = sim::FindDeviceOfGpu(gpus.front().name, gpus.front().memory_bytes);
  return device.ok() && sim::AreAlike(gpus) ? sim::TruePeakFlops(*device, dtype) : 0;
}

// `gpus` become the first of them, one for each rank of `request`.
absl::Status ComputeOnFirst(std::vector<sim::Gpu>* gpus, launch::TrainRequest* request) {
  if (request->nproc > std::ssize(*gpus)) {
    return FieldError("--nproc", absl::StrCat(request->nproc),
                      absl::StrCat("is more than the GPUs that can be used here, ", gpus->size(),
                                   ", and each rank has one of its own: train with fewer ranks, or with --device cpu"));
  }
  gpus->resize(static_cast<size_t>(request->nproc));
  std::vector<std::string> uuids;
  for (const sim::Gpu& gpu : *gpus) uuids.push_back(gpu.uuid);
  launch::ComputeOnGpus(std::move(uuids), sim::HostPhysicalCores() / request->nproc, request);
  return absl::OkStatus();
}

struct TrainCall {
  launch::TrainRequest request;
  std::vector<sim::Gpu> gpus;  // one for each rank; none on the CPU
  v1::Cluster cluster;         // this machine, a core or GPU for each rank
  v1::JobSpec spec;            // as the file says it
};

// Of CPU ranks this machine's cores; of GPUs the catalog's device that the first one is, as agents take it.
absl::StatusOr<v1::Cluster> ClusterHere(const std::string& device, int64_t ranks) {
  if (device == "cpu") return ResolveCluster(absl::StrCat("cpu:", ranks, "x1"));
  ASSIGN_OR_RETURN(const auto report, sim::ReadNvml());
  if (report.gpus.empty()) return FieldError("--device", device, "there is no GPU that can be used here");
  ASSIGN_OR_RETURN(const auto gpu, sim::FindDeviceOfGpu(report.gpus[0].name, report.gpus[0].memory_bytes));
  return sim::MakeCluster(gpu, ranks, 1);
}

// Ranks of this host, one of `hosts`: --nproc, or its part of [resources] slots, or of what the recipe asks for.
absl::StatusOr<int64_t> RanksOf(const Arguments& arguments, const v1::JobSpec& spec, const v1::Recipe& recipe, int64_t places,
                                int64_t hosts) {
  if (!arguments.Has("nproc") && spec.resources().slots() > 0) {
    if (spec.resources().slots() <= kMostRanks) return RanksOfEach(spec.resources().slots(), hosts);
    return FieldError("resources.slots", absl::StrCat(spec.resources().slots()), absl::StrCat("must be at most ", kMostRanks));
  }
  ASSIGN_OR_RETURN(const int64_t ranks, ReadRanks(arguments, recipe, places * hosts));
  return arguments.Has("nproc") ? ranks : RanksOfEach(ranks, hosts);
}

// What all hosts of a gang must have alike.
std::string KindOf(const std::vector<sim::Gpu>& gpus) {
  std::set<std::string> names;
  for (const sim::Gpu& gpu : gpus) names.insert(gpu.name);
  return names.empty() ? "cpu" : absl::StrJoin(names, ", ");
}

absl::StatusOr<TrainCall> ReadCall(const Arguments& arguments) {
  ASSIGN_OR_RETURN(auto spec, ParseJobFile(arguments.positional()[0], arguments.recipe_keys()));
  ASSIGN_OR_RETURN(auto model, ReadModel(arguments, spec.mutable_recipe()));
  v1::Recipe recipe = spec.recipe();
  parallel::FillDefaults(&recipe);
  const std::string device = arguments.Text("device", "cpu");
  if (device != "cpu" && device != "cuda") return FieldError("--device", device, "must be cpu or cuda");
  if (device != "cpu" && arguments.Has("predict"))
    return FieldError("--predict", "", "goes with --device cpu: it simulates this machine's cores");
  ASSIGN_OR_RETURN(auto gang, ReadGang(arguments));
  if (gang) {
    RETURN_IF_ERROR(CheckGang(arguments, spec, recipe));
  }
  ASSIGN_OR_RETURN(auto gpus, VisibleGpus(device));
  ASSIGN_OR_RETURN(auto nproc, RanksOf(arguments, spec, recipe, device == "cuda" ? std::ssize(gpus) : sim::HostPhysicalCores(),
                                       gang ? gang->hosts : 1));
  ASSIGN_OR_RETURN(auto trainer, FindTrainer());
  TrainCall call;
  call.request.nproc = nproc;
  call.request.trainer = trainer;
  call.request.fresh = arguments.Has("fresh");
  call.request.accept_other_build = arguments.Has("accept-other-build");
  call.request.model = std::move(model);
  call.request.recipe = std::move(recipe);
  call.spec = std::move(spec);
  call.gpus = std::move(gpus);
  if (device == "cuda") {
    RETURN_IF_ERROR(ComputeOnFirst(&call.gpus, &call.request));
  }
  if (gang) {
    gang->device = KindOf(call.gpus);
    call.request.gang = std::move(gang);
  }
  if (device == "cpu" || LeavesLayoutOpen(call.spec)) {
    ASSIGN_OR_RETURN(auto cluster, ClusterHere(device, nproc));
    call.cluster = std::move(cluster);
  }
  return call;
}

void Tell(const std::string& line) {
  if (line.empty()) return;
  const size_t end = line.rfind("note:", 0) == 0 ? 5 : 0;
  const std::string text = Colored(end > 0 ? Color::kYellow : Color::kNone, line.substr(0, end), Stream::kErr) + line.substr(end);
  std::fprintf(stderr, "%s\n", Shown(text, Stream::kErr).c_str());
}

std::string BucketsText(const v1::CompileSection& compile) {
  const std::string buckets = absl::StrCat(compile.fsdp_buckets_size(), " buckets");
  const int backward = compile.fsdp_backward_buckets_size();
  return backward > 0 ? absl::StrCat(buckets, ", ", backward, " others in backward") : buckets;
}

// compile.fsdp_buckets for this machine, where the recipe leaves them to a plan.
absl::Status FillBuckets(InterruptGuard* guard, TrainCall* call) {
  v1::Recipe& recipe = call->request.recipe;
  if (recipe.compile().fsdp_bucketing() != v1::BUCKET_BY_PLAN) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto kept,
                   BucketsAsBefore({call->spec, call->request.model, call->cluster, call->request.fresh}, recipe));
  if (kept) {
    *recipe.mutable_compile() = *kept;
    Tell(absl::StrCat("compile.fsdp_buckets as they were planned before: ", BucketsText(*kept)));
    return absl::OkStatus();
  }
  v1::SimRequest request;
  *request.mutable_model() = call->request.model;
  *request.mutable_cluster() = call->cluster;
  *request.mutable_recipe() = recipe;
  ASSIGN_OR_RETURN(const auto estimate, EstimateOne(request, [guard] { return guard->interrupted(); }));
  *recipe.mutable_compile() = estimate.recipe().compile();
  Tell(absl::StrCat("planned compile.fsdp_buckets for ", estimate.cluster(), ": ", BucketsText(recipe.compile()), "; ",
                    SecondsText(estimate.breakdown().exposed_communication_seconds()),
                    " of exposed communication in a step of ", SecondsText(estimate.step_time_seconds()), " predicted"));
  return absl::OkStatus();
}

// Fills in what the file leaves open, and what follows from it. False: nothing fits, which is told.
absl::StatusOr<bool> FillLayout(InterruptGuard* guard, TrainCall* call) {
  launch::TrainRequest& request = call->request;
  if (LeavesLayoutOpen(call->spec)) {
    ASSIGN_OR_RETURN(const auto chosen, ChooseLayout({call->spec, request.model, call->cluster, request.fresh}, guard));
    Tell(chosen.text);
    if (!chosen.recipe) return false;
    request.recipe = *chosen.recipe;
  } else {
    Tell(PrecisionNote(call->spec.recipe(), call->cluster));
  }
  RETURN_IF_ERROR(FillBuckets(guard, call));
  if (request.gang) Tell(CrossingNote(request.recipe, request.nproc));
  Tell(WarmUpNote(request.recipe));
  Tell(ContextNote(request.recipe, request.model));
  const v1::DType dtype = request.recipe.training().mixed_precision_param();
  request.peak_flops_per_second = call->gpus.empty()
                                      ? sim::TruePeakFlops(call->cluster.device(), dtype) / sim::RanksPerCore(call->cluster)
                                      : PeakOfGpus(call->gpus, dtype);
  return true;
}

int64_t HostsOf(const TrainCall& call) { return call.request.gang ? call.request.gang->hosts : 1; }

std::string PreparedText(const launch::PreparedTraining& prepared, int64_t hosts) {
  const v1::Start& start = prepared.start;
  std::string text = absl::StrCat(
      start.model().name(), ", ", WithCommas(prepared.parameters), " parameters, on ", start.world_size(),
      start.world_size() == 1 ? " rank of " : " ranks of ", hosts == 1 ? "this machine: " : absl::StrCat(hosts, " hosts: "),
      planner::Summarize(start.recipe()), "\n",
      start.dataset().uri(), ": ", WithCommas(prepared.tokens), " tokens, unigram entropy ",
      absl::StrFormat("%.4f", prepared.unigram_entropy), " nats per token\n");
  const int64_t steps = start.recipe().training().steps();
  if (prepared.finished) {
    absl::StrAppend(&text, "all ", steps, " steps are done in ", start.run_directory(), "; --fresh begins anew");
  } else if (prepared.checkpoint) {
    absl::StrAppend(&text, "goes on from step ", *prepared.checkpoint, " of ", steps, " in ", start.run_directory());
  } else {
    absl::StrAppend(&text, steps, " steps into ", start.run_directory());
  }
  return text;
}

// What is shown while it trains.
class TrainingDisplay {
 public:
  TrainingDisplay(InterruptGuard* guard, int64_t hosts) : guard_(guard), hosts_(hosts) {}

  launch::TrainCallbacks Callbacks() {
    launch::TrainCallbacks callbacks;
    callbacks.prepared = [this](const launch::PreparedTraining& prepared) {
      steps_ = prepared.start.recipe().training().steps();
      run_directory_ = prepared.start.run_directory();
      line_.Note(PreparedText(prepared, hosts_));
      guard_->Announce("stopping: this step is finished and saved; Ctrl-C again to stop now",
                       "stopping now; this step is not saved");
    };
    callbacks.progress = [this](const v1::Progress& progress) {
      if (!progress.waits().empty()) {
        if (!std::exchange(waits_, true)) line_.Note(absl::StrCat("waits: ", progress.waits()));
        return line_.ShowPassing(absl::StrCat("waits: ", progress.waits()));
      }
      if (std::exchange(waits_, false)) line_.Note("goes on: what it waited for is there");
      const double share = progress.total() > 0 ? std::min(1.0, 1.0 * progress.done() / progress.total()) : 0;
      const std::string phase = absl::StrCat(progress.phase(), share > 0 ? " " + PercentText(share) : "");
      if (shown_step_ == 0) line_.Show(phase);
      if (shown_step_ > 0 && share > 0) line_.ShowPassing(absl::StrCat("step ", progress.step(), "/", steps_, "  ", phase));
    };
    callbacks.metrics = [this](const v1::StepMetrics& metrics) { Show(metrics); };
    callbacks.step_trace = [this](int64_t rank, const v1::StepTraceWritten& written) {
      line_.Note(absl::StrCat("step ", written.step(), " of rank ", rank, " is traced in ", written.path()));
    };
    callbacks.flight_dumped = [this](const v1::FlightDump& dump) { dumps_.push_back(dump); };
    callbacks.log = [this](const std::string& level, const std::string& text) {
      line_.Note(absl::StrCat(Colored(level == "error" ? Color::kRed : Color::kYellow, level, Stream::kErr), ": ", text));
    };
    return callbacks;
  }

  ProgressLine& line() { return line_; }
  // Everything was in order, and the ranks were started.
  bool begun() const { return !run_directory_.empty(); }
  const std::string& run_directory() const { return run_directory_; }
  // Of all ranks, if something went wrong with one.
  const std::vector<v1::FlightDump>& dumps() const { return dumps_; }

 private:
  void Show(const v1::StepMetrics& metrics) {
    shown_step_ = metrics.step();
    std::string text = absl::StrCat("step ", metrics.step(), "/", steps_);
    if (metrics.has_loss()) absl::StrAppend(&text, absl::StrFormat("  loss %.4f", metrics.loss()));
    if (metrics.has_validation_loss()) held_out_ = metrics.validation_loss();
    if (held_out_) absl::StrAppend(&text, absl::StrFormat("  held-out %.4f", *held_out_));
    absl::StrAppend(&text, "  ", CountText(metrics.tokens_per_second()), " tokens/s");
    if (metrics.has_mfu()) absl::StrAppend(&text, "  MFU ", PercentText(metrics.mfu()));
    if (metrics.hfu() > metrics.mfu()) absl::StrAppend(&text, "  HFU ", PercentText(metrics.hfu()));
    if (metrics.has_exposed_communication_share())
      absl::StrAppend(&text, "  exposed ", PercentText(metrics.exposed_communication_share()));
    const double each = pace_.Observe(metrics.step(), metrics.step_seconds(), absl::Now());
    absl::StrAppend(&text, "  ", DurationText(each * (steps_ - metrics.step())), " left");
    line_.Show(text);
  }

  InterruptGuard* const guard_;
  const int64_t hosts_;
  ProgressLine line_;
  std::string run_directory_;
  std::vector<v1::FlightDump> dumps_;
  int64_t steps_ = 0, shown_step_ = 0;
  bool waits_ = false;  // for room, as it was told
  Pace pace_;
  std::optional<double> held_out_;
};

const char* CauseText(const launch::TrainOutcome& outcome) {
  if (outcome.attempt == 0) return outcome.cause == v1::Exit::STOPPED ? "stopped before it began" : "finished before";
  return outcome.cause == v1::Exit::FINISHED ? "finished" : "stopped";
}

int64_t PeakOfRanks(const launch::TrainOutcome& outcome) {
  const auto& peaks = outcome.peak_memory_bytes;
  return peaks.empty() ? 0 : *std::max_element(peaks.begin(), peaks.end());
}

int64_t PredictedPeak(const v1::Estimate& estimate) {
  int64_t peak = 0;
  for (const auto& stage : estimate.stages()) peak = std::max(peak, stage.peak_requested_bytes());
  return peak;
}

Tree OutcomeTree(const launch::TrainOutcome& outcome, const std::optional<v1::Estimate>& predicted) {
  auto known = [](const auto& value) { return value ? Tree(*value) : Tree(nullptr); };
  Tree tree;
  tree["cause"] = CauseText(outcome);
  tree["step"] = outcome.step;
  tree["attempt"] = outcome.attempt;
  tree["resumed_from"] = known(outcome.resumed_from);
  tree["run_directory"] = outcome.run_directory;
  tree["hf_directory"] = outcome.hf_directory.empty() ? Tree(nullptr) : Tree(outcome.hf_directory);
  tree["median_step_seconds"] = known(outcome.median_step_seconds);
  tree["peak_memory_bytes"] = outcome.peak_memory_bytes;
  tree["validation_loss"] = known(outcome.validation_loss);
  tree["unigram_entropy"] = outcome.prepared.unigram_entropy;
  tree["predicted_step_seconds"] = predicted ? Tree(predicted->step_time_seconds()) : Tree(nullptr);
  tree["predicted_peak_memory_bytes"] = predicted ? Tree(PredictedPeak(*predicted)) : Tree(nullptr);
  return tree;
}

std::string OutcomeText(const launch::TrainOutcome& outcome, const std::optional<v1::Estimate>& predicted) {
  std::string text = absl::StrCat(CauseText(outcome), " at step ", outcome.step, " in ", outcome.run_directory, "\n");
  if (outcome.validation_loss) {
    absl::StrAppend(&text, absl::StrFormat("held-out loss %.4f nats per token; unigram entropy of the text %.4f; ratio %.3f\n",
                                           *outcome.validation_loss, outcome.prepared.unigram_entropy,
                                           *outcome.validation_loss / outcome.prepared.unigram_entropy));
  }
  if (!outcome.hf_directory.empty()) absl::StrAppend(&text, "Hugging Face folder: ", outcome.hf_directory, "\n");
  if (!outcome.median_step_seconds) return text;
  Table table({"<", "predicted", "measured", "error"});
  auto row = [&](const char* name, double said, double was, auto unit) {
    table.Add(
        {name, predicted ? unit(said) : "-", unit(was), predicted ? absl::StrFormat("%+.1f %%", 100 * (said / was - 1)) : "-"});
  };
  row("step time", predicted ? predicted->step_time_seconds() : 0, *outcome.median_step_seconds, SecondsText);
  if (PeakOfRanks(outcome) > 0)
    row("peak memory of a rank", predicted ? PredictedPeak(*predicted) : 0, PeakOfRanks(outcome), BytesText);
  return text + "\n" + table.Text();
}

absl::StatusOr<std::optional<v1::Estimate>> Predict(const Arguments& arguments, const TrainCall& call, InterruptGuard* guard) {
  if (!arguments.Has("predict")) return std::optional<v1::Estimate>();
  v1::SimRequest request;
  *request.mutable_model() = call.request.model;
  *request.mutable_cluster() = call.cluster;
  *request.mutable_recipe() = call.request.recipe;
  request.set_cost_mode(v1::COST_BENCHMARK);  // the machine that trains is the one at hand
  ProgressLine line;
  line.Show("predicting: the step is captured, and its operators are timed on this machine");
  auto estimate = EstimateOne(
      request, [&] { return guard->interrupted(); },
      [&](const v1::SimProgress& progress) { line.Show(BenchmarkText(progress)); });
  line.Clear();
  if (!estimate.ok()) return Annotate(estimate.status(), "--predict");
  return std::optional<v1::Estimate>(*std::move(estimate));
}

absl::StatusOr<int> DryRun(const Arguments& arguments, const TrainCall& call, const std::optional<v1::Estimate>& predicted) {
  ASSIGN_OR_RETURN(const auto prepared, launch::PrepareTraining(call.request, ""));
  if (arguments.format() != Format::kTable) {
    Print(TreeText(arguments.format(), ToTree(prepared.start)));
    return kDone;
  }
  Print(PreparedText(prepared, HostsOf(call)) + "\n");
  for (const v1::CheckpointDamage& damage : prepared.damaged) Print(checkpoint::DamageText(damage) + ", and is passed over\n");
  for (const std::string& change : prepared.changes) Print(change + "\n");
  if (predicted) {
    Print(absl::StrCat("predicted: ", SecondsText(predicted->step_time_seconds()), " a step, peak memory of a rank ",
                       BytesText(PredictedPeak(*predicted)), "\n"));
  }
  Print("dry run: everything that can be checked before is in order; nothing was started\n");
  return kDone;
}

// What is left after a failure that was in no one's input, and where to look.
std::string AfterFailure(const std::string& run_directory) {
  const auto root = launch::CheckpointsOfRun(run_directory);
  const auto steps = root.ok() ? checkpoint::ListCheckpoints(*root) : root.status();
  const std::string next =
      !steps.ok() ? absl::StrCat("goes on from the latest checkpoint, if there is one, which could not be found out (",
                                 steps.status().message(), ")")
      : steps->empty() ? std::string("begins anew, as there is no checkpoint")
                       : absl::StrCat("goes on from the checkpoint of step ", steps->back());
  return absl::StrCat("the same call ", next, "; what each rank was doing: `lego fr ", run_directory, "`, and ",
                      launch::LogsPath(run_directory));
}

// "; rank 1 has not entered all_gather 17 of dp_shard, in which ranks 0,2 wait"; empty where nobody waits in a communication.
std::string WaitText(const std::vector<v1::FlightDump>& dumps) {
  if (dumps.empty()) return "";
  const v1::FlightAnalysis analysis = comm::AnalyzeFlight(dumps, dumps[0].world_size());
  return analysis.findings().empty() ? "" : absl::StrCat("; ", analysis.findings(0).text());
}

// A rank that died or hung, or a full disk, after the training had begun: says at which collective, and how to go on.
absl::Status WithAdvice(const absl::Status& failure, const TrainingDisplay& display) {
  if (!absl::IsUnavailable(failure) && !absl::IsDeadlineExceeded(failure) && !absl::IsResourceExhausted(failure)) return failure;
  absl::Status advised(failure.code(),
                       absl::StrCat(failure.message(), WaitText(display.dumps()), "\n", AfterFailure(display.run_directory())));
  failure.ForEachPayload([&](auto url, const absl::Cord& payload) { advised.SetPayload(url, payload); });
  return advised;
}

// A rank, a host or the network failed, and nothing that would fail again.
bool MayPass(const absl::Status& failure) {
  return (absl::IsUnavailable(failure) || absl::IsDeadlineExceeded(failure)) && !GetFieldViolation(failure);
}

absl::StatusOr<std::optional<int64_t>> LatestCheckpoint(const v1::Recipe& recipe) {
  ASSIGN_OR_RETURN(const auto steps, checkpoint::ListCheckpoints(launch::CheckpointsOf(recipe, recipe.job().dump_folder())));
  return steps.empty() ? std::nullopt : std::optional<int64_t>(steps.back());
}

// False: somebody asked to stop meanwhile.
bool Pause(absl::Duration pause, InterruptGuard* guard) {
  const auto until = std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(pause);
  while (std::chrono::steady_clock::now() < until && !guard->interrupted()) guard->stop_pipe()->Await();
  return !guard->interrupted();
}

// Trains, and after such a failure once more from the latest checkpoint, as often as `count` says.
absl::StatusOr<launch::TrainOutcome> Train(TrainCall* call, int64_t count, InterruptGuard* guard) {
  launch::TrainRequest& request = call->request;
  Restarts restarts(count, absl::Seconds(request.recipe.comm().init_timeout_seconds()));
  std::optional<int64_t> latest;
  while (true) {
    TrainingDisplay display(guard, HostsOf(*call));
    launch::TrainCallbacks callbacks = display.Callbacks();
    bool begun_anew = request.begun_anew;
    callbacks.begun_anew = [&begun_anew] { begun_anew = true; };
    auto outcome = launch::RunTraining(request, callbacks, guard->stop_pipe());
    display.line().Finish();
    if (outcome.ok()) return outcome;
    request.begun_anew = begun_anew;  // what it has saved itself is gone on from
    if (MayPass(outcome.status()) && restarts.left() > 0 && !guard->interrupted()) {
      latest = LatestCheckpoint(request.recipe).value_or(latest);  // the last one known, while a store is away
      const absl::Duration pause = restarts.Take(latest);
      Tell(absl::StrCat("note: ", outcome.status().message(), "; begins once more, ", restarts.left(),
                        " restarts left, after a pause of ", DurationText(pause)));
      if (Pause(pause, guard)) continue;
    }
    return display.begun() ? WithAdvice(outcome.status(), display) : outcome.status();
  }
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  ASSIGN_OR_RETURN(auto call, ReadCall(arguments));
  ASSIGN_OR_RETURN(const auto restarts, arguments.Integer("max-restarts", 0, kMostRestarts));
  ASSIGN_OR_RETURN(const auto claim, launch::GpuClaim::Take(call.request.gpus));
  InterruptGuard guard;
  ASSIGN_OR_RETURN(const auto fits, FillLayout(&guard, &call));
  if (!fits) return kNothingFits;
  ASSIGN_OR_RETURN(const auto predicted, Predict(arguments, call, &guard));
  if (arguments.Has("dry-run")) return DryRun(arguments, call, predicted);
  ASSIGN_OR_RETURN(const auto outcome, Train(&call, restarts.value_or(0), &guard));
  Print(arguments.format() == Format::kTable ? OutcomeText(outcome, predicted)
                                             : TreeText(arguments.format(), OutcomeTree(outcome, predicted)));
  return outcome.cause == v1::Exit::STOPPED ? kInterrupted : kDone;
}

}  // namespace

Command TrainCommand() {
  CommandSpec spec;
  spec.name = "train";
  spec.summary = "Trains on this machine. Goes on from the run's latest checkpoint; Ctrl-C saves and leaves (exit code 130).";
  spec.positional = "R.toml|JOB.toml";
  spec.least_positional = spec.most_positional = 1;
  spec.options = {
      {"nproc", "N", "ranks of this host; what the recipe's degrees ask for, or all physical cores or GPUs, if it is not given"},
      {"dry-run", "", "checks everything that can be checked before, and starts nothing"},
      {"fresh", "", "begins anew; checkpoints that are there are put aside, not removed"},
      {"predict", "", "simulates the recipe on this machine first, and shows predicted beside measured at the end"},
      {"model", "M", "wins over the recipe's [model] name"},
      {"device", "cpu|cuda", "what the ranks run on (cpu); cuda: the first of the GPUs that CUDA_VISIBLE_DEVICES leaves"},
      {"max-restarts", "N", "after a lost rank or host, begins again from the latest checkpoint, at most N times (0)"},
      {"accept-other-build", "", "goes on from a checkpoint that another build of LegoAI wrote"}};
  for (Option& option : GangOptions()) spec.options.push_back(std::move(option));
  spec.recipe_keys = true;
  spec.details =
      "A file that says the batch and not the layout, as JOB.toml does, is planned for this machine first, as `lego plan` does;\n"
      "keys that it gives bind. A second Ctrl-C leaves without saving. The run's folder is job.dump_folder.\n"
      "On several hosts, each has a call with the same recipe and --nnodes N --node-rank K --master-addr HOST, as with\n"
      "torchrun; job.dump_folder is one that they share. If a host is lost, all calls end and name it, or with --max-restarts\n"
      "wait for it to be called again; the same calls go on.";
  spec.example = "lego train recipe.toml --training.steps=100";
  return {spec, Run};
}

}  // namespace legoai::cli
