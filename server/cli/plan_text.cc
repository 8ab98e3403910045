#include "server/cli/plan_text.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/explain.h"
#include "planner/order.h"
#include "server/cli/output.h"
#include "server/cli/simulate_text.h"

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

}  // namespace

std::string PlanText(const v1::PlanResult& result, bool all_rejected) {
  std::string text = absl::StrCat(result.model(), " on ", result.cluster(), ", global batch ", result.global_batch(),
                                  ", sequences of ", result.seq_len(), " tokens\n\n");
  if (result.ranked_size() > 0) absl::StrAppend(&text, RankedTable(result), "\n");
  const bool show_rejected = result.rejected_size() > 0 && (all_rejected || result.ranked_size() == 0 || result.failed() > 0);
  if (show_rejected) absl::StrAppend(&text, RejectedTable(result, all_rejected), "\n");
  return absl::StrCat(text, PlanCountsText(result), "\n", result.explanation(), "\n");
}

}  // namespace legoai::cli
