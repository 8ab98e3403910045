#include "planner/autosac/policy_text.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace legoai::planner {
namespace {

using Rules = std::vector<std::string>;  // MODULE OPERATOR WHICH

// Operators of a block itself have no module name of their own: they are counted among those of all modules.
std::string PatternOf(const std::string& module) { return module.empty() ? "*" : module; }

// Which of the operators that the pattern and name stand for are kept.
std::vector<std::string> Which(const KeptOfBlock& kept, const std::string& pattern, const std::string& module,
                               const std::string& name) {
  std::vector<std::string> numbers;
  int64_t count = 0;
  for (int i = 0; i < static_cast<int>(kept.facts->operators.size()); ++i) {
    const OperatorFacts& op = kept.facts->operators[i];
    if (op.name != name || (pattern != "*" && op.module != pattern)) continue;
    ++count;
    const bool is_kept = std::find(kept.operators.begin(), kept.operators.end(), i) != kept.operators.end();
    if (op.module == module && is_kept) numbers.push_back(absl::StrCat(count));
  }
  if (static_cast<int64_t>(numbers.size()) == count) return {"all"};
  return numbers;
}

Rules RulesOf(const KeptOfBlock& kept) {
  if (!kept.recomputed) return {"* * all"};
  Rules rules;
  std::vector<std::pair<std::string, std::string>> done;
  for (const int i : kept.operators) {
    const OperatorFacts& op = kept.facts->operators[i];
    if (std::find(done.begin(), done.end(), std::pair(op.module, op.name)) != done.end()) continue;
    done.emplace_back(op.module, op.name);
    const std::string pattern = PatternOf(op.module);
    for (const std::string& which : Which(kept, pattern, op.module, op.name))
      rules.push_back(absl::StrCat(pattern, " ", op.name, " ", which));
  }
  return rules;
}

std::string RangeText(int64_t first, int64_t last, int64_t blocks) {
  if (first == 0 && last + 1 == blocks) return "";
  return first == last ? absl::StrCat(first, ":") : absl::StrCat(first, "-", last, ":");
}

}  // namespace

KeptOfBlock KeptOf(const BlockPolicy& policy, const std::vector<Group>& groups, const BlockFacts& facts) {
  KeptOfBlock kept{.recomputed = policy.recomputed, .operators = {}, .facts = &facts};
  for (size_t i = 0; i < policy.local.keeps.size(); ++i) {
    if (!policy.local.keeps[i]) continue;
    kept.operators.insert(kept.operators.end(), groups[i].operators.begin(), groups[i].operators.end());
  }
  std::sort(kept.operators.begin(), kept.operators.end());
  return kept;
}

v1::ActivationCheckpoint SectionOf(const std::map<int64_t, KeptOfBlock>& kept, int64_t blocks) {
  Rules all;
  bool any_recomputed = false;
  for (auto block = kept.begin(); block != kept.end();) {
    const int64_t first = block->first;
    const Rules rules = RulesOf(block->second);
    int64_t last = first;
    any_recomputed = any_recomputed || block->second.recomputed;
    for (++block; block != kept.end() && block->first == last + 1 && RulesOf(block->second) == rules; ++block) ++last;
    for (const std::string& rule : rules) all.push_back(RangeText(first, last, blocks) + rule);
  }
  v1::ActivationCheckpoint section;
  section.set_mode(!any_recomputed ? v1::AC_NONE : all.empty() ? v1::AC_FULL : v1::AC_SELECTIVE);
  if (section.mode() != v1::AC_SELECTIVE) return section;
  section.set_selective_ac_option("policy");
  section.set_selective_ac_policy(absl::StrJoin(all, "; "));
  return section;
}

}  // namespace legoai::planner
