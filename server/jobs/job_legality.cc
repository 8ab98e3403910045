#include "server/jobs/job_legality.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/data/tokenizer.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/toml/toml.h"
#include "server/jobs/submission.h"

namespace legoai::server {
namespace {

constexpr char kShard[] = "parallelism.data_parallel_shard_degree";
constexpr char kPipeline[] = "parallelism.pipeline_parallel_degree";
constexpr char kMicrobatch[] = "parallelism.pipeline_parallel_microbatch_size";
constexpr char kLocalBatch[] = "training.local_batch_size";

// The byte tokenizer is known here; a file of tokens is the worker's to read.
absl::Status CheckTokenizer(const v1::JobSpec& spec) {
  const std::string& path = spec.recipe().model().tokenizer_path();
  if (path != "byte") return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto tokenizer, data::LoadTokenizer(path));
  const auto fault = GetFieldViolation(data::CheckFits(*tokenizer, spec.model().vocab_size()));
  if (!fault) return absl::OkStatus();
  return FieldError("spec.recipe.model.tokenizer_path", path, absl::StrCat("has ", fault->value(), ", ", fault->remedy()));
}

// The constraints of a job by key, and the recipe that they leave if all that is free is as small as can be.
class Smallest {
 public:
  explicit Smallest(const v1::JobSpec& spec) : spec_(spec), recipe_(spec.recipe()) {}

  absl::Status Make() {
    Shrink();
    for (int i = 0; i < spec_.planning().constraints_size(); ++i) {
      const std::string& text = spec_.planning().constraints(i);
      const size_t equals = text.find('=');
      places_[text.substr(0, equals)] = i;
      absl::Status status = ApplyOverride(&recipe_, text.substr(0, equals), text.substr(equals + 1));
      if (!status.ok()) return status;
    }
    // Without a pipeline there is no microbatch to speak of: the planner leaves it at 1.
    auto* parallelism = recipe_.mutable_parallelism();
    const int64_t microbatch = parallelism->pipeline_parallel_microbatch_size();
    if (microbatch > 1 && places_.count(kPipeline) == 0) parallelism->set_pipeline_parallel_degree(2);
    if (places_.count(kMicrobatch) > 0 && places_.count(kLocalBatch) == 0)
      recipe_.mutable_training()->set_local_batch_size(microbatch);
    return CheckShard();
  }

  absl::Status Check() const {
    const auto& p = recipe_.parallelism();
    int64_t world = 1;
    // One factor at a time: the product of arbitrary degrees may not fit.
    for (const int64_t degree : {p.data_parallel_replicate_degree(), p.data_parallel_shard_degree(), p.tensor_parallel_degree(),
                                 p.pipeline_parallel_degree()}) {
      const int64_t most = spec_.resources().slots() > 0 ? spec_.resources().slots() : kMostSlots;
      if (degree > most / world) return TooManyRanks(most);
      world *= degree;
    }
    parallel::Violation broken;
    const auto resolved = parallel::ResolvedRecipe::Create(recipe_, spec_.model(), world, &broken);
    return resolved.ok() ? absl::OkStatus() : Refuse(broken);
  }

 private:
  // All that the planner chooses and that a rule looks at.
  void Shrink() {
    auto* parallelism = recipe_.mutable_parallelism();
    parallelism->set_data_parallel_replicate_degree(1);
    parallelism->set_data_parallel_shard_degree(1);
    parallelism->set_tensor_parallel_degree(1);
    parallelism->set_pipeline_parallel_degree(1);
    parallelism->set_pipeline_parallel_microbatch_size(1);
    recipe_.mutable_training()->set_local_batch_size(1);
  }

  absl::Status CheckShard() const {
    if (recipe_.parallelism().data_parallel_shard_degree() != -1) return absl::OkStatus();
    return FieldError(Field(places_.at(kShard)), Text(places_.at(kShard)),
                      "every recipe of the planner names its shard degree: leave this constraint out, or give a number");
  }

  absl::Status TooManyRanks(int64_t most) const {
    return FieldError("spec.planning.constraints", absl::StrCat(spec_.planning().constraints_size(), " of them"),
                      absl::StrCat("their degrees need more than ", most,
                                   " ranks, which is the most that resources.slots gives: make a degree smaller"));
  }

  absl::Status Refuse(const parallel::Violation& violation) const {
    const auto place = places_.find(violation.field);
    if (place == places_.end())
      return FieldError(absl::StrCat("spec.recipe.", violation.field), violation.value, violation.remedy);
    return FieldError(Field(place->second), Text(place->second), violation.remedy);
  }

  std::string Field(int place) const { return absl::StrCat("spec.planning.constraints[", place, "]"); }
  const std::string& Text(int place) const { return spec_.planning().constraints(place); }

  const v1::JobSpec& spec_;
  v1::Recipe recipe_;
  std::map<std::string, int> places_;  // of constraints in the spec, by key
};

}  // namespace

absl::Status CheckLegal(const v1::JobSpec& spec) {
  RETURN_IF_ERROR(CheckTokenizer(spec));
  Smallest smallest(spec);
  RETURN_IF_ERROR(smallest.Make());
  return smallest.Check();
}

}  // namespace legoai::server
