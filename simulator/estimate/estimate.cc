#include "simulator/estimate/estimate.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "core/hardware/catalog.h"
#include "core/model/model_facts.h"
#include "core/recipe/recomputation.h"
#include "core/recipe/resolved_recipe.h"
#include "core/trace/trace_file.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "simulator/capture/capture_stages.h"
#include "simulator/cost/collective_cost.h"
#include "simulator/cost/compute_cost.h"
#include "simulator/engine/chrome_trace.h"
#include "simulator/engine/step_simulation.h"
#include "simulator/estimate/bucket_search.h"
#include "simulator/estimate/pass_log.h"
#include "simulator/measure/host_measurement.h"
#include "simulator/measure/operator_benchmark.h"
#include "simulator/memory/memory_simulator.h"
#include "simulator/symbolic/memory_bound.h"
#include "worker/comm/cpu_tensors.h"
#include "worker/comm/symmetric_slots.h"

namespace legoai::sim {
namespace {

double SecondsSince(absl::Time start) { return absl::ToDoubleSeconds(absl::Now() - start); }

// The captured stages of a step by their numbers.
using Captured = std::map<int64_t, CapturedStage>;

MemoryOptions MemoryOptionsHere(const v1::Device& device) {
  MemoryOptions options = MemoryOptionsOf(device);
  options.onednn_bfloat16 = comm::OneDnnComputesBfloat16();
  return options;
}

// What a device has less for tensors: its reserve, and what asynchronous tensor parallel holds beside the caching allocator where
// a group is on one host.
int64_t ReserveBytes(const v1::Cluster& cluster, const parallel::ResolvedRecipe& resolved) {
  static_assert(kLastPieceBytes == comm::kSymmetricSlotBytes);
  const int64_t reserve = cluster.device().reserve_bytes(), tp = resolved.mesh().tp;
  const bool rotates = resolved.recipe().parallelism().enable_async_tensor_parallel() && tp > 1;
  const bool may_share = cluster.device().kind() == v1::CUDA && tp <= cluster.devices_per_node();
  return rotates && may_share ? reserve + comm::kSymmetricDeviceBytes : reserve;
}

// `estimate` gets an entry for each, and whether they all fit.
absl::Status AddMemory(const Captured& stages, const v1::Device& device, int64_t reserve_bytes, bool timeline,
                       std::vector<MemoryProfile>* profiles, v1::Estimate* estimate) {
  MemoryOptions options = MemoryOptionsHere(device);
  options.timeline = options.live_bytes = timeline;
  bool fits = true;
  for (const auto& [number, captured] : stages) {
    ASSIGN_OR_RETURN(auto profile, captured.instances ? SimulateMemory(*captured.trace, *captured.instances, options)
                                                      : SimulateMemory(*captured.trace, options));
    auto* stage = estimate->add_stages();
    stage->set_stage(number);
    stage->set_rank(captured.rank);
    stage->set_peak_requested_bytes(profile.peak_requested_bytes);
    stage->set_peak_allocated_bytes(profile.peak_allocated_bytes);
    stage->set_reserve_bytes(reserve_bytes);
    stage->set_capacity_bytes(device.memory_bytes());
    *stage->mutable_categories() = profile.categories;
    stage->set_peak_at(profile.peak_at);
    fits = fits && profile.peak_allocated_bytes + reserve_bytes <= device.memory_bytes();
    profiles->push_back(std::move(profile));
  }
  estimate->set_fits(fits);
  return absl::OkStatus();
}

std::vector<StageTrace> StageTraces(const Captured& stages) {
  std::vector<StageTrace> traces;
  for (const auto& [number, stage] : stages) {
    traces.push_back({stage.trace.get(), number, stage.rank, stage.instances ? &*stage.instances : nullptr});
  }
  return traces;
}

void Flatten(Captured* stages) {
  for (auto& [_, stage] : *stages) stage = {stage.rank, std::make_shared<const graph::Trace>(stage.Flat())};
}

// Steps are replayed on this machine: it must be one like it.
absl::Status CheckBenchmark(const v1::SimRequest& request) {
  const v1::Device& device = request.cluster().device();
  if (request.cost_mode() != v1::COST_BENCHMARK || device.kind() == v1::CPU) return absl::OkStatus();
  return FieldError("--benchmark", device.type(), "only operators of type cpu can be measured on this machine");
}

bool IsEager(const parallel::ResolvedRecipe& resolved) { return !resolved.recipe().compile().enable(); }

// Makes the cluster what is measured here, and gives the table of its operators' times, of ranks with a core each.
absl::StatusOr<BenchmarkTable> MeasureCluster(const std::vector<StageTrace>& traces, const parallel::ResolvedRecipe& resolved,
                                              const BenchmarkProgress& progress, v1::Cluster* cluster) {
  const int64_t ranks = cluster->devices_per_node(), cores = std::max<int64_t>(1, cluster->host_cores());
  ASSIGN_OR_RETURN(auto benchmark, BenchmarkOperators(traces, std::min(ranks, cores), IsEager(resolved) ? &resolved : nullptr,
                                                      progress));
  cluster->mutable_device()->set_host_dispatch_seconds(benchmark.dispatch_seconds);
  if (ranks == 1) return std::move(benchmark.operators);
  ASSIGN_OR_RETURN(auto link, MeasureNodeLink());
  const double turns = cores == 1 ? 2 : 1;  // two ranks were measured
  link.set_latency_seconds(link.latency_seconds() / turns);
  link.set_bandwidth_bytes_per_second(link.bandwidth_bytes_per_second() * turns);
  *cluster->mutable_tiers(0)->mutable_link() = link;
  return std::move(benchmark.operators);
}

// A program spares what an eager step takes on a CPU beyond its operators: the times of those are of the program's executor
// (simulator/measure/step_replay.h). What a GPU's host takes for a program was never measured, and counts as for an eager step.
void SpareEagerOverhead(const v1::Recipe& recipe, v1::Cluster* cluster) {
  if (!recipe.compile().enable() || cluster->device().kind() != v1::CPU) return;
  cluster->mutable_device()->set_host_dispatch_seconds(0);
}

// `cluster` is the request's; a benchmark makes it what was measured.
absl::StatusOr<StepSimulation> SimulateTime(const v1::SimRequest& request, const std::vector<StageTrace>& traces,
                                            const parallel::ResolvedRecipe& resolved, const v1::Estimate& estimate,
                                            const BenchmarkProgress& progress, v1::Cluster* cluster) {
  if (request.cost_mode() != v1::COST_BENCHMARK) {
    SpareEagerOverhead(estimate.recipe(), cluster);
    ASSIGN_OR_RETURN(auto roofline, RooflineModel::Create(cluster->device()));
    return SimulateStep(traces, *cluster, *roofline, CollectiveCostModel(*cluster));
  }
  if (!estimate.fits())
    return FieldError("--benchmark", estimate.model(), "the step does not fit into this machine's memory; estimate it without");
  ASSIGN_OR_RETURN(auto table, MeasureCluster(traces, resolved, progress, cluster));
  SpareEagerOverhead(estimate.recipe(), cluster);
  return SimulateStep(traces, *cluster, BenchmarkModel(&table), CollectiveCostModel(*cluster));
}

// Whether the request wants the time of a step with this memory.
absl::StatusOr<bool> WantsTime(const v1::SimRequest& request, const std::vector<StageTrace>& traces,
                               const v1::Estimate& estimate) {
  const double below = request.unfit_time_below_seconds();
  if (estimate.fits() || below <= 0 || request.cost_mode() == v1::COST_BENCHMARK) return true;
  ASSIGN_OR_RETURN(auto roofline, RooflineModel::Create(request.cluster().device()));
  ASSIGN_OR_RETURN(const double least, LeastStepSeconds(traces, *roofline, CollectiveCostModel(request.cluster())));
  return least < below;
}

// Whether one stage alone shows that the recipe does not fit and that its time is not wanted: the estimate then is of that stage.
// Tried are those that are likely to need most: the one that does by the closed forms, and the last, where schedules that put
// weight gradients off keep most. What is captured for that stays in `stages`.
absl::StatusOr<bool> IsSettledByOneStage(const v1::SimRequest& request, const parallel::ResolvedRecipe& resolved,
                                         StageCapture* capture, Captured* stages, v1::Estimate* estimate) {
  const bool may_settle = request.unfit_time_below_seconds() > 0 && request.cost_mode() != v1::COST_BENCHMARK;
  if (!may_settle || capture->stages() == 1) return false;
  for (const int64_t number : {FullestStage(resolved), capture->stages() - 1}) {
    if (stages->count(number) > 0) continue;
    ASSIGN_OR_RETURN(auto stage, capture->Stage(number));
    stages->emplace(number, stage);
    const Captured one = {{number, std::move(stage)}};
    v1::Estimate of_one = *estimate;
    std::vector<MemoryProfile> memory;
    RETURN_IF_ERROR(AddMemory(one, request.cluster().device(), ReserveBytes(request.cluster(), resolved), /*timeline=*/false,
                              &memory, &of_one));
    ASSIGN_OR_RETURN(const bool wants_time, WantsTime(request, StageTraces(one), of_one));
    if (wants_time) continue;
    *estimate = std::move(of_one);
    return true;
  }
  return false;
}

absl::Status CaptureRest(StageCapture* capture, Captured* stages) {
  for (int64_t number = 0; number < capture->stages(); ++number) {
    if (stages->count(number) > 0) continue;
    ASSIGN_OR_RETURN(auto stage, capture->Stage(number));
    stages->emplace(number, std::move(stage));
  }
  return absl::OkStatus();
}

absl::Status AddTime(const v1::SimRequest& request, const StepSimulation& step, const parallel::ResolvedRecipe& resolved,
                     v1::Estimate* estimate) {
  const double seconds = step.step_seconds, world = static_cast<double>(resolved.mesh().world());
  const double tokens = static_cast<double>(resolved.tokens_per_step());
  const double peak = PeakFlops(request.cluster().device(), estimate->recipe().training().mixed_precision_param()) /
                      RanksPerCore(request.cluster());
  estimate->set_step_time_seconds(seconds);
  estimate->set_tokens_per_second_per_gpu(tokens / seconds / world);
  estimate->set_model_flops_per_token(model::FlopsPerToken(resolved.model(), resolved.seq_len()));
  const double model_flops = estimate->model_flops_per_token() * tokens;
  const double recomputed = parallel::RecomputedFlopsPerToken(resolved) * tokens;
  // HFU is the larger: where it is a share of the peak, MFU is.
  const auto hfu = model::ModelFlopsUtilization((model_flops + recomputed) / seconds / world, peak);
  if (hfu.ok()) {
    estimate->set_mfu(model_flops / seconds / world / peak);
    estimate->set_hfu(*hfu);
  } else {
    estimate->set_mfu_fault(std::string(hfu.status().message()));
  }
  *estimate->mutable_breakdown() = step.breakdown;
  for (size_t i = 0; i < step.stages.size(); ++i) *estimate->mutable_stages(i)->mutable_breakdown() = step.stages[i];
  *estimate->mutable_running_cost() = RunningCostOf(request.cluster(), tokens, seconds);
  for (const auto& share : step.cost_models) *estimate->add_cost_models() = share;
  estimate->set_operators(step.operators);
  return absl::OkStatus();
}

// What a file leaves out is told as progress without a total.
absl::Status WriteFiles(const v1::SimRequest& request, const TraceSource& source, const TraceFileOptions& options,
                        const std::function<void(const v1::SimProgress&)>& progress) {
  auto write = [&](const char* field, const std::string& path, auto writes) {
    if (path.empty()) return absl::OkStatus();
    const auto report = writes(field, path, source, options);
    if (!report.ok() || report->left_out.empty() || !progress) return report.status();
    v1::SimProgress told;
    told.set_phase(absl::StrCat(path, ": ", report->left_out, "; ", kFullTraceOption, " writes all"));
    progress(told);
    return absl::OkStatus();
  };
  absl::Status status = write("--trace", request.chrome_trace_path(), WriteChromeTrace);
  if (status.ok()) status = write("--memory-timeline", request.memory_timeline_path(), WriteMemoryTimeline);
  return status;
}

// With the buckets that the recipe leaves open, by the request's cluster; a benchmark of the machine follows only later.
absl::Status PlanBuckets(const v1::SimRequest& request, parallel::ResolvedRecipe* resolved) {
  if (resolved->recipe().compile().fsdp_bucketing() != v1::BUCKET_BY_PLAN) return absl::OkStatus();
  v1::Cluster cluster = request.cluster();
  SpareEagerOverhead(resolved->recipe(), &cluster);
  cluster.mutable_device()->set_reserve_bytes(ReserveBytes(cluster, *resolved));
  ASSIGN_OR_RETURN(*resolved, WithPlannedBuckets(*resolved, cluster, MemoryOptionsHere(cluster.device())));
  return absl::OkStatus();
}

absl::Status WritePasses(const v1::SimRequest& request, const parallel::ResolvedRecipe& resolved, const Captured& stages,
                         const PassLog& log, const std::string& path) {
  v1::Cluster cluster = request.cluster();
  SpareEagerOverhead(resolved.recipe(), &cluster);
  std::vector<CapturedStage> in_order;
  for (const auto& [_, stage] : stages) in_order.push_back(stage);
  ASSIGN_OR_RETURN(const auto rows, log.Rows(in_order, cluster, MemoryOptionsHere(cluster.device())));
  return WritePassRows(kPassesOption, path, rows);
}

// The stages, and what passes do written where `path` says; or true and an estimate of the one that settles it.
absl::StatusOr<bool> Capture(const v1::SimRequest& request, const parallel::ResolvedRecipe& resolved, const std::string& path,
                             Captured* stages, v1::Estimate* estimate) {
  if (!path.empty() && !graph::HasPasses(resolved)) {
    return FieldError(kPassesOption, "", "the recipe has no passes: they come with compile.enable = true and "
                                         "compile.fsdp_bucketing = \"none\", \"manual\" or \"auto\", with compile.fuse = true, "
                                         "or with parallelism.enable_async_tensor_parallel = true");
  }
  graph::PassOptions options;
  options.device = request.cluster().device().kind();
  options.dump_directory = request.dump_passes_directory();
  PassLog log;
  StageCapture capture(resolved, path.empty() ? options : log.Observing(options), path.empty() ? nullptr : log.reports());
  if (path.empty()) {
    ASSIGN_OR_RETURN(const bool settled, IsSettledByOneStage(request, resolved, &capture, stages, estimate));
    if (settled) return true;
  }
  RETURN_IF_ERROR(CaptureRest(&capture, stages));
  if (!path.empty()) RETURN_IF_ERROR(WritePasses(request, resolved, *stages, log, path));
  return false;
}

absl::Status WriteStages(const Captured& stages, const std::string& folder) {
  if (folder.empty()) return absl::OkStatus();
  for (const auto& [number, stage] : stages)
    RETURN_IF_ERROR(graph::WriteTrace(stage.Flat(), absl::StrCat(folder, "/stage-", number, ".trace")));
  return absl::OkStatus();
}

// The device's peaks are there for what was measured to be held against: "float32 3e+10, bfloat16 4e+08".
std::map<std::string, std::string> AboutStep(const v1::Estimate& estimate, const v1::Device& device) {
  const std::string peaks = absl::StrJoin(device.peak_flops(), ", ", [](std::string* text, const v1::PeakFlops& peak) {
    absl::StrAppend(text, absl::AsciiStrToLower(v1::DType_Name(peak.dtype())), " ", peak.flops_per_second());
  });
  return {{"model", estimate.model()},
          {"peak_flops_per_second", peaks},
          {"memory_bandwidth_bytes_per_second", absl::StrCat(device.memory_bandwidth_bytes_per_second())},
          {"cluster", estimate.cluster()},
          {"ranks", absl::StrCat(estimate.world_size())},
          {"step_time_seconds", absl::StrCat(estimate.step_time_seconds())},
          {"made_by", "lego simulate"}};
}

}  // namespace

absl::StatusOr<v1::Estimate> EstimateRecipe(const v1::SimRequest& request,
                                            const std::function<void(const v1::SimProgress&)>& progress,
                                            const EstimateOptions& options) {
  absl::Status status = CheckBenchmark(request);
  if (!status.ok()) return status;
  const int64_t world = request.cluster().devices_per_node() * request.cluster().nodes();
  ASSIGN_OR_RETURN(auto resolved, parallel::ResolvedRecipe::Create(request.recipe(), request.model(), world));
  status = model::CheckWindow(request.model(), resolved.seq_len(), request.cluster().device().kind());
  if (!status.ok()) return status;
  absl::Time start = absl::Now();
  RETURN_IF_ERROR(PlanBuckets(request, &resolved));
  v1::Estimate estimate;
  estimate.set_model(request.model().name());
  estimate.set_cluster(request.cluster().name());
  *estimate.mutable_recipe() = resolved.recipe();
  estimate.set_parameters(model::ParameterCount(request.model()));
  estimate.set_world_size(world);
  Captured stages;
  ASSIGN_OR_RETURN(const bool settled, Capture(request, resolved, options.passes_path, &stages, &estimate));
  if (settled) {
    estimate.set_capture_seconds(SecondsSince(start));
    return estimate;
  }
  RETURN_IF_ERROR(WriteStages(stages, request.stages_directory()));
  // A benchmark runs the whole step.
  if (request.cost_mode() == v1::COST_BENCHMARK) Flatten(&stages);
  estimate.set_capture_seconds(SecondsSince(start));
  start = absl::Now();
  const bool files = !request.chrome_trace_path().empty() || !request.memory_timeline_path().empty();
  std::vector<MemoryProfile> memory;
  status = AddMemory(stages, request.cluster().device(), ReserveBytes(request.cluster(), resolved), files, &memory, &estimate);
  if (!status.ok()) return status;
  const std::vector<StageTrace> traces = StageTraces(stages);
  ASSIGN_OR_RETURN(const bool wants_time, WantsTime(request, traces, estimate));
  if (!wants_time) {
    estimate.set_simulate_seconds(SecondsSince(start));
    return estimate;
  }
  v1::Cluster cluster = request.cluster();
  ASSIGN_OR_RETURN(auto step, SimulateTime(request, traces, resolved, estimate, progress, &cluster));
  status = AddTime(request, step, resolved, &estimate);
  if (status.ok() && request.details()) status = AddStepDetails(traces, cluster, step, &estimate);
  if (!status.ok()) return status;
  estimate.set_simulate_seconds(SecondsSince(start));
  const auto about = AboutStep(estimate, cluster.device());
  if (files) status = WriteFiles(request, {traces, step, memory, cluster, about}, options.files, progress);
  if (!status.ok()) return status;
  return estimate;
}

}  // namespace legoai::sim
