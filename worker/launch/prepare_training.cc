#include "worker/launch/prepare_training.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/data/dataset_facts.h"
#include "core/data/token_file.h"
#include "core/data/tokenizer.h"
#include "core/model/model_facts.h"
#include "core/process/build_version.h"
#include "core/process/data_roots.h"
#include "core/process/run_directory.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "worker/data/loader.h"
#include "worker/data/text_dataset.h"
#include "worker/launch/find_checkpoint.h"
#include "worker/model/hf_weights.h"

namespace legoai::launch {
namespace {

// Who sent the job has seen the text, and this host may see another one.
absl::Status CheckText(const v1::Dataset& wished, const v1::Dataset& found) {
  const auto refuse = [&](const char* field, const std::string& wish, const std::string& is) {
    return FieldError(field, wish,
                      absl::StrCat("but the text at ", found.uri(), " on this host has ", is,
                                   ": give this host the same file, or submit the job with this one"));
  };
  if (wished.bytes() > 0 && wished.bytes() != found.bytes())
    return refuse("dataset.bytes", absl::StrCat(wished.bytes()), absl::StrCat(found.bytes(), " bytes"));
  if (!wished.sha256().empty() && wished.sha256() != found.sha256())
    return refuse("dataset.sha256", wished.sha256(), absl::StrCat("SHA-256 ", found.sha256()));
  return absl::OkStatus();
}

absl::Status ReadText(const TrainRequest& request, const parallel::ResolvedRecipe& resolved, const std::string& cache_folder,
                      const checkpoint::Cancel& cancel, PreparedTraining* prepared) {
  const v1::Recipe& recipe = prepared->start.recipe();
  const v1::Training& training = recipe.training();
  ASSIGN_OR_RETURN(auto facts, data::DatasetFacts(training.dataset_path(), cancel));
  RETURN_IF_ERROR(CheckText(request.dataset, facts));
  *prepared->start.mutable_dataset() = std::move(facts);
  ASSIGN_OR_RETURN(const auto tokenizer, data::LoadTokenizer(recipe.model().tokenizer_path()));
  prepared->start.set_tokenizer_identity(tokenizer->Identity());
  if (absl::Status fits = data::CheckFits(*tokenizer, prepared->start.model().vocab_size()); !fits.ok()) {
    const v1::FieldViolation fault = GetFieldViolation(fits).value_or(v1::FieldViolation());
    return FieldError(fault.field(), recipe.model().tokenizer_path(), absl::StrCat("has ", fault.value(), ", ", fault.remedy()));
  }
  ASSIGN_OR_RETURN(const auto file, data::TokenFile::Open(prepared->start.dataset(), *tokenizer, cache_folder, cancel));
  RETURN_IF_ERROR(data::TextDataset::Create(file.tokens(), data::OptionsOf(training)).status());
  prepared->tokens = static_cast<int64_t>(file.tokens().size());
  prepared->warning = file.warning();
  ASSIGN_OR_RETURN(prepared->unigram_entropy, data::UnigramEntropy(file.tokens(), cancel));
  return data::MakeLayout(0, resolved.mesh().dp(), resolved.local_batch(), resolved.global_batch()).status();
}

// Whether `path` is `folder` or lies in it, as written or with links followed.
bool LiesIn(const std::string& path, const std::string& folder) {
  namespace fs = std::filesystem;
  const auto inside = [](const fs::path& path, const fs::path& folder) {
    const fs::path relative = path.lexically_relative(folder);
    return !relative.empty() && *relative.begin() != "..";
  };
  std::error_code error;
  return inside(fs::absolute(path, error).lexically_normal(), fs::absolute(folder, error).lexically_normal()) ||
         inside(fs::weakly_canonical(path, error), fs::weakly_canonical(folder, error));
}

// Beginning anew puts these folders aside: weights in them would be gone when the ranks read them.
absl::Status CheckWeightsStay(const TrainRequest& request, const v1::Start& start) {
  const std::string& path = start.recipe().model().initial_load_path();
  if (path.empty() || !request.fresh) return absl::OkStatus();
  for (const std::string& folder : {HuggingFacePath(start.run_directory()), CheckpointsPath(start.run_directory())}) {
    if (LiesIn(path, folder))
      return FieldError("model.initial_load_path", path,
                        absl::StrCat("lies in ", folder,
                                     ", which --fresh puts aside: copy the weights elsewhere and give that "
                                     "path, or choose another job.dump_folder"));
  }
  return absl::OkStatus();
}

// Weights to begin with fit the model; where it goes on from a checkpoint they are not read.
absl::Status CheckInitialWeights(const PreparedTraining& prepared) {
  const std::string& path = prepared.start.recipe().model().initial_load_path();
  if (path.empty() || prepared.checkpoint) return absl::OkStatus();
  return Annotate(model::HfWeights::Open(path, prepared.start.model()).status(),
                  absl::StrCat("model.initial_load_path = ", path));
}

absl::Status CheckProgram(const std::string& trainer) {
  if (access(trainer.c_str(), X_OK) == 0) return absl::OkStatus();
  return FieldError("trainer program", trainer, "is not there or cannot be run: build //worker/train:legoai-trainer",
                    absl::StatusCode::kNotFound);
}

}  // namespace

absl::StatusOr<PreparedTraining> PrepareTraining(const TrainRequest& request, const std::string& cache_folder,
                                                 const checkpoint::Cancel& cancel) {
  PreparedTraining prepared;
  v1::Start& start = prepared.start;
  ASSIGN_OR_RETURN(const auto resolved, parallel::ResolvedRecipe::Create(request.recipe, request.model, request.nproc));
  *start.mutable_recipe() = resolved.recipe();
  start.set_run_directory(start.recipe().job().dump_folder());
  RETURN_IF_ERROR(CheckWeightsStay(request, start));
  if (request.data_roots) {
    RETURN_IF_ERROR(CheckDataRoots(start.recipe(), *request.data_roots));
  }
  RETURN_IF_ERROR(CheckProgram(request.trainer));
  *start.mutable_model() = request.model;
  start.set_world_size(request.nproc);
  start.set_build_version(std::string(BuildVersion()));
  start.set_device(request.device);
  start.set_threads(request.threads);
  start.set_accept_other_build(request.accept_other_build);
  start.set_model_flops_per_token(model::FlopsPerToken(request.model, resolved.seq_len()));
  start.set_peak_flops_per_second(request.peak_flops_per_second);
  prepared.parameters = model::ParameterCount(request.model);
  RETURN_IF_ERROR(ReadText(request, resolved, cache_folder, cancel, &prepared));
  RETURN_IF_ERROR(FindCheckpoint(request, &prepared));
  RETURN_IF_ERROR(CheckInitialWeights(prepared));
  return prepared;
}

}  // namespace legoai::launch
