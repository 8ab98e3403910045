#include "worker/launch/find_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/manifest.h"
#include "core/process/build_version.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "worker/launch/resume.h"

namespace legoai::launch {
namespace {

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
  const bool exported = IsExported(start.run_directory(), root, step);
  const v1::Recipe& recipe = start.recipe();
  prepared->finished = step >= recipe.training().steps() && (exported || !recipe.checkpoint().last_save_in_hf());
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
  if (!SeesTheJob(root, start)) {
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
  start.set_resume_directory(lease.resume_directory);
  if (lease.take_back) {
    const absl::StatusOr<bool> taken = checkpoint::TakeBack(lease.resume_directory, *lease.resume_step);
    if (!taken.ok()) return taken.status();
  }
  std::error_code error;
  if (!fs::exists(checkpoint::StepDirectory(lease.resume_directory, *lease.resume_step), error) && !error)
    return MissingFolder(lease.resume_directory, *lease.resume_step, start);
  return GoOnFrom(request, lease.resume_directory, *lease.resume_step, prepared);
}

absl::Status NoneLoads(const std::vector<v1::CheckpointDamage>& damaged, const std::vector<std::string>& aside,
                       const std::string& root) {
  std::vector<std::string> parts;
  for (const v1::CheckpointDamage& one : damaged) parts.push_back(checkpoint::DamageText(one));
  for (const std::string& name : aside) parts.push_back(absl::StrCat(name, " was put aside as damaged"));
  return FieldError(
      "job.dump_folder", root,
      absl::StrCat("no checkpoint loads: ", absl::StrJoin(parts, "; "), "; begin anew with --fresh, which removes none of them"),
      absl::StatusCode::kDataLoss);
}

absl::Status TakeLatest(const TrainRequest& request, PreparedTraining* prepared) {
  const std::string root = CheckpointsPath(prepared->start.run_directory());
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

absl::Status FindCheckpoint(const TrainRequest& request, PreparedTraining* prepared) {
  prepared->start.clear_resume_step();
  prepared->start.clear_resume_directory();
  prepared->checkpoint.reset();
  prepared->changes.clear();
  prepared->finished = false;
  if (request.fresh) return absl::OkStatus();
  return request.lease ? TakeLeased(request, prepared) : TakeLatest(request, prepared);
}

}  // namespace legoai::launch
