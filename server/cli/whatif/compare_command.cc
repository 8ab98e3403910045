#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/model/catalog.h"
#include "core/recipe/resolved_recipe.h"
#include "planner/estimates.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/interrupt.h"
#include "server/cli/job.h"
#include "server/cli/output.h"
#include "server/cli/whatif/compare_text.h"

namespace legoai::cli {
namespace {

std::vector<KeyChange> Chosen(const std::vector<KeyChange>& changes, const std::vector<size_t>& set) {
  std::vector<KeyChange> chosen;
  for (size_t i : set) chosen.push_back(changes[i]);
  return chosen;
}

// A's request with some keys as B has them.
absl::StatusOr<v1::SimRequest> Changed(const v1::SimRequest& a, const v1::SimRequest& b, const std::vector<KeyChange>& keys) {
  std::vector<std::string> names;
  bool model_too = false;
  for (const KeyChange& key : keys) {
    names.push_back(key.key);
    model_too = model_too || key.key == "model.name";
  }
  ASSIGN_OR_RETURN(auto recipe, WithKeysOf(a.recipe(), b.recipe(), names));
  v1::SimRequest changed = a;
  *changed.mutable_recipe() = std::move(recipe);
  if (model_too) *changed.mutable_model() = b.model();
  return changed;
}

bool IsLegal(const v1::SimRequest& request) {
  const int64_t world = request.cluster().devices_per_node() * request.cluster().nodes();
  return parallel::ResolvedRecipe::Create(request.recipe(), request.model(), world).ok();
}

struct Plan {
  std::vector<ChangedRecipe> changes;
  std::vector<v1::SimRequest> requests;  // A, B, then those of the changes
};

absl::StatusOr<Plan> MakePlan(const v1::SimRequest& a, const v1::SimRequest& b) {
  const std::vector<KeyChange> keys = ChangedKeys(a.recipe(), b.recipe());
  Plan plan;
  plan.requests = {a, b};
  const auto legal = [&](const std::vector<size_t>& set) {
    const auto changed = Changed(a, b, Chosen(keys, set));
    return changed.ok() && IsLegal(*changed);
  };
  for (const std::vector<size_t>& set : SmallestLegalChanges(keys.size(), legal)) {
    ASSIGN_OR_RETURN(auto changed, Changed(a, b, Chosen(keys, set)));
    plan.changes.push_back({Chosen(keys, set), absl::UnknownError("not simulated")});
    plan.requests.push_back(std::move(changed));
  }
  return plan;
}

absl::StatusOr<std::vector<absl::StatusOr<v1::Estimate>>> Simulate(const std::vector<v1::SimRequest>& requests) {
  ASSIGN_OR_RETURN(const auto pool, SimProcesses());
  InterruptGuard guard;
  ProgressLine line;
  line.ShowPassing(absl::StrCat(requests.size(), " recipes are simulated"));
  auto estimates = planner::EstimateAll(
      requests, *pool, [&] { return guard.interrupted(); },
      [&](int64_t done) { line.Show(absl::StrCat(done, " of ", requests.size(), " simulations are done")); });
  line.Clear();
  return estimates;
}

// One of the two files is at fault, and its error should say which.
absl::StatusOr<v1::SimRequest> ReadOne(const Arguments& arguments, size_t which) {
  const std::string& path = arguments.positional()[which];
  auto request = ReadSimRequest(path, arguments);
  if (!request.ok()) return Annotate(request.status(), path);
  if (const std::string note = ContextNote(request->recipe(), request->model()); !note.empty())
    std::fprintf(stderr, "%s: %s\n", path.c_str(), note.c_str());
  return request;
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto a, ReadOne(arguments, 0));
  ASSIGN_OR_RETURN(const auto b, ReadOne(arguments, 1));
  ASSIGN_OR_RETURN(auto plan, MakePlan(a, b));
  ASSIGN_OR_RETURN(auto estimates, Simulate(plan.requests));
  for (size_t which : {0, 1}) {
    if (!estimates[which].ok()) return Annotate(estimates[which].status(), arguments.positional()[which]);
  }
  Comparison comparison{arguments.positional()[0], arguments.positional()[1], *estimates[0], *estimates[1],
                        std::move(plan.changes)};
  for (size_t i = 0; i < comparison.changes.size(); ++i) comparison.changes[i].estimate = estimates[i + 2];
  Print(arguments.format() == Format::kTable ? ComparisonText(comparison)
                                             : TreeText(arguments.format(), ComparisonTree(comparison)));
  if (comparison.a.fits() || comparison.b.fits()) return kDone;
  std::fprintf(stderr, "lego compare: neither recipe fits; `lego plan` finds what does\n");
  return kNothingFits;
}

}  // namespace

Command CompareCommand() {
  CommandSpec spec;
  spec.name = "compare";
  spec.summary = "Predicts two recipes and what each difference between them costs. Exit code 3: neither fits.";
  spec.positional = "A.toml B.toml";
  spec.least_positional = spec.most_positional = 2;
  spec.options = {
      {"model", "M", "config.json, its folder, or a name of `lego models`; the recipes' [model] name if it is not given"},
      {"cluster", "C", "TYPE:DEVICES_PER_NODExNODES[@LINK] (`lego hardware`), or a Cluster as a text-format file", false, true},
      {"price", "P", "of a GPU for an hour, in any currency: what a billion tokens cost"}};
  spec.recipe_keys = true;
  spec.details =
      "Each key that differs is changed alone, from A to what B has; where that is no legal recipe, with the fewest other keys "
      "that "
      "make it one. A key on the command line, as --training.seq_len=4096, holds for both.";
  spec.example = "lego compare a.toml b.toml --model llama3-8b --cluster h100-sxm-80:8x1";
  return {spec, Run};
}

}  // namespace legoai::cli
