#include "server/cli/prediction_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/hardware/catalog.h"
#include "planner/explain.h"
#include "planner/plan_facts.h"
#include "planner/ranking.h"
#include "server/cli/output.h"

namespace legoai::cli {
namespace {

constexpr int kRejectedInTable = 5;
constexpr char kUnknownMfuNote[] =
    "MFU - : the device has no peak in the recipe's precision, or one below what is done; `lego simulate` says which\n";
constexpr char kAllocatedNote[] =
    "memory: allocated by tensors at the peak, not reserved; what the device's allocator holds beside it is not predicted\n";
constexpr char kTiesNote[] = "recipes whose times differ by less than 1 % stand in the order of their headroom\n";
constexpr char kEstimatedNote[] = "~ estimated by closed forms, not simulated: it may not fit\n";

// Near ties stand in the order of their headroom, which a reader would take for a mistake. Of a plan that does not rank by time
// nothing is to be said.
bool TiesAreNotByTime(const v1::PlanResult& result) {
  bool any = false;
  for (int i = 1; i < result.ranked_size() && !result.ranked(i).estimated(); ++i) {
    const double before = result.ranked(i - 1).step_time_seconds(), after = result.ranked(i).step_time_seconds();
    if (before > after && !planner::IsNearTie(before, after)) return false;
    any = any || before > after;
  }
  return any;
}

// What the winner makes of the cluster's time.
std::string WinnersCost(const v1::PlanResult& result) {
  const auto& winner = result.ranked(0);
  const std::string cost = CostText(winner.running_cost());
  if (winner.estimated() || cost.empty()) return "";
  return absl::StrCat("rank 1: ", CountText(winner.running_cost().tokens_per_day()), " tokens a day; ", cost, "\n");
}

std::string RankedTable(const v1::PlanResult& result) {
  Table table({"rank", "<recipe", "step time", "tokens/s/device", "MFU", "peak allocated", "headroom"});
  bool any_estimated = false, all_mfus = true;
  for (const auto& ranked : result.ranked()) {
    const bool estimated = ranked.estimated();
    any_estimated = any_estimated || estimated;
    all_mfus = all_mfus && ranked.mfu() > 0;
    const std::string about = estimated ? "~" : "", least = estimated ? ">= " : "", most = estimated ? "<= " : "";
    table.Add({absl::StrCat(about, ranked.rank()), planner::Summarize(ranked.recipe()),
               absl::StrCat(about, SecondsText(ranked.step_time_seconds())),
               absl::StrCat(about, WithCommas(static_cast<int64_t>(ranked.tokens_per_second_per_gpu()))),
               ranked.mfu() > 0 ? absl::StrCat(about, PercentText(ranked.mfu())) : "-",
               absl::StrCat(least, BytesText(ranked.peak_memory_bytes())),
               absl::StrCat(most, BytesText(ranked.headroom_bytes()))});
  }
  return absl::StrCat(table.Text(), WinnersCost(result), TiesAreNotByTime(result) ? kTiesNote : "", kAllocatedNote,
                      any_estimated ? kEstimatedNote : "", all_mfus ? "" : kUnknownMfuNote);
}

std::string RejectedTable(const v1::PlanResult& result, bool all) {
  Table table({"<rejected", "<rule", "memory", "<reason"});
  std::map<bool, int> shown;  // by whether it failed: a few of each kind
  for (const auto& rejected : result.rejected()) {
    if (!all && shown[rejected.rule() == kFailedRule]++ >= kRejectedInTable) continue;
    std::string memory;
    if (rejected.has_peak_memory_bytes()) memory = (rejected.is_bound() ? ">= " : "") + BytesText(rejected.peak_memory_bytes());
    table.Add({planner::Summarize(rejected.recipe()), rejected.rule(), memory, rejected.reason()});
  }
  return table.Text();
}

// "92 recipes in 3.1 s: 92 simulated and fit", with a line break.
std::string PlanCountsText(const v1::PlanResult& result) {
  std::string text = absl::StrCat(WithCommas(result.space()), " recipes in ", absl::StrFormat("%.1f s", result.seconds()), ": ");
  std::vector<std::string> parts;
  auto add = [&](int64_t count, const std::string& what) {
    if (count > 0) parts.push_back(absl::StrCat(WithCommas(count), " ", what));
  };
  add(result.captured() - result.captured_unfit(), "simulated and fit");
  add(result.captured_unfit(), "simulated and too large");
  add(result.bounded_out(), "too large by the closed-form bound");
  add(result.failed(), "failed");
  add(result.not_reached(), "that may fit not simulated");
  for (const auto& [rule, count] : std::map<std::string, int64_t>(result.pruned().begin(), result.pruned().end())) {
    add(count, "dropped by " + rule);
  }
  return text + absl::StrJoin(parts, ", ") + "\n";
}

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
  std::string text =
      absl::StrCat("stage ", stage.stage(), " (rank ", stage.rank(), "): peak ", BytesText(stage.peak_allocated_bytes()),
                   " allocated (not reserved) of ", BytesText(planner::UsableBytes(stage)), " usable (",
                   BytesText(stage.capacity_bytes()), " less ", BytesText(stage.reserve_bytes()), " reserve), ",
                   headroom >= 0 ? BytesText(headroom) + " free" : Colored(Color::kRed, BytesText(-headroom) + " TOO MUCH"),
                   "\n  peak at ", stage.peak_at(), "\n");
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

double ShareOf(double seconds, const v1::Estimate& estimate) {
  return estimate.step_time_seconds() > 0 ? seconds / estimate.step_time_seconds() : 0;
}

// The step of each stage by part, where there is more than one stage.
std::string StagesTable(const v1::Estimate& estimate) {
  if (estimate.stages_size() < 2 || !estimate.stages(0).has_breakdown()) return "";
  Table table({"stage", "compute", "exposed communication", "bubble", "launch", "optimizer"});
  for (const auto& stage : estimate.stages()) {
    const auto& parts = stage.breakdown();
    table.Add({absl::StrCat(stage.stage()), SecondsText(parts.compute_seconds()),
               SecondsText(parts.exposed_communication_seconds()), SecondsText(parts.bubble_seconds()),
               SecondsText(parts.launch_seconds()), SecondsText(parts.optimizer_seconds())});
  }
  return table.Text() + "\n";
}

std::string OfStage(const v1::Estimate& estimate, int64_t stage) {
  return estimate.stages_size() < 2 ? "" : absl::StrCat(" of stage ", stage);
}

std::string OperatorsTable(const v1::Estimate& estimate) {
  if (estimate.largest_operators().empty()) return "";
  Table table({"<operator", "<phase", "calls", "time", "share", "<bound by", "<shapes"});
  for (const auto& op : estimate.largest_operators()) {
    table.Add({op.name(), op.phase(), WithCommas(op.calls()), SecondsText(op.seconds()),
               PercentText(ShareOf(op.seconds(), estimate)), op.bound().empty() ? "-" : op.bound(), op.shapes()});
  }
  return absl::StrCat("the largest operators", OfStage(estimate, estimate.largest_operators(0).stage()),
                      ", each as if alone on the device\n", table.Text(), "\n");
}

std::string ModulesTable(const v1::Estimate& estimate) {
  if (estimate.largest_modules().empty()) return "";
  Table table({"<module", "of these", "forward", "backward", "share"});
  for (const auto& module : estimate.largest_modules()) {
    table.Add({module.module(), WithCommas(module.modules()), SecondsText(module.forward_seconds()),
               SecondsText(module.backward_seconds()),
               PercentText(ShareOf(module.forward_seconds() + module.backward_seconds(), estimate))});
  }
  return absl::StrCat("the largest modules", OfStage(estimate, estimate.largest_modules(0).stage()),
                      ", without what is inside them; backward has the recomputation\n", table.Text(), "\n");
}

std::string CriticalPathTable(const v1::Estimate& estimate) {
  if (estimate.critical_path().empty()) return "";
  Table table({"<critical path", "stage", "tasks", "time", "share", "<"});
  for (const auto& part : estimate.critical_path()) {
    const double share = ShareOf(part.seconds(), estimate);
    table.Add({part.kind(), absl::StrCat(part.stage()), WithCommas(part.tasks()), SecondsText(part.seconds()), PercentText(share),
               Bar(share, kBarWidth)});
  }
  return table.Text() + "\n";
}

// Amounts of money and hours: what matters of them is three digits.
std::string Amount(double amount) {
  return amount < 100 || amount > 1e15 ? absl::StrFormat("%.3g", amount) : WithCommas(static_cast<int64_t>(std::llround(amount)));
}

// Of all the steps that the recipe has.
std::string RunText(const v1::Estimate& estimate) {
  const auto& training = estimate.recipe().training();
  const double tokens = static_cast<double>(training.steps()) * static_cast<double>(training.global_batch_size()) *
                        static_cast<double>(training.seq_len());
  const auto& cost = estimate.running_cost();
  if (tokens <= 0 || cost.tokens_per_day() <= 0) return "";
  std::string text = absl::StrCat("its ", WithCommas(training.steps()), " steps  ", CountText(tokens), " tokens, ",
                                  DurationText(static_cast<double>(training.steps()) * estimate.step_time_seconds()), ", ",
                                  Amount(cost.gpu_hours_per_billion_tokens() * tokens / 1e9), " GPU-hours");
  if (cost.price_per_billion_tokens() > 0)
    absl::StrAppend(&text, ", ", Amount(cost.price_per_billion_tokens() * tokens / 1e9), " in the currency of the price");
  return text + "\n";
}

std::string SummaryText(const v1::Estimate& estimate) {
  std::string text = absl::StrCat("step time  ", SecondsText(estimate.step_time_seconds()), "\n");
  absl::StrAppend(&text, "throughput ", CountText(estimate.tokens_per_second_per_gpu()), " tokens/s per device");
  if (estimate.running_cost().tokens_per_day() > 0)
    absl::StrAppend(&text, ", ", CountText(estimate.running_cost().tokens_per_day()), " tokens a day");
  text += "\n";
  if (const std::string cost = CostText(estimate.running_cost()); !cost.empty())
    absl::StrAppend(&text, "cost       ", cost, "\n");
  absl::StrAppend(&text, RunText(estimate));
  const std::string utilization = absl::StrCat("MFU ", PercentText(estimate.mfu()), ", HFU ", PercentText(estimate.hfu()));
  absl::StrAppend(&text, estimate.mfu_fault().empty() ? utilization : "MFU unknown: " + estimate.mfu_fault(), ", ",
                  CountText(estimate.model_flops_per_token()), " FLOPs per token\n\n");
  return text;
}

std::string SourcesText(const v1::SimRequest& request, const v1::Estimate& estimate) {
  std::string models;
  for (const auto& model : estimate.cost_models()) {
    absl::StrAppend(&models, models.empty() ? "" : ", ", PercentText(model.share_of_compute_time()), " of compute time by ",
                    model.name());
  }
  std::string text =
      absl::StrCat(WithCommas(estimate.operators()), " operators captured in ", SecondsText(estimate.capture_seconds()),
                   ", simulated in ", SecondsText(estimate.simulate_seconds()), "; ", models, "\n");
  const std::string assumed = sim::AssumedEfficiencies(request.cluster().device());
  if (request.cost_mode() == v1::COST_ROOFLINE && !assumed.empty()) absl::StrAppend(&text, assumed, "\n");
  return text;
}

}  // namespace

std::string PlanText(const v1::PlanResult& result, bool all_rejected) {
  std::string text = absl::StrCat(result.model(), " on ", result.cluster(), ", global batch ", result.global_batch(),
                                  ", sequences of ", result.seq_len(), " tokens\n\n");
  if (result.ranked_size() > 0) absl::StrAppend(&text, RankedTable(result), "\n");
  const bool show_rejected = result.rejected_size() > 0 && (all_rejected || result.ranked_size() == 0 || result.failed() > 0);
  if (show_rejected) absl::StrAppend(&text, RejectedTable(result, all_rejected), "\n");
  return absl::StrCat(text, PlanCountsText(result), "\n", result.explanation(), "\n");
}

std::string CostText(const v1::RunningCost& cost) {
  if (cost.gpu_hours_per_billion_tokens() <= 0) return "";
  std::string text = absl::StrCat("a billion tokens take ", Amount(cost.gpu_hours_per_billion_tokens()), " GPU-hours");
  if (cost.price_per_billion_tokens() > 0)
    absl::StrAppend(&text, " and ", Amount(cost.price_per_billion_tokens()), " in the currency of the price");
  return text;
}

std::string EstimateText(const v1::SimRequest& request, const v1::Estimate& estimate) {
  std::string text =
      absl::StrCat(estimate.model(), " (", CountText(estimate.parameters()), " parameters) on ", estimate.cluster(), " (",
                   estimate.world_size(), estimate.world_size() == 1 ? " rank" : " ranks", ")\n",
                   planner::Summarize(estimate.recipe()), "\n\n");
  absl::StrAppend(&text, SummaryText(estimate), TimeTable(estimate), "\n", StagesTable(estimate), OperatorsTable(estimate),
                  ModulesTable(estimate), CriticalPathTable(estimate));
  for (const auto& stage : estimate.stages()) absl::StrAppend(&text, StageText(stage), "\n");
  return text + SourcesText(request, estimate);
}

}  // namespace legoai::cli
