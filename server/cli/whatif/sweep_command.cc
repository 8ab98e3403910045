#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/checkpoint/files.h"
#include "planner/estimates.h"
#include "planner/plan.h"
#include "planner/plan_facts.h"
#include "planner/ranking.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/interrupt.h"
#include "server/cli/job.h"
#include "server/cli/output.h"
#include "server/cli/whatif/sensitivities.h"
#include "server/cli/whatif/sweep_chart.h"
#include "server/cli/whatif/sweep_points.h"

namespace legoai::cli {
namespace {

constexpr char kSensitivities[] = "sensitivities";

bool Plans(const Arguments& arguments) { return arguments.Has("plan") || !arguments.Has("recipe"); }

// What every point shares: the processes that simulate, and the person who may not want to wait.
struct Session {
  std::unique_ptr<planner::Estimator> pool;
  InterruptGuard guard;
  ProgressLine line;
  std::function<bool()> Interrupted() {
    return [this] { return guard.interrupted(); };
  }
};

int64_t Devices(const v1::Cluster& cluster) { return cluster.devices_per_node() * cluster.nodes(); }

// A point that cannot be: its line of the table says why. What is wrong with the whole call is an error of the first point too,
// and all others have it.
SweepOutcome Refused(const SweepPoint& point, int64_t devices, const absl::Status& status) {
  return {point, devices, std::nullopt, false, std::string(status.message())};
}

template <class Request>
struct PointRequest {
  absl::StatusOr<Request> request;
  int64_t devices = 0;
};

template <class Request>
PointRequest<Request> RequestAt(const Arguments& arguments, const std::vector<Variation>& variations, const SweepPoint& point,
                                const std::function<absl::StatusOr<Request>(const Arguments&)>& read) {
  const auto at = ArgumentsAt(arguments, variations, point);
  if (!at.ok()) return {at.status(), 0};
  auto request = read(*at);
  if (!request.ok()) return {request.status(), 0};
  if (absl::Status status = SetFiguresAt(variations, point, request->mutable_cluster()); !status.ok()) return {status, 0};
  const int64_t devices = Devices(request->cluster());
  return {std::move(request), devices};
}

// Where no point can be, the call is wrong: the first point's error says how.
template <class Request>
absl::Status AllWrong(const std::vector<PointRequest<Request>>& points) {
  for (const auto& point : points) {
    if (point.request.ok()) return absl::OkStatus();
  }
  return points.front().request.status();
}

SweepOutcome PlannedOutcome(const SweepPoint& point, int64_t devices, const v1::PlanResult& result) {
  if (planner::HasRecipe(result)) return {point, devices, result.ranked(0), true, ""};
  return {point, devices, std::nullopt, false, result.explanation()};
}

absl::StatusOr<std::vector<SweepOutcome>> PlanPoints(const Arguments& arguments, const std::vector<Variation>& variations,
                                                     const std::vector<SweepPoint>& points, Session* session) {
  std::vector<PointRequest<v1::PlanRequest>> requests;
  for (const SweepPoint& point : points)
    requests.push_back(RequestAt<v1::PlanRequest>(arguments, variations, point, ReadPlanRequest));
  RETURN_IF_ERROR(AllWrong(requests));
  std::vector<SweepOutcome> outcomes;
  for (size_t i = 0; i < points.size(); ++i) {
    const auto& [request, devices] = requests[i];
    if (!request.ok()) {
      outcomes.push_back(Refused(points[i], devices, request.status()));
      continue;
    }
    const auto show = [&](const planner::PlanProgress& at) {
      session->line.Show(absl::StrCat("plan ", i + 1, " of ", points.size(), ": ", WithCommas(at.captured), " of ",
                                      WithCommas(at.to_capture), " simulations are done"));
    };
    const auto result = planner::Plan(*request, *session->pool, show, session->Interrupted());
    if (absl::IsCancelled(result.status())) return result.status();
    outcomes.push_back(result.ok() ? PlannedOutcome(points[i], devices, *result) : Refused(points[i], devices, result.status()));
  }
  return outcomes;
}

SweepOutcome SimulatedOutcome(const SweepPoint& point, int64_t devices, const v1::Estimate& estimate) {
  SweepOutcome outcome{point, devices, planner::RankSimulated(estimate), estimate.fits(), ""};
  const auto& stage = planner::FullestStage(estimate);
  if (!estimate.fits())
    outcome.reason = absl::StrCat("does not fit: ", BytesText(static_cast<double>(-planner::HeadroomBytes(stage))), " too much");
  return outcome;
}

absl::StatusOr<std::vector<SweepOutcome>> SimulatePoints(const Arguments& arguments, const std::vector<Variation>& variations,
                                                         const std::vector<SweepPoint>& points, Session* session) {
  const std::function read = [](const Arguments& at) { return ReadSimRequest(at.Text("recipe"), at); };
  std::vector<PointRequest<v1::SimRequest>> requests;
  std::vector<v1::SimRequest> good;
  for (const SweepPoint& point : points) {
    requests.push_back(RequestAt<v1::SimRequest>(arguments, variations, point, read));
    if (requests.back().request.ok()) good.push_back(*requests.back().request);
  }
  RETURN_IF_ERROR(AllWrong(requests));
  const auto estimates = planner::EstimateAll(good, *session->pool, session->Interrupted(), [&](int64_t done) {
    session->line.Show(absl::StrCat(done, " of ", good.size(), " points are simulated"));
  });
  if (!estimates.ok()) return estimates.status();
  std::vector<SweepOutcome> outcomes;
  size_t next = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    const auto& [request, devices] = requests[i];
    const absl::Status status = request.ok() ? (*estimates)[next].status() : request.status();
    outcomes.push_back(status.ok() ? SimulatedOutcome(points[i], devices, *(*estimates)[next])
                                   : Refused(points[i], devices, status));
    if (request.ok()) ++next;
  }
  return outcomes;
}

// The recipe whose sensitivities are asked for: that of --recipe, or the planned winner.
absl::StatusOr<v1::SimRequest> RequestOfWinner(const Arguments& arguments, Session* session) {
  if (!Plans(arguments)) return ReadSimRequest(arguments.Text("recipe"), arguments);
  ASSIGN_OR_RETURN(const auto plan, ReadPlanRequest(arguments));
  const auto result = planner::Plan(
      plan, *session->pool,
      [&](const planner::PlanProgress& at) {
        session->line.Show(
            absl::StrCat("planning: ", WithCommas(at.captured), " of ", WithCommas(at.to_capture), " simulations are done"));
      },
      session->Interrupted());
  if (!result.ok()) return result.status();
  if (!planner::HasRecipe(*result)) return absl::FailedPreconditionError(result->explanation());
  v1::SimRequest request;
  *request.mutable_model() = plan.model();
  *request.mutable_cluster() = plan.cluster();
  *request.mutable_recipe() = result->ranked(0).recipe();
  request.set_cost_mode(v1::COST_ROOFLINE);
  return request;
}

struct Files {
  std::string csv, svg;
};

absl::StatusOr<Files> ReadFiles(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto csv, OutputPath(arguments, "csv"));
  ASSIGN_OR_RETURN(const auto svg, OutputPath(arguments, "svg"));
  return Files{csv, svg};
}

absl::Status WriteFiles(const Files& files, const std::function<std::string()>& csv, const std::function<std::string()>& svg) {
  for (const auto& [path, text] : {std::pair(files.csv, csv), std::pair(files.svg, svg)}) {
    if (path.empty()) continue;
    RETURN_IF_ERROR(checkpoint::WriteFile(path, text()));
    std::fprintf(stderr, "wrote %s\n", path.c_str());
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RunSensitivities(const Arguments& arguments, const Files& files, Session* session) {
  ASSIGN_OR_RETURN(const auto request, RequestOfWinner(arguments, session));
  ASSIGN_OR_RETURN(const auto requests, RequestsForSensitivities(request));
  const size_t count = requests.requests.size();
  const auto estimates = planner::EstimateAll(requests.requests, *session->pool, session->Interrupted(), [&](int64_t done) {
    session->line.Show(absl::StrCat(done, " of ", count, " simulations are done"));
  });
  session->line.Clear();
  if (!estimates.ok()) return estimates.status();
  ASSIGN_OR_RETURN(const auto result, ReadSensitivities(requests, *estimates));
  Print(arguments.format() == Format::kTable ? SensitivitiesText(result)
                                             : TreeText(arguments.format(), SensitivitiesTree(result)));
  const std::string title = absl::StrCat(result.estimate.model(), " on ", result.estimate.cluster());
  absl::Status status = WriteFiles(
      files, [&] { return SensitivitiesCsv(result); }, [&] { return SensitivitiesSvg(result, title); });
  if (!status.ok()) return status;
  return result.estimate.fits() ? kDone : kNothingFits;
}

// "llama3-8b on h100-sxm-80:8x2, the best recipe of each point": what the points have in common.
std::string Title(const Arguments& arguments, const Sweep& sweep) {
  const auto varies = [&](const char* key) {
    return std::any_of(sweep.variations.begin(), sweep.variations.end(), [&](const Variation& one) { return one.key == key; });
  };
  std::string model = arguments.Text("model"), cluster = arguments.Text("cluster");
  for (const SweepOutcome& outcome : sweep.outcomes) {
    if (model.empty() && outcome.best && !varies("model")) model = outcome.best->recipe().model().name();
  }
  if (varies("gpus")) cluster = cluster.substr(0, cluster.rfind(':'));
  std::vector<std::string> parts;
  if (!model.empty() || !cluster.empty())
    parts.push_back(absl::StrCat(model, model.empty() || cluster.empty() ? "" : " on ", cluster));
  parts.push_back(sweep.planned ? "the best recipe of each point" : arguments.Text("recipe"));
  return absl::StrJoin(parts, ", ");
}

absl::StatusOr<int> RunSweep(const Arguments& arguments, const Files& files, Session* session) {
  ASSIGN_OR_RETURN(auto variations, ReadVariations(arguments));
  const std::vector<SweepPoint> points = SweepPoints(variations);
  Sweep sweep{std::move(variations), Plans(arguments), {}};
  auto outcomes = sweep.planned ? PlanPoints(arguments, sweep.variations, points, session)
                                : SimulatePoints(arguments, sweep.variations, points, session);
  session->line.Clear();
  if (!outcomes.ok()) return outcomes.status();
  sweep.outcomes = *std::move(outcomes);
  Print(arguments.format() == Format::kTable ? SweepText(sweep) : TreeText(arguments.format(), SweepTree(sweep)));
  absl::Status status = WriteFiles(
      files, [&] { return SweepCsv(sweep); }, [&] { return SweepSvg(sweep, Title(arguments, sweep)); });
  if (!status.ok()) return status;
  const bool any = std::any_of(sweep.outcomes.begin(), sweep.outcomes.end(), [](const auto& outcome) { return outcome.fits; });
  return any ? kDone : kNothingFits;
}

absl::Status CheckCall(const Arguments& arguments) {
  const bool varies = arguments.Has("vary"), sensitivities = arguments.Has(kSensitivities);
  if (varies == sensitivities)
    return FieldError("--vary", arguments.Text("vary"),
                      varies ? "goes without --sensitivities, which varies every figure of the cluster"
                             : "is needed: KEY=A,B,C, for instance gpus=8,16,32; or --sensitivities");
  const auto texts = arguments.All("vary");
  const auto of_cluster = [](const std::string& text) { return text.starts_with("cluster="); };
  if (!arguments.Has("cluster") && std::none_of(texts.begin(), texts.end(), of_cluster))
    return FieldError("--cluster", "", "is needed, or --vary cluster=A,B: `lego hardware` lists what there is");
  if (Plans(arguments)) return absl::OkStatus();
  for (const char* option : {"global-batch", "seq"}) {
    if (arguments.Has(option))
      return FieldError(
          absl::StrCat("--", option), arguments.Text(option),
          absl::StrCat("is the recipe's: write --training.", std::string(option) == "seq" ? "seq_len" : "global_batch_size",
                       ", or --plan to plan each point"));
  }
  for (const char* option : {"constraint", "min-headroom", "objective", "budget-seconds"}) {
    if (arguments.Has(option))
      return FieldError(absl::StrCat("--", option), arguments.Text(option), "goes with --plan, or without --recipe");
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  RETURN_IF_ERROR(CheckCall(arguments));
  ASSIGN_OR_RETURN(const auto files, ReadFiles(arguments));
  Session session;
  ASSIGN_OR_RETURN(auto pool, SimProcesses());
  session.pool = std::move(pool);
  return arguments.Has(kSensitivities) ? RunSensitivities(arguments, files, &session) : RunSweep(arguments, files, &session);
}

}  // namespace

Command SweepCommand() {
  CommandSpec spec;
  spec.name = "sweep";
  spec.summary = "Plans, or predicts one recipe, over what varies: GPUs, batch, links. Exit code 3: nothing fits.";
  spec.options = {
      {"model", "M", "config.json, its folder, or a name of `lego models`; the recipe's [model] name if it is not given"},
      {"cluster", "C", "TYPE:DEVICES_PER_NODExNODES[@LINK] (`lego hardware`), or a Cluster as a text-format file"},
      {"vary", "KEY=A,B,C",
       "what varies: gpus, global-batch, seq, cluster, model, a key of the recipe, or a figure of the cluster", true},
      {kSensitivities, "", "instead: how the step time hangs on each figure of the cluster"},
      {"recipe", "R.toml", "predicts this recipe at each point; without it each point is planned"},
      {"plan", "", "plans each point with --recipe as its base"},
      {"global-batch", "N", "of plans: sequences per optimizer step"},
      {"seq", "S", "of plans: tokens per sequence"},
      {"constraint", "KEY=VALUE", "of plans: only recipes with this", true},
      {"min-headroom", "M", "of plans: what a recipe must leave free of each device: 4GiB, or 10%"},
      {"objective", "O", "of plans: step_time, or memory"},
      {"budget-seconds", "T", "of plans: ends each early, once a recipe fits"},
      {"price", "P", "of a GPU for an hour, in any currency: what a billion tokens cost"},
      {"csv", "FILE", "writes the table for programs"},
      {"svg", "FILE", "draws it"}};
  spec.recipe_keys = true;
  spec.details = absl::StrCat(
      "Several --vary make all combinations, ", kMostSweepPoints,
      " at most. Figures of the cluster: memory, memory.bandwidth, compute.peak, CLASS.efficiency as matmul.efficiency, "
      "link.LINK.bandwidth and link.LINK.latency as link.node.bandwidth; their values are multiples as 0.5x, or 120GiB, 450GB/s, "
      "0.7.");
  spec.example =
      "lego sweep --model llama3-8b --cluster h100-sxm-80:8x8 --vary gpus=8,16,32,64 --global-batch 256 --seq 8192 --svg "
      "gpus.svg";
  return {spec, Run};
}

}  // namespace legoai::cli
