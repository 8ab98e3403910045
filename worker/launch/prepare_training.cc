#include "worker/launch/prepare_training.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/manifest.h"
#include "worker/data/dataset_facts.h"
#include "worker/data/loader.h"
#include "worker/data/text_dataset.h"
#include "worker/data/token_file.h"
#include "worker/data/tokenizer.h"
#include "worker/launch/build_version.h"
#include "worker/launch/data_roots.h"
#include "worker/launch/export_mark.h"
#include "worker/launch/resume.h"
#include "worker/launch/run_directory.h"
#include "worker/model/hf_weights.h"
#include "worker/model/model_facts.h"
#include "worker/parallel/parallel_dims.h"

namespace legoai::launch {
namespace {

// Of the service's choice, whose verdict may have come when the attempt that asked for it was no more: then its manifest still
// lies beside its place.
absl::Status TakeCheckpoint(const LeasedAttempt& lease, v1::Start* start) {
  if (!lease.resume_step) return absl::OkStatus();
  const auto committed = checkpoint::IsCommitted(lease.resume_directory, *lease.resume_step);
  if (!committed.ok()) return committed.status();
  if (!*committed) {
    absl::Status status = checkpoint::CommitManifest(lease.resume_directory, *lease.resume_step);
    // Another process may have been faster.
    if (!status.ok() && !checkpoint::IsCommitted(lease.resume_directory, *lease.resume_step).value_or(false)) {
      return Annotate(status, absl::StrCat("the checkpoint of step ", *lease.resume_step, " is not in ", lease.resume_directory));
    }
  }
  start->set_resume_step(*lease.resume_step);
  start->set_resume_directory(lease.resume_directory);
  return absl::OkStatus();
}

absl::Status TakeLatest(v1::Start* start) {
  const auto steps = checkpoint::ListCheckpoints(CheckpointsPath(start->run_directory()));
  if (steps.ok() && !steps->empty()) start->set_resume_step(steps->back());
  return steps.status();
}

absl::Status FindCheckpoint(const TrainRequest& request, PreparedTraining* prepared) {
  if (request.fresh) return absl::OkStatus();
  v1::Start& start = prepared->start;
  const absl::Status found = request.lease ? TakeCheckpoint(*request.lease, &start) : TakeLatest(&start);
  if (!found.ok() || !start.has_resume_step()) return found;
  const int64_t step = start.resume_step();
  const std::string root = CheckpointsHolding(start, step);
  const auto manifest = checkpoint::ReadManifest(root, step, request.accept_other_build ? "" : BuildVersion());
  if (!manifest.ok()) {
    const char* remedy = request.lease ? "" : " (remove it to go on from an earlier one, or begin anew with --fresh)";
    return Annotate(manifest.status(), absl::StrCat("cannot go on from ", checkpoint::StepDirectory(root, step), remedy));
  }
  auto changes = CheckGoesOn(*manifest, prepared->start);
  if (!changes.ok()) return changes.status();
  prepared->changes = *std::move(changes);
  prepared->checkpoint = step;
  // An export that was interrupted, or is of another step, is made up for.
  const bool exported = IsExported(start.run_directory(), root, step);
  const v1::Recipe& recipe = start.recipe();
  prepared->finished = step >= recipe.training().steps() && (exported || !recipe.checkpoint().last_save_in_hf());
  return absl::OkStatus();
}

// Who sent the job has seen the text, and this host may see another one (decisions 19).
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

absl::Status ReadText(const TrainRequest& request, const parallel::ParallelDims& dims, const std::string& cache_folder,
                      const checkpoint::Cancel& cancel, PreparedTraining* prepared) {
  const v1::Recipe& recipe = prepared->start.recipe();
  const v1::Training& training = recipe.training();
  auto facts = data::DatasetFacts(training.dataset_path(), cancel);
  if (!facts.ok()) return facts.status();
  if (absl::Status status = CheckText(request.dataset, *facts); !status.ok()) return status;
  *prepared->start.mutable_dataset() = *std::move(facts);
  const auto tokenizer = data::LoadTokenizer(recipe.model().tokenizer_path());
  if (!tokenizer.ok()) return tokenizer.status();
  prepared->start.set_tokenizer_identity((*tokenizer)->Identity());
  if (absl::Status fits = data::CheckFits(**tokenizer, prepared->start.model().vocab_size()); !fits.ok()) {
    const v1::FieldViolation fault = GetFieldViolation(fits).value_or(v1::FieldViolation());
    return FieldError(fault.field(), recipe.model().tokenizer_path(), absl::StrCat("has ", fault.value(), ", ", fault.remedy()));
  }
  const auto file = data::TokenFile::Open(prepared->start.dataset(), **tokenizer, cache_folder, cancel);
  if (!file.ok()) return file.status();
  const auto text = data::TextDataset::Create(file->tokens(), data::OptionsOf(training));
  if (!text.ok()) return text.status();
  prepared->tokens = static_cast<int64_t>(file->tokens().size());
  prepared->warning = file->warning();
  const auto entropy = data::UnigramEntropy(file->tokens(), cancel);
  if (!entropy.ok()) return entropy.status();
  prepared->unigram_entropy = *entropy;
  return data::MakeLayout(0, dims.dp(), dims.local_batch(), dims.global_batch()).status();
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
  const auto dims = parallel::ParallelDims::Create(request.recipe, request.model, request.nproc);
  if (!dims.ok()) return dims.status();
  *start.mutable_recipe() = dims->Resolve(request.recipe);
  start.set_run_directory(start.recipe().job().dump_folder());
  if (absl::Status status = CheckWeightsStay(request, start); !status.ok()) return status;
  if (request.data_roots) {
    if (absl::Status status = CheckDataRoots(start.recipe(), *request.data_roots); !status.ok()) return status;
  }
  if (absl::Status status = CheckProgram(request.trainer); !status.ok()) return status;
  *start.mutable_model() = request.model;
  start.set_world_size(request.nproc);
  start.set_build_version(std::string(BuildVersion()));
  start.set_device(request.device);
  start.set_threads(request.threads);
  start.set_accept_other_build(request.accept_other_build);
  start.set_model_flops_per_token(model::FlopsPerToken(request.model, dims->seq_len()));
  start.set_peak_flops_per_second(request.peak_flops_per_second);
  prepared.parameters = model::ParameterCount(request.model);
  if (absl::Status status = ReadText(request, *dims, cache_folder, cancel, &prepared); !status.ok()) return status;
  if (absl::Status status = FindCheckpoint(request, &prepared); !status.ok()) return status;
  if (absl::Status status = CheckInitialWeights(prepared); !status.ok()) return status;
  return prepared;
}

}  // namespace legoai::launch
