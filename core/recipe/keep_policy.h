// Which operators of a recomputed block keep their outputs (selective_ac_option, selective_ac_policy): rules of the form
// "[BLOCKS:]MODULE OPERATOR WHICH", separated by semicolons. Pure functions.
//
// BLOCKS is the number of a block of the model, counted from 0, or a range of them, "8-15", both ends included; without it a rule
// is for all blocks.
// MODULE is a pattern with `*` over the modules of a block ("self_attn.q_proj", "mlp.*", "*"), OPERATOR a name such as aten::mm,
// or several with | between them. WHICH selects among the rule's operators in the block's forward, counted from 1: `all`, `odd`,
// `even`, or one number. The rule "BLOCKS:* * all" keeps all that backward needs: these blocks are not recomputed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::parallel {

struct KeepRule {
  std::string module;
  std::vector<std::string> operators;  // empty: all, so that the block is not recomputed
  int64_t first = 1, every = 1;        // every = 0: the first alone
  int64_t first_block = 0, last_block = INT64_MAX;

  bool IsOf(int64_t block) const { return first_block <= block && block <= last_block; }
  bool Matches(const std::string& module_of_block) const;
  bool Keeps(int64_t count) const { return count == first || (every > 0 && count > first && (count - first) % every == 0); }
};

// TorchTitan's list for selective_ac_option = "op": every second matrix product, from the first on, and attention. Its models
// have no biases; here products with a bias count too. Attention is lego::attention on CPU and on CUDA.
inline constexpr char kOpPolicy[] = "* aten::mm|aten::addmm odd; * lego::attention all";

// Errors: InvalidArgument FieldError of activation_checkpoint.selective_ac_policy with the rule.
absl::StatusOr<std::vector<KeepRule>> ParseKeepPolicy(std::string_view text);

// Whether recomputed blocks keep the outputs of some operators. `section` is checked and has its defaults.
bool KeepsOperators(const v1::ActivationCheckpoint& section);
// The rules of such a section, and those of them that are for one block of the model.
std::vector<KeepRule> KeepRules(const v1::ActivationCheckpoint& section);
std::vector<KeepRule> KeepRulesOf(const v1::ActivationCheckpoint& section, int64_t block);
// Whether such a section keeps all of a block.
bool KeepsWholeBlock(const v1::ActivationCheckpoint& section, int64_t block);

// Whether per_op_sac_force_recompute_mm_shapes_by_fqns names this module of a block: one of its entries is a substring of the
// name.
bool IsForcedAgain(const v1::ActivationCheckpoint& section, const std::string& module_of_block);

// The operators that a rule may name: they create new outputs and write to no argument.
const std::vector<std::string>& KeepableOperators();
// The modules of one block, "" for the block itself.
std::vector<std::string> ModulesOfBlock(const v1::Model& model);

}  // namespace legoai::parallel
