#include "core/recipe/keep_policy.h"

#include <fnmatch.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::parallel {
namespace {

constexpr char kField[] = "activation_checkpoint.selective_ac_policy";
constexpr int64_t kMostCounted = 1000;
constexpr char kForm[] = "must be [BLOCKS:]MODULE OPERATOR WHICH, such as \"mlp.* aten::mm odd\" or \"8-15:mlp.* aten::mm all\"";

absl::Status ReadWhich(const std::string& which, const std::string& rule, KeepRule* out) {
  if (which == "all") return absl::OkStatus();
  if (which == "odd" || which == "even") {
    out->first = which == "odd" ? 1 : 2;
    out->every = 2;
    return absl::OkStatus();
  }
  out->every = 0;
  if (absl::SimpleAtoi(which, &out->first) && out->first >= 1 && out->first <= kMostCounted) return absl::OkStatus();
  return FieldError(kField, rule, absl::StrCat("must end with all, odd, even, or a number of 1 to ", kMostCounted));
}

// "8-15:mlp.*": takes the blocks off the module.
absl::Status ReadBlocks(const std::string& rule, KeepRule* out) {
  const size_t colon = out->module.find(':');
  if (colon == std::string::npos) return absl::OkStatus();
  const std::vector<std::string> ends = absl::StrSplit(out->module.substr(0, colon), '-');
  const bool read = ends.size() <= 2 && absl::SimpleAtoi(ends.front(), &out->first_block) &&
                    absl::SimpleAtoi(ends.back(), &out->last_block);
  if (!read || out->first_block < 0 || out->last_block < out->first_block)
    return FieldError(kField, rule, "must begin with a block of the model, counted from 0, or a range of them such as 8-15:");
  out->module.erase(0, colon + 1);
  return out->module.empty() ? FieldError(kField, rule, kForm) : absl::OkStatus();
}

absl::StatusOr<KeepRule> ParseRule(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipWhitespace());
  if (words.size() != 3) return FieldError(kField, text, kForm);
  KeepRule rule;
  rule.module = words[0];
  RETURN_IF_ERROR(ReadBlocks(text, &rule));
  if (words[1] == "*") {
    if (rule.module == "*" && words[2] == "all") return rule;
    return FieldError(kField, text, "keeps all operators, which only whole blocks can: write \"BLOCKS:* * all\"");
  }
  rule.operators = absl::StrSplit(words[1], '|');
  const auto& known = KeepableOperators();
  for (const std::string& op : rule.operators) {
    if (std::find(known.begin(), known.end(), op) == known.end())
      return FieldError(kField, text, absl::StrCat(op, " cannot be kept: use one of ", absl::StrJoin(known, ", ")));
  }
  RETURN_IF_ERROR(ReadWhich(words[2], text, &rule));
  return rule;
}

}  // namespace

bool KeepRule::Matches(const std::string& module_of_block) const {
  return fnmatch(module.c_str(), module_of_block.c_str(), 0) == 0;
}

absl::StatusOr<std::vector<KeepRule>> ParseKeepPolicy(std::string_view text) {
  std::vector<KeepRule> rules;
  for (const absl::string_view part : absl::StrSplit(absl::string_view(text.data(), text.size()), ';', absl::SkipWhitespace())) {
    ASSIGN_OR_RETURN(KeepRule rule, ParseRule(std::string(absl::StripAsciiWhitespace(part))));
    rules.push_back(std::move(rule));
  }
  if (rules.empty()) {
    return FieldError(kField, "", "must have rules of the form [BLOCKS:]MODULE OPERATOR WHICH, separated by semicolons");
  }
  return rules;
}

bool KeepsOperators(const v1::ActivationCheckpoint& section) {
  const std::string& option = section.selective_ac_option();
  return section.mode() == v1::AC_SELECTIVE && (option == "op" || option == "policy");
}

std::vector<KeepRule> KeepRules(const v1::ActivationCheckpoint& section) {
  if (!KeepsOperators(section)) return {};
  return ParseKeepPolicy(section.selective_ac_option() == "op" ? kOpPolicy : section.selective_ac_policy())
      .value_or(std::vector<KeepRule>());
}

std::vector<KeepRule> KeepRulesOf(const v1::ActivationCheckpoint& section, int64_t block) {
  std::vector<KeepRule> rules = KeepRules(section);
  std::erase_if(rules, [block](const KeepRule& rule) { return !rule.IsOf(block); });
  return rules;
}

bool KeepsWholeBlock(const v1::ActivationCheckpoint& section, int64_t block) {
  const std::vector<KeepRule> rules = KeepRulesOf(section, block);
  return std::any_of(rules.begin(), rules.end(), [](const KeepRule& rule) { return rule.operators.empty(); });
}

bool IsForcedAgain(const v1::ActivationCheckpoint& section, const std::string& module_of_block) {
  const auto& names = section.per_op_sac_force_recompute_mm_shapes_by_fqns();
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return module_of_block.find(name) != std::string::npos; });
}

const std::vector<std::string>& KeepableOperators() {
  static const auto* const operators = new std::vector<std::string>{
      "aten::mm",  "aten::addmm", "aten::bmm", "aten::_softmax",  "aten::native_layer_norm", "aten::silu",     "aten::gelu",
      "aten::mul", "aten::add",   "aten::cat", "lego::attention", "lego::dropout",           "lego::rms_norm",
  };
  return *operators;
}

std::vector<std::string> ModulesOfBlock(const v1::Model& model) {
  if (model.architecture() == v1::GPT2) {
    std::vector<std::string> modules = {"", "ln_1", "attn", "attn.q_proj", "attn.k_proj",
                                        "attn.v_proj", "attn.c_proj", "mlp", "mlp.c_fc", "mlp.c_proj"};
    if (!model.parallel_block()) modules.insert(modules.begin() + 7, "ln_2");
    return modules;
  }
  std::vector<std::string> modules = {"",
                                      "input_layernorm",
                                      "self_attn",
                                      "self_attn.q_proj",
                                      "self_attn.k_proj",
                                      "self_attn.v_proj",
                                      "self_attn.o_proj",
                                      "post_attention_layernorm",
                                      "mlp",
                                      "mlp.gate_proj",
                                      "mlp.up_proj",
                                      "mlp.down_proj"};
  if (model.architecture() == v1::GEMMA2)
    modules.insert(modules.end(), {"pre_feedforward_layernorm", "post_feedforward_layernorm"});
  if (model.qk_norm()) modules.insert(modules.begin() + 6, {"self_attn.q_norm", "self_attn.k_norm"});
  return modules;
}

}  // namespace legoai::parallel
