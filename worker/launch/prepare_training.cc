#include "worker/launch/prepare_training.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/storage.h"
#include "core/data/dataset_facts.h"
#include "core/data/token_file.h"
#include "core/data/tokenizer.h"
#include "core/model/model_facts.h"
#include "core/process/build_version.h"
#include "core/process/checkpoint_roots.h"
#include "core/process/data_roots.h"
#include "core/process/run_directory.h"
#include "core/recipe/fsdp_buckets.h"
#include "core/recipe/recomputation.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "worker/data/text_dataset.h"
#include "worker/launch/resume.h"
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
  if (path.empty() || !BeginsAnew(request)) return absl::OkStatus();
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

namespace fs = std::filesystem;

// Errors that are of the checkpoint's contents carry the damage.
absl::Status GoOnFrom(const TrainRequest& request, const std::string& root, int64_t step, PreparedTraining* prepared) {
  if (absl::Status status = checkpoint::FinishCommit(root, step); !status.ok()) return checkpoint::NoteDamage(status, root, step);
  const auto manifest = checkpoint::ReadManifest(root, step, request.accept_other_build ? "" : BuildVersion());
  if (absl::IsDataLoss(manifest.status())) return checkpoint::NoteDamage(manifest.status(), root, step);
  if (!manifest.ok()) {
    const char* remedy = request.lease ? "" : " (remove it to go on from an earlier one, or begin anew with --fresh)";
    return Annotate(manifest.status(), absl::StrCat("cannot go on from ", checkpoint::StepDirectory(root, step), remedy));
  }
  ASSIGN_OR_RETURN(auto changes, CheckGoesOn(*manifest, prepared->start));
  prepared->changes = std::move(changes);
  prepared->checkpoint = step;
  v1::Start& start = prepared->start;
  start.set_resume_step(step);
  // An export that was interrupted, or is of another step, is made up for.
  const v1::Recipe& recipe = start.recipe();
  prepared->finished = step >= recipe.training().steps();
  if (prepared->finished && recipe.checkpoint().last_save_in_hf()) {
    ASSIGN_OR_RETURN(prepared->finished, IsExported(start.run_directory(), root, step));
  }
  return absl::OkStatus();
}

// Whether this host sees the runs of the job: a folder that it does not see at all says nothing of what is in it. `root` is
// JOB/epoch-E/checkpoints; beside the epoch of this attempt, whose folder this host has made, there is another one.
bool SeesTheJob(const std::string& root, const v1::Start& start) {
  std::error_code error;
  if (fs::exists(root, error)) return true;
  fs::directory_iterator epoch(fs::path(root).parent_path().parent_path(), error);
  for (; !error && epoch != fs::directory_iterator(); epoch.increment(error)) {
    const bool own = fs::equivalent(epoch->path(), start.run_directory(), error);
    if (!own && fs::is_directory(epoch->path() / "checkpoints", error)) return true;
  }
  return false;
}

absl::Status MissingFolder(const std::string& root, int64_t step, const v1::Start& start) {
  // All hosts see one object store, or none of it.
  if (!checkpoint::IsInObjectStore(root) && !SeesTheJob(root, start)) {
    return FieldError(checkpoint::StepDirectory(root, step), "",
                      "is not there, nor is anything else of the job: do all workers of the pool see the same runs? If they are "
                      "gone, `lego retry --fresh` begins anew",
                      absl::StatusCode::kNotFound);
  }
  const auto aside = checkpoint::ListPutAside(root);
  const bool known = aside.ok() && std::any_of(aside->begin(), aside->end(), [&](const std::string& name) {
                       return name.rfind(absl::StrCat("step-", step, "."), 0) == 0;
                     });
  return checkpoint::NoteDamage(FieldError(checkpoint::StepDirectory(root, step), "",
                                           known ? "was put aside as damaged before" : "is gone", absl::StatusCode::kDataLoss),
                                root, step);
}

// Of the service's choice, whose verdict may have come when the attempt that asked for it was no more: then its manifest still
// lies beside its place.
absl::Status TakeLeased(const TrainRequest& request, PreparedTraining* prepared) {
  const LeasedAttempt& lease = *request.lease;
  if (!lease.resume_step) return absl::OkStatus();
  v1::Start& start = prepared->start;
  RETURN_IF_ERROR(CheckResumeRoots(lease.resume_directory, request.checkpoint_roots));
  start.set_resume_directory(lease.resume_directory);
  if (lease.take_back) {
    RETURN_IF_ERROR(checkpoint::TakeBack(lease.resume_directory, *lease.resume_step).status());
  }
  const std::string folder = checkpoint::StepDirectory(lease.resume_directory, *lease.resume_step);
  ASSIGN_OR_RETURN(const auto storage, checkpoint::StorageOf(folder));
  const absl::StatusOr<bool> there = storage->HasFolder(folder);
  if (checkpoint::IsInObjectStore(folder) && !there.ok()) return there.status();
  if (there.ok() && !*there) return MissingFolder(lease.resume_directory, *lease.resume_step, start);
  return GoOnFrom(request, lease.resume_directory, *lease.resume_step, prepared);
}

absl::Status NoneLoads(const std::vector<v1::CheckpointDamage>& damaged, const std::vector<std::string>& aside,
                       const std::string& root) {
  std::vector<std::string> parts;
  for (const v1::CheckpointDamage& one : damaged) parts.push_back(checkpoint::DamageText(one));
  for (const std::string& name : aside) parts.push_back(absl::StrCat(name, " was put aside as damaged"));
  return FieldError(
      checkpoint::IsInObjectStore(root) ? "checkpoint.folder" : "job.dump_folder", root,
      absl::StrCat("no checkpoint loads: ", absl::StrJoin(parts, "; "), "; begin anew with --fresh, which removes none of them"),
      absl::StatusCode::kDataLoss);
}

absl::Status TakeLatest(const TrainRequest& request, PreparedTraining* prepared) {
  const std::string root = CheckpointsOf(prepared->start);
  ASSIGN_OR_RETURN(const auto steps, checkpoint::ListCheckpoints(root));
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const absl::Status status = GoOnFrom(request, root, *step, prepared);
    const auto damage = checkpoint::GetDamage(status);
    if (!damage) return status;
    prepared->damaged.push_back(*damage);
  }
  ASSIGN_OR_RETURN(const auto aside, checkpoint::ListPutAside(root));
  if (prepared->damaged.empty() && aside.empty()) return absl::OkStatus();
  return NoneLoads(prepared->damaged, aside, root);
}

}  // namespace

int64_t WorldSize(const TrainRequest& request) { return request.gang ? request.gang->hosts * request.nproc : request.nproc; }

absl::StatusOr<PreparedTraining> PrepareTraining(const TrainRequest& request, const std::string& cache_folder,
                                                 const checkpoint::Cancel& cancel) {
  PreparedTraining prepared;
  v1::Start& start = prepared.start;
  const int64_t world_size = WorldSize(request);
  ASSIGN_OR_RETURN(const auto resolved, parallel::ResolvedRecipe::Create(request.recipe, request.model, world_size));
  RETURN_IF_ERROR(parallel::CheckBucketsArePlanned(resolved.recipe()));
  *start.mutable_recipe() = resolved.recipe();
  start.set_run_directory(start.recipe().job().dump_folder());
  RETURN_IF_ERROR(CheckWeightsStay(request, start));
  if (request.data_roots) {
    RETURN_IF_ERROR(CheckDataRoots(start.recipe(), *request.data_roots));
  }
  RETURN_IF_ERROR(CheckCheckpointRoots(start.recipe(), start.run_directory(), request.checkpoint_roots));
  RETURN_IF_ERROR(CheckProgram(request.trainer));
  *start.mutable_model() = request.model;
  start.set_world_size(world_size);
  start.set_build_version(std::string(BuildVersion()));
  start.set_device(request.device);
  start.set_threads(request.threads);
  start.set_accept_other_build(request.accept_other_build);
  start.set_model_flops_per_token(model::FlopsPerToken(request.model, resolved.seq_len()));
  start.set_hardware_flops_per_token(start.model_flops_per_token() + parallel::RecomputedFlopsPerToken(resolved));
  start.set_peak_flops_per_second(request.peak_flops_per_second);
  prepared.parameters = model::ParameterCount(request.model);
  RETURN_IF_ERROR(ReadText(request, resolved, cache_folder, cancel, &prepared));
  RETURN_IF_ERROR(FindCheckpoint(request, &prepared));
  RETURN_IF_ERROR(CheckInitialWeights(prepared));
  // A folder was made, and so tried, before.
  if (start.recipe().checkpoint().enable_checkpoint()) {
    RETURN_IF_ERROR(checkpoint::CheckWritable(CheckpointsOf(start)));
  }
  return prepared;
}

absl::Status CheckResumeRoots(const std::string& directory, const std::vector<std::string>& roots) {
  v1::Recipe there;
  there.mutable_checkpoint()->set_enable_checkpoint(true);
  there.mutable_checkpoint()->set_folder(directory);
  return Annotate(CheckCheckpointRoots(there, "", roots), "the checkpoint to go on from");
}

absl::Status FindCheckpoint(const TrainRequest& request, PreparedTraining* prepared) {
  prepared->start.clear_resume_step();
  prepared->start.clear_resume_directory();
  prepared->checkpoint.reset();
  prepared->changes.clear();
  prepared->finished = false;
  if (BeginsAnew(request)) return absl::OkStatus();
  return request.lease ? TakeLeased(request, prepared) : TakeLatest(request, prepared);
}

}  // namespace legoai::launch
