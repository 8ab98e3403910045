#include "server/cli/whatif/sweep_result.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "planner/explain.h"
#include "server/cli/output.h"

namespace legoai::cli {
namespace {

bool IsPriced(const Sweep& sweep) {
  return std::any_of(sweep.outcomes.begin(), sweep.outcomes.end(), [](const SweepOutcome& outcome) {
    return outcome.best && outcome.best->running_cost().price_per_billion_tokens() > 0;
  });
}

bool Varies(const Sweep& sweep, const std::string& key) {
  return std::any_of(sweep.variations.begin(), sweep.variations.end(), [&](const Variation& one) { return one.key == key; });
}

// "parallelism.tensor_parallel_degree" is too wide for a column; what it is of follows from its last part.
std::string ColumnName(const std::string& key) {
  if (key.find("link.") == 0 || key.find('.') == std::string::npos || key.ends_with(".efficiency")) return key;
  return key.substr(key.rfind('.') + 1);
}

std::vector<std::string> FigureCells(const SweepOutcome& outcome, bool priced) {
  if (!outcome.best) return std::vector<std::string>(priced ? 8 : 7, "-");
  const v1::RankedRecipe& best = *outcome.best;
  const auto& cost = best.running_cost();
  std::vector<std::string> cells = {SecondsText(best.step_time_seconds()),
                                    WithCommas(static_cast<int64_t>(best.tokens_per_second_per_gpu())),
                                    CountText(cost.tokens_per_day()),
                                    best.mfu() > 0 ? PercentText(best.mfu()) : "-",
                                    BytesText(static_cast<double>(best.peak_memory_bytes())),
                                    BytesText(static_cast<double>(best.headroom_bytes())),
                                    absl::StrFormat("%.4g", cost.gpu_hours_per_billion_tokens())};
  if (priced) cells.push_back(absl::StrFormat("%.4g", cost.price_per_billion_tokens()));
  return cells;
}

std::string Number(double value) { return absl::StrFormat("%.9g", value); }

}  // namespace

std::string SweepText(const Sweep& sweep) {
  std::vector<std::string> header;
  for (const Variation& variation : sweep.variations) header.push_back(ColumnName(variation.key));
  const bool priced = IsPriced(sweep);
  const bool devices = !Varies(sweep, "gpus");
  if (devices) header.push_back("GPUs");
  for (const char* name :
       {"step time", "tokens/s/device", "tokens a day", "MFU", "peak allocated", "headroom", "GPU-hours/B tokens"})
    header.push_back(name);
  if (priced) header.push_back("price/B tokens");
  header.push_back(sweep.planned ? "<recipe" : "<");
  Table table(header);
  for (const SweepOutcome& outcome : sweep.outcomes) {
    std::vector<std::string> row = outcome.point;
    if (devices) row.push_back(outcome.devices > 0 ? WithCommas(outcome.devices) : "-");
    for (std::string& cell : FigureCells(outcome, priced)) row.push_back(std::move(cell));
    const bool recipe = sweep.planned && outcome.best;
    row.push_back(outcome.fits ? (recipe ? planner::Summarize(outcome.best->recipe()) : "")
                               : Colored(Color::kRed, outcome.reason));
    table.Add(std::move(row));
  }
  return table.Text() +
         "memory: allocated by tensors at the peak of the fullest stage, not reserved; B tokens: a billion of them\n";
}

std::string CsvLine(const std::vector<std::string>& cells) {
  std::vector<std::string> quoted;
  for (const std::string& cell : cells) {
    const bool plain = cell.find_first_of(",\"\r\n") == std::string::npos;
    quoted.push_back(plain ? cell : absl::StrCat("\"", absl::StrReplaceAll(cell, {{"\"", "\"\""}}), "\""));
  }
  return absl::StrJoin(quoted, ",") + "\r\n";
}

std::string SweepCsv(const Sweep& sweep) {
  std::vector<std::string> header;
  for (const Variation& variation : sweep.variations) header.push_back(variation.key);
  for (const char* name :
       {"devices", "fits", "step_time_seconds", "tokens_per_second_per_gpu", "tokens_per_day", "mfu", "peak_memory_bytes",
        "headroom_bytes", "gpu_hours_per_billion_tokens", "price_per_billion_tokens", "recipe", "reason"})
    header.push_back(name);
  std::string text = CsvLine(header);
  for (const SweepOutcome& outcome : sweep.outcomes) {
    std::vector<std::string> row = outcome.point;
    row.push_back(absl::StrCat(outcome.devices));
    row.push_back(outcome.fits ? "true" : "false");
    if (outcome.best) {
      const v1::RankedRecipe& best = *outcome.best;
      const auto& cost = best.running_cost();
      for (double value : {best.step_time_seconds(), best.tokens_per_second_per_gpu(), cost.tokens_per_day()})
        row.push_back(Number(value));
      row.push_back(best.mfu() > 0 ? Number(best.mfu()) : "");
      for (int64_t bytes : {best.peak_memory_bytes(), best.headroom_bytes()}) row.push_back(absl::StrCat(bytes));
      row.push_back(Number(cost.gpu_hours_per_billion_tokens()));
      row.push_back(cost.price_per_billion_tokens() > 0 ? Number(cost.price_per_billion_tokens()) : "");
      row.push_back(planner::Summarize(best.recipe()));
    } else {
      row.insert(row.end(), 9, "");
    }
    row.push_back(outcome.reason);
    text += CsvLine(row);
  }
  return text;
}

Tree SweepTree(const Sweep& sweep) {
  Tree tree = {{"varied", Tree::array()}, {"points", Tree::array()}};
  for (const Variation& variation : sweep.variations) tree["varied"].push_back(variation.key);
  for (const SweepOutcome& outcome : sweep.outcomes) {
    Tree values = Tree::object();
    for (size_t i = 0; i < sweep.variations.size(); ++i) values[sweep.variations[i].key] = outcome.point[i];
    Tree point = {{"values", values}, {"devices", outcome.devices}, {"fits", outcome.fits}};
    if (!outcome.reason.empty()) point["reason"] = outcome.reason;
    if (outcome.best) {
      const Tree best = ToTree(*outcome.best);
      for (const auto& [key, value] : best.items()) {
        if (key != "rank" && key != "estimated") point[key] = value;
      }
    }
    tree["points"].push_back(std::move(point));
  }
  return tree;
}

}  // namespace legoai::cli
