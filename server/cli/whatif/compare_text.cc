#include "server/cli/whatif/compare_text.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/recipe/recipe.h"
#include "planner/explain.h"
#include "planner/plan_facts.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "server/cli/output.h"

namespace legoai::cli {
namespace {

// Differences below this share of A are what the simulator's arithmetic leaves, no effect.
constexpr double kNoEffect = 1e-6;
// From here on "3 times" is easier to read than "+200 %".
constexpr double kTimes = 2;

double PeakBytes(const v1::Estimate& estimate) {
  return static_cast<double>(planner::FullestStage(estimate).peak_allocated_bytes());
}

std::string Signed(double difference, std::string (*text)(double)) {
  if (difference == 0) return "0";
  return absl::StrCat(difference > 0 ? "+" : "-", text(std::abs(difference)));
}

// "+0.311 s (+12.0 %)"; of what A does not have without a share.
std::string Change(double a, double b, std::string (*text)(double)) {
  if (std::abs(b - a) <= kNoEffect * std::abs(a)) return "0";
  std::string change = Signed(b - a, text);
  if (a > 0 && b >= kTimes * a) return absl::StrCat(change, " (", absl::StrFormat("%.3g", b / a), " times)");
  if (a > 0) absl::StrAppend(&change, " (", Signed((b - a) / a, PercentText), ")");
  return change;
}

class SideBySide {
 public:
  SideBySide() : table_({"<", "A", "B", "B against A"}) {}

  void Add(const std::string& name, double a, double b, std::string (*text)(double)) {
    if (a != 0 || b != 0) table_.Add({name, text(a), text(b), Change(a, b, text)});
  }
  // Shares of a whole: their difference is in points, to be told from a share of A.
  void AddShare(const std::string& name, double a, double b) {
    const std::string change = a > 0 && b > 0 ? absl::StrFormat("%+.1f points", 100 * (b - a)) : "-";
    if (a > 0 || b > 0) table_.Add({name, a > 0 ? PercentText(a) : "-", b > 0 ? PercentText(b) : "-", change});
  }
  // The fields of two messages of numbers of one type.
  template <class Message>
  void AddFields(const Message& a, const Message& b, const std::string& suffix, std::string (*text)(double)) {
    const Tree first = ToTree(a), second = ToTree(b);
    for (const auto& [key, value] : first.items()) {
      const std::string name = absl::StrReplaceAll(key, {{suffix, ""}, {"_", " "}});
      Add("  " + name, value.template get<double>(), second[key].template get<double>(), text);
    }
  }
  std::string Text() const { return table_.Text(); }

 private:
  Table table_;
};

std::string BothTable(const v1::Estimate& a, const v1::Estimate& b) {
  const auto &first = planner::FullestStage(a), &second = planner::FullestStage(b);
  SideBySide both;
  both.Add("step time", a.step_time_seconds(), b.step_time_seconds(), SecondsText);
  both.AddFields(a.breakdown(), b.breakdown(), "_seconds", SecondsText);
  both.Add("tokens/s per device", a.tokens_per_second_per_gpu(), b.tokens_per_second_per_gpu(), CountText);
  both.AddShare("MFU", a.mfu(), b.mfu());
  both.Add("GPU-hours per billion tokens", a.running_cost().gpu_hours_per_billion_tokens(),
           b.running_cost().gpu_hours_per_billion_tokens(), CountText);
  both.Add("price per billion tokens", a.running_cost().price_per_billion_tokens(), b.running_cost().price_per_billion_tokens(),
           CountText);
  both.Add("peak allocated, fullest stage", PeakBytes(a), PeakBytes(b), BytesText);
  both.AddFields(first.categories(), second.categories(), "_bytes", BytesText);
  return both.Text();
}

bool HasEffect(const Comparison& comparison, const v1::Estimate& changed) {
  const v1::Estimate& a = comparison.a;
  return std::abs(changed.step_time_seconds() - a.step_time_seconds()) > kNoEffect * a.step_time_seconds() ||
         PeakBytes(changed) != PeakBytes(a);
}

void AddRow(const v1::Estimate& a, const ChangedRecipe& change, Table* table) {
  std::string time = "not simulated", memory = "-", fits;
  if (change.estimate.ok()) {
    time = Change(a.step_time_seconds(), change.estimate->step_time_seconds(), SecondsText);
    memory = Change(PeakBytes(a), PeakBytes(*change.estimate), BytesText);
    if (!change.estimate->fits()) fits = Colored(Color::kRed, "does not fit");
  } else {
    fits = std::string(change.estimate.status().message());
  }
  for (size_t i = 0; i < change.keys.size(); ++i) {
    const KeyChange& key = change.keys[i];
    const std::string name = i == 0 ? key.key : "+ " + key.key;
    table->Add(i == 0 ? std::vector<std::string>{name, key.a, key.b, time, memory, fits}
                      : std::vector<std::string>{name, key.a, key.b, "", "", ""});
  }
}

// How much of the whole difference the rows do not explain, as they were made one by one.
std::string RestText(const Comparison& comparison) {
  if (comparison.changes.size() < 2) return "";
  double seconds = 0, bytes = 0;
  for (const ChangedRecipe& change : comparison.changes) {
    if (!change.estimate.ok()) return "";
    seconds += change.estimate->step_time_seconds() - comparison.a.step_time_seconds();
    bytes += PeakBytes(*change.estimate) - PeakBytes(comparison.a);
  }
  const double all_seconds = comparison.b.step_time_seconds() - comparison.a.step_time_seconds();
  const double all_bytes = PeakBytes(comparison.b) - PeakBytes(comparison.a);
  const bool equal = std::abs(all_seconds - seconds) <= kNoEffect * comparison.a.step_time_seconds() && all_bytes == bytes;
  if (equal) return "the changes do not act on each other: together they make what they make alone\n";
  const auto both = [](double time, double memory) {
    return absl::StrCat(Signed(time, SecondsText), " and ", Signed(memory, BytesText));
  };
  return absl::StrCat("together they make B: ", both(all_seconds, all_bytes), " against A. The rows add up to ",
                      both(seconds, bytes), ";\nthe rest is what the changes do to each other\n");
}

std::string ChangesText(const Comparison& comparison) {
  if (comparison.changes.empty()) return "the recipes are the same\n";
  Table table({"<changed alone, from A", "A", "B", "step time", "peak allocated", "<"});
  std::vector<std::string> without_effect;
  for (const ChangedRecipe& change : comparison.changes) {
    const bool effect = !change.estimate.ok() || HasEffect(comparison, *change.estimate);
    if (effect) AddRow(comparison.a, change, &table);
    for (const KeyChange& key : change.keys) {
      if (!effect) without_effect.push_back(absl::StrCat(key.key, " (", key.a, ", ", key.b, ")"));
    }
  }
  std::string text = table.empty() ? "" : table.Text();
  if (!without_effect.empty())
    absl::StrAppend(&text, "without effect on time and memory: ", absl::StrJoin(without_effect, ", "), "\n");
  return table.empty() ? text : text + RestText(comparison);
}

std::string FitText(const std::string& name, const v1::Estimate& estimate) {
  if (estimate.fits()) return "";
  const auto& stage = planner::FullestStage(estimate);
  return Colored(Color::kRed, absl::StrCat(name, " does not fit: stage ", stage.stage(), " needs ",
                                           BytesText(static_cast<double>(stage.peak_allocated_bytes())), ", ",
                                           BytesText(static_cast<double>(planner::UsableBytes(stage))), " are usable\n"));
}

// More keys than these are not changed together in search of a legal recipe: their sets are too many.
constexpr size_t kLargestSearched = 4;

Tree TreeOf(v1::Recipe recipe) {
  parallel::FillDefaults(&recipe);
  return ToTree(recipe);
}

Tree::json_pointer Place(const std::string& key) { return Tree::json_pointer("/" + absl::StrReplaceAll(key, {{".", "/"}})); }

std::string ValueText(const Tree& recipe, const std::string& key) {
  const Tree value = recipe.value(Place(key), Tree());
  if (value.is_null()) return "-";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void AddLeaves(const Tree& tree, const std::string& prefix, std::vector<std::string>* keys) {
  for (const auto& [name, value] : tree.items()) {
    const std::string key = prefix.empty() ? name : absl::StrCat(prefix, ".", name);
    if (value.is_object()) {
      AddLeaves(value, key, keys);
    } else if (std::find(keys->begin(), keys->end(), key) == keys->end()) {
      keys->push_back(key);
    }
  }
}

// The next set of this many of `count` indices in lexicographic order; false after the last one.
bool NextSet(size_t count, std::vector<size_t>* set) {
  for (size_t i = set->size(); i-- > 0;) {
    if ((*set)[i] + (set->size() - i) >= count) continue;
    std::iota(set->begin() + static_cast<ptrdiff_t>(i), set->end(), (*set)[i] + 1);
    return true;
  }
  return false;
}

std::optional<std::vector<size_t>> SmallestWith(size_t key, size_t keys,
                                                const std::function<bool(const std::vector<size_t>&)>& legal) {
  for (size_t size = 1; size <= std::min(keys, kLargestSearched); ++size) {
    std::vector<size_t> set(size);
    std::iota(set.begin(), set.end(), 0);
    do {
      const bool has = std::find(set.begin(), set.end(), key) != set.end();
      if (has && legal(set)) return set;
    } while (NextSet(keys, &set));
  }
  return std::nullopt;
}

}  // namespace

std::string ComparisonText(const Comparison& comparison) {
  const v1::Estimate &a = comparison.a, &b = comparison.b;
  return absl::StrCat(a.model(), a.model() == b.model() ? "" : " and " + b.model(), " on ", a.cluster(), "\nA  ",
                      comparison.a_name, ": ", planner::Summarize(a.recipe()), "\nB  ", comparison.b_name, ": ",
                      planner::Summarize(b.recipe()), "\n\n", FitText("A", a), FitText("B", b), BothTable(a, b), "\n",
                      ChangesText(comparison));
}

Tree ComparisonTree(const Comparison& comparison) {
  Tree tree = {{"a", ToTree(comparison.a)}, {"b", ToTree(comparison.b)}, {"changes", Tree::array()}};
  for (const ChangedRecipe& change : comparison.changes) {
    Tree one = {{"keys", Tree::array()}};
    for (const KeyChange& key : change.keys) one["keys"].push_back({{"key", key.key}, {"a", key.a}, {"b", key.b}});
    if (change.estimate.ok()) {
      one["fits"] = change.estimate->fits();
      one["step_time_seconds"] = change.estimate->step_time_seconds();
      one["peak_memory_bytes"] = planner::FullestStage(*change.estimate).peak_allocated_bytes();
      one["step_time_change_seconds"] = change.estimate->step_time_seconds() - comparison.a.step_time_seconds();
      one["peak_memory_change_bytes"] = planner::FullestStage(*change.estimate).peak_allocated_bytes() -
                                        planner::FullestStage(comparison.a).peak_allocated_bytes();
    } else {
      one["error"] = std::string(change.estimate.status().message());
    }
    tree["changes"].push_back(std::move(one));
  }
  return tree;
}

std::vector<KeyChange> ChangedKeys(const v1::Recipe& a, const v1::Recipe& b) {
  const Tree first = TreeOf(a), second = TreeOf(b);
  std::vector<std::string> keys;
  AddLeaves(first, "", &keys);
  AddLeaves(second, "", &keys);
  std::vector<KeyChange> changes;
  for (const std::string& key : keys) {
    KeyChange change{key, ValueText(first, key), ValueText(second, key)};
    if (change.a != change.b) changes.push_back(std::move(change));
  }
  return changes;
}

absl::StatusOr<v1::Recipe> WithKeysOf(const v1::Recipe& a, const v1::Recipe& b, const std::vector<std::string>& keys) {
  Tree tree = TreeOf(a);
  const Tree other = TreeOf(b);
  for (const std::string& key : keys) tree[Place(key)] = other.value(Place(key), Tree());
  v1::Recipe recipe;
  RETURN_IF_ERROR(MergeTree(tree, &recipe));
  return recipe;
}

std::vector<std::vector<size_t>> SmallestLegalChanges(size_t keys, const std::function<bool(const std::vector<size_t>&)>& legal) {
  std::vector<size_t> all(keys);
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::vector<size_t>> changes;
  for (size_t key = 0; key < keys; ++key) {
    std::vector<size_t> set = SmallestWith(key, keys, legal).value_or(all);
    if (std::find(changes.begin(), changes.end(), set) == changes.end()) changes.push_back(std::move(set));
  }
  return changes;
}

}  // namespace legoai::cli
