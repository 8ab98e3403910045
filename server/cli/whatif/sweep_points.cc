#include "server/cli/whatif/sweep_points.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "planner/explain.h"
#include "proto/errors.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "proto/status.h"
#include "proto/text.h"
#include "server/cli/output.h"
#include "server/cli/whatif/sensitivities.h"

namespace legoai::cli {
namespace {

constexpr char kGpus[] = "gpus", kBatch[] = "global-batch", kSeq[] = "seq", kCluster[] = "cluster", kModel[] = "model";
const char* const kOptions[] = {kGpus, kBatch, kSeq, kCluster, kModel};

bool IsOption(const std::string& key) { return std::find(std::begin(kOptions), std::end(kOptions), key) != std::end(kOptions); }

// Of the recipe, those of options that stand for one.
std::string RecipeKey(const std::string& key) {
  if (key == kBatch) return "training.global_batch_size";
  if (key == kSeq) return "training.seq_len";
  return key;
}

std::vector<std::string> RecipeKeys() {
  std::vector<std::string> keys;
  const auto* recipe = v1::Recipe::descriptor();
  for (int i = 0; i < recipe->field_count(); ++i) {
    const auto* section = recipe->field(i)->message_type();
    for (int j = 0; section != nullptr && j < section->field_count(); ++j)
      keys.push_back(absl::StrCat(recipe->field(i)->name(), ".", section->field(j)->name()));
  }
  return keys;
}

absl::Status CheckKey(const std::string& text, const std::string& key, const Arguments& arguments) {
  std::vector<std::string> known = RecipeKeys();
  const bool of_recipe = std::find(known.begin(), known.end(), RecipeKey(key)) != known.end();
  if (!of_recipe && !IsOption(key) && !IsClusterFigure(key)) {
    known.insert(known.end(), std::begin(kOptions), std::end(kOptions));
    for (const char* figure : {"memory", "memory.bandwidth", "matmul.efficiency", "compute.peak"}) known.push_back(figure);
    return FieldError("--vary", text,
                      absl::StrCat("varies ", key, ", which is unknown; did you mean ", Nearest(key, known),
                                   "? A key of the recipe can be varied, ", absl::StrJoin(kOptions, ", "),
                                   ", or a figure of the cluster, as matmul.efficiency or link.node.bandwidth"));
  }
  if (key == "model.name") return FieldError("--vary", text, "write it as model=A,B");
  const bool fixed = key != kCluster && key != kGpus && arguments.Has(key);
  const auto same = [&](const auto& given) { return given.first == RecipeKey(key); };
  if (fixed || std::any_of(arguments.recipe_keys().begin(), arguments.recipe_keys().end(), same))
    return FieldError("--vary", text, absl::StrCat("varies what --", key, " fixes: give one of them"));
  if (key == kCluster && arguments.Has(kCluster))
    return FieldError("--vary", text, "varies what --cluster fixes: give one of them");
  return absl::OkStatus();
}

absl::StatusOr<Variation> ReadVariation(const std::string& text, const Arguments& arguments) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  Variation variation{std::string(absl::StripAsciiWhitespace(parts.first)), {}};
  for (absl::string_view value : absl::StrSplit(parts.second, ','))
    variation.values.emplace_back(absl::StripAsciiWhitespace(value));
  const bool empty = std::find(variation.values.begin(), variation.values.end(), "") != variation.values.end();
  if (variation.key.empty() || empty)
    return FieldError("--vary", text, "write KEY=A,B,C, for instance gpus=8,16,32 or training.local_batch_size=1,2");
  RETURN_IF_ERROR(CheckKey(text, variation.key, arguments));
  const std::set<std::string> different(variation.values.begin(), variation.values.end());
  if (different.size() < variation.values.size()) return FieldError("--vary", text, "has a value twice");
  return variation;
}

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

absl::StatusOr<std::vector<Variation>> ReadVariations(const Arguments& arguments) {
  std::vector<Variation> variations;
  int64_t points = 1;
  std::set<std::string> keys;
  for (const std::string& text : arguments.All("vary")) {
    ASSIGN_OR_RETURN(auto variation, ReadVariation(text, arguments));
    if (!keys.insert(RecipeKey(variation.key)).second) return FieldError("--vary", text, "varies a key that is varied before");
    points *= static_cast<int64_t>(variation.values.size());
    if (points > kMostSweepPoints)
      return FieldError("--vary", text, absl::StrCat("makes more than ", kMostSweepPoints, " points: give fewer values"));
    variations.push_back(std::move(variation));
  }
  return variations;
}

std::vector<SweepPoint> SweepPoints(const std::vector<Variation>& variations) {
  std::vector<SweepPoint> points = {{}};
  for (const Variation& variation : variations) {
    std::vector<SweepPoint> longer;
    for (const SweepPoint& point : points) {
      for (const std::string& value : variation.values) {
        longer.push_back(point);
        longer.back().push_back(value);
      }
    }
    points = std::move(longer);
  }
  return points;
}

absl::StatusOr<Arguments> ArgumentsAt(const Arguments& arguments, const std::vector<Variation>& variations,
                                      const SweepPoint& point) {
  Arguments at = arguments;
  std::string gpus;
  for (size_t i = 0; i < variations.size(); ++i) {
    const std::string& key = variations[i].key;
    if (key == kGpus) {
      gpus = point[i];
    } else if (!IsClusterFigure(key)) {
      at = at.With(RecipeKey(key), point[i]);
    }
  }
  if (gpus.empty()) return at;
  int64_t devices = 0;
  if (!absl::SimpleAtoi(gpus, &devices) || devices < 1) return FieldError(kGpus, gpus, "must be a whole number of at least 1");
  ASSIGN_OR_RETURN(const auto cluster, ResizedCluster(at.Text(kCluster), devices));
  return at.With(kCluster, cluster);
}

absl::Status SetFiguresAt(const std::vector<Variation>& variations, const SweepPoint& point, v1::Cluster* cluster) {
  for (size_t i = 0; i < variations.size(); ++i) {
    if (!IsClusterFigure(variations[i].key)) continue;
    RETURN_IF_ERROR(SetClusterFigure(variations[i].key, point[i], cluster));
  }
  return absl::OkStatus();
}

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
