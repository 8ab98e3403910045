#include "server/cli/whatif/sac_output.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/recipe/recipe.h"
#include "planner/autosac/policy_text.h"
#include "server/cli/whatif/svg.h"

namespace legoai::cli {
namespace {

using planner::BlockFacts;
using planner::OperatorFacts;
using planner::SacResult;
using planner::StageModel;
using planner::TradeoffPoint;

std::string Ms(double seconds) { return absl::StrFormat("%.3f", 1e3 * seconds); }
std::string Percent(double share) { return absl::StrFormat("%.1f %%", 100 * share); }

// "0-3, 7": of the stage's blocks, those that keep operator `op`.
std::string KeptIn(const SacResult& result, size_t s, int op) {
  const StageModel& stage = result.stages[s];
  std::vector<std::string> ranges;
  int64_t first = -1, last = -1;
  const auto close = [&] {
    if (first >= 0) ranges.push_back(first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last));
  };
  for (size_t i = 0; i < stage.facts.blocks.size(); ++i) {
    const BlockFacts& facts = stage.facts.blocks[i];
    const auto kept = planner::KeptOf(result.policies[s][i], stage.groups[i], facts);
    const bool keeps = !kept.recomputed || std::find(kept.operators.begin(), kept.operators.end(), op) != kept.operators.end();
    if (!keeps) continue;
    if (first < 0 || facts.block != last + 1) close(), first = facts.block;
    last = facts.block;
  }
  close();
  return absl::StrJoin(ranges, ", ");
}

std::string Remarks(const OperatorFacts& op) {
  std::vector<std::string> words;
  if (op.saved) words.push_back("saved");
  if (op.random) words.push_back("random");
  if (op.leader >= 0) words.push_back(absl::StrCat("in place of ", op.leader));
  if (!op.recomputed) words.push_back("not reached");
  if (op.recomputed && !op.keepable) words.push_back("always again");
  return absl::StrJoin(words, ", ");
}

std::string OperatorTable(const SacResult& result, size_t s) {
  const BlockFacts& facts = result.stages[s].facts.blocks.front();
  Table table({"op", "<operator", "<module", "time ms", "memory", "<remarks", "<kept in blocks"});
  int64_t views = 0;
  for (int i = 0; i < static_cast<int>(facts.operators.size()); ++i) {
    const OperatorFacts& op = facts.operators[i];
    views += op.view_like;
    if (op.view_like) continue;
    table.Add({absl::StrCat(i), op.name, op.module, Ms(op.seconds), BytesText(static_cast<double>(op.bytes)), Remarks(op),
               op.keepable ? KeptIn(result, s, i) : ""});
  }
  return absl::StrCat("Operators of block ", facts.block, ": ", BytesText(static_cast<double>(facts.TotalBytes())), ", ",
                      Ms(facts.TotalSeconds()), " ms to recompute; ", views, " views are not listed\n", table.Text());
}

// Of the curve, where its points change.
std::string CurveTable(const StageModel& stage) {
  const BlockFacts& facts = stage.facts.blocks.front();
  const double bytes = static_cast<double>(facts.TotalBytes()), seconds = facts.TotalSeconds();
  Table table({"<discarded up to", "memory", "of the block", "time ms", "of the block", "<time"});
  for (const TradeoffPoint& point : stage.curves.front()) {
    const planner::Group& group = stage.groups.front()[point.group];
    if (group.bytes == 0 && group.seconds == 0) continue;
    const OperatorFacts& op = facts.operators[group.operators.front()];
    table.Add({absl::StrCat(op.module, op.module.empty() ? "" : " ", op.name, group.always_recomputed ? " (always)" : ""),
               BytesText(static_cast<double>(point.discarded_bytes)),
               Percent(bytes > 0 ? static_cast<double>(point.discarded_bytes) / bytes : 0), Ms(point.seconds),
               Percent(seconds > 0 ? point.seconds / seconds : 0), Bar(seconds > 0 ? point.seconds / seconds : 0, 24)});
  }
  return absl::StrCat("Memory against recomputation, the most memory per second first\n", table.Text());
}

std::string OutcomeTable(const SacResult& result, int64_t budget) {
  Table table({"<checkpointing", "peak", "of the budget", "step ms", "recomputation ms"});
  const std::pair<const char*, const v1::Estimate*> rows[] = {
      {"none", &result.none}, {"full", &result.full}, {"this policy", &result.chosen}};
  for (const auto& [name, estimate] : rows) {
    const auto peak = static_cast<double>(planner::PeakOf(*estimate));
    table.Add({name, BytesText(peak), Percent(peak / static_cast<double>(budget)), Ms(estimate->step_time_seconds()),
               Ms(planner::RecomputationSeconds(result, *estimate))});
  }
  const std::string saved = absl::StrFormat(
      "%.1f %% of full checkpointing's recomputation is saved; %d recipes were simulated, and the last policy was solved in %.1f "
      "ms\n",
      100 * planner::SavedShare(result), result.simulations, 1e3 * result.solver_seconds);
  return absl::StrCat(table.Text(), saved);
}

Tree EstimateTree(const SacResult& result, const v1::Estimate& estimate) {
  return {{"peak_memory_bytes", planner::PeakOf(estimate)},
          {"step_time_seconds", estimate.step_time_seconds()},
          {"recomputation_seconds", planner::RecomputationSeconds(result, estimate)}};
}

Tree OperatorTree(const SacResult& result, size_t s, int i) {
  const OperatorFacts& op = result.stages[s].facts.blocks.front().operators[i];
  return {{"operator", op.name},
          {"module", op.module},
          {"seconds", op.seconds},
          {"bytes", op.bytes},
          {"view_like", op.view_like},
          {"random", op.random},
          {"saved", op.saved},
          {"recomputed", op.recomputed},
          {"keepable", op.keepable},
          {"leader", op.leader},
          {"kept_in", op.keepable ? KeptIn(result, s, i) : ""}};
}

Tree StageTree(const SacResult& result, size_t s) {
  const StageModel& stage = result.stages[s];
  const BlockFacts& facts = stage.facts.blocks.front();
  Tree tree = {{"stage", s},
               {"block", facts.block},
               {"blocks", stage.facts.blocks.size()},
               {"bytes", facts.TotalBytes()},
               {"saved_bytes", facts.SavedBytes()},
               {"seconds", facts.TotalSeconds()}};
  tree["operators"] = Tree::array();
  for (int i = 0; i < static_cast<int>(facts.operators.size()); ++i) tree["operators"].push_back(OperatorTree(result, s, i));
  tree["curve"] = Tree::array();
  for (const TradeoffPoint& point : stage.curves.front()) {
    const planner::Group& group = stage.groups.front()[point.group];
    tree["curve"].push_back({{"operators", group.operators},
                             {"discarded_bytes", point.discarded_bytes},
                             {"seconds", point.seconds},
                             {"always_recomputed", group.always_recomputed}});
  }
  tree["upper_bound"] = Tree::array();
  for (const planner::Segment& line : stage.bounds.front())
    tree["upper_bound"].push_back({{"slope", line.slope}, {"intercept", line.intercept}});
  return tree;
}

// The curve in shares of 1.
std::vector<std::pair<double, double>> Shares(const StageModel& stage) {
  const BlockFacts& facts = stage.facts.blocks.front();
  std::vector<std::pair<double, double>> points;
  for (const TradeoffPoint& point : stage.curves.front())
    points.emplace_back(static_cast<double>(point.discarded_bytes) / std::max<double>(1, static_cast<double>(facts.TotalBytes())),
                        facts.TotalSeconds() > 0 ? point.seconds / facts.TotalSeconds() : 0);
  return points;
}

class Plot {
 public:
  static constexpr double kLeft = 64, kTop = 64, kWidth = 520, kHeight = 320;
  static double X(double share) { return kLeft + kWidth * share; }
  static double Y(double share) { return kTop + kHeight * (1 - std::min(share, 1.0)); }

  static std::string Axes() {
    std::string body;
    for (int i = 0; i <= 5; ++i) {
      const double share = i / 5.0;
      body += svg::Line(kLeft, Y(share), kLeft + kWidth, Y(share), svg::kGrid);
      body += svg::TextAt(kLeft - 8, Y(share) + 4, absl::StrFormat("%d %%", 20 * i), "end");
      body += svg::TextAt(X(share), kTop + kHeight + 18, absl::StrFormat("%d %%", 20 * i), "middle");
    }
    body += svg::TextAt(kLeft, 46, "recomputation time of the block; blue: discarding in turn, orange: the upper bound");
    return body + svg::TextAt(kLeft + kWidth / 2, kTop + kHeight + 38, "memory discarded", "middle");
  }
};

}  // namespace

std::string SacToml(const planner::SacResult& result) {
  v1::Recipe recipe;
  *recipe.mutable_activation_checkpoint() = result.section;
  return parallel::RecipeToToml(recipe);
}

std::string SacText(const planner::SacResult& result, int64_t budget_bytes) {
  std::string text;
  for (size_t s = 0; s < result.stages.size(); ++s) {
    if (result.stages.size() > 1) absl::StrAppend(&text, "Stage ", s, "\n");
    absl::StrAppend(&text, OperatorTable(result, s), "\n");
    if (s == 0) absl::StrAppend(&text, CurveTable(result.stages[s]), "\n");
  }
  absl::StrAppend(&text, OutcomeTable(result, budget_bytes), "\n");
  if (result.stages.empty()) absl::StrAppend(&text, "nothing has to be recomputed\n\n");
  return text + SacToml(result);
}

Tree SacTree(const planner::SacResult& result, int64_t budget_bytes) {
  Tree tree = {{"budget_bytes", budget_bytes},
               {"recipe_toml", SacToml(result)},
               {"policy", result.section.selective_ac_policy()},
               {"none", EstimateTree(result, result.none)},
               {"full", EstimateTree(result, result.full)},
               {"chosen", EstimateTree(result, result.chosen)},
               {"saved_share", planner::SavedShare(result)},
               {"simulations", result.simulations},
               {"solver_seconds", result.solver_seconds}};
  tree["stages"] = Tree::array();
  for (size_t s = 0; s < result.stages.size(); ++s) tree["stages"].push_back(StageTree(result, s));
  return tree;
}

std::string SacSvg(const planner::SacResult& result) {
  constexpr double kWidth = Plot::kLeft + Plot::kWidth + 24, kHeight = Plot::kTop + Plot::kHeight + 56;
  if (result.stages.empty()) return svg::Document(kWidth, kHeight, "nothing has to be recomputed", "");
  const StageModel& stage = result.stages.front();
  std::string body = Plot::Axes();
  const auto points = Shares(stage);
  for (size_t i = 0; i < points.size(); ++i) {
    const auto [x, y] = points[i];
    if (i > 0) {
      const auto [from_x, from_y] = points[i - 1];
      body += svg::Line(Plot::X(from_x), Plot::Y(from_y), Plot::X(x), Plot::Y(y), svg::kColors[0], " stroke-width=\"2\"");
    }
    const planner::Group& group = stage.groups.front()[stage.curves.front()[i].group];
    const OperatorFacts& op = stage.facts.blocks.front().operators[group.operators.front()];
    body += svg::Box(Plot::X(x) - 3, Plot::Y(y) - 3, 6, 6, svg::kColors[0],
                     absl::StrCat(op.module, " ", op.name, ": ", Percent(x), " of memory, ", Percent(y), " of time"));
  }
  constexpr int kSteps = 100;
  for (int i = 0; i < kSteps; ++i) {
    const double from = i / static_cast<double>(kSteps), to = (i + 1) / static_cast<double>(kSteps);
    const double low = At(stage.bounds.front(), from), high = At(stage.bounds.front(), to);
    body += svg::Line(Plot::X(from), Plot::Y(low), Plot::X(to), Plot::Y(high), svg::kColors[1]);
  }
  const std::string title = absl::StrCat("Block ", stage.facts.blocks.front().block, ": memory against recomputation");
  return svg::Document(kWidth, kHeight, title, body);
}

}  // namespace legoai::cli
