// The files of a run and their places, and waiting while the disk is full.
//
//   recipe.toml            the recipe as it runs, every field filled in
//   run.json               legoai.v1.Run: model, seed, build version, dataset, attempts
//   metrics.jsonl          legoai.v1.StepMetrics, one per line, keyed by (attempt, step)
//   checkpoints/step-N     worker/checkpoint; elsewhere where the recipe has a checkpoint.folder
//   flight/rank-R          the flight recorder's ring of each rank; flight/rank-R.json a dump of it
//   tokens/                the text as token ids, made once
//   logs/rank-R.log        stdout and stderr of each rank
//   tensorboard/           event files, if enabled
//   traces/step-N-rank-R.json.gz    Chrome traces of the steps and ranks that the recipe asks for
//   hf/                    the trained model as a Hugging Face folder, if enabled; hf.partial/ one being
//   written; hf.replaced/ the earlier one, for a moment, where the file system cannot exchange names
//   *.before-attempt-N     checkpoints/ and hf/ that attempt N started over without (--fresh); of a checkpoint.folder it is
//   before-attempt-N/ in there
//
// One process at a time works in it: Open() locks the directory until the object is destroyed or its process ends. A RunDirectory
// is not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/files.h"
#include "proto/legoai/v1/launch.pb.h"
#include "proto/legoai/v1/metrics.pb.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "proto/legoai/v1/run.pb.h"

namespace legoai::launch {

// Paths in a run directory, for readers and for processes that are told where to write.
std::string RecipePath(const std::string& run_directory);
std::string RunJsonPath(const std::string& run_directory);
std::string MetricsPath(const std::string& run_directory);
std::string CheckpointsPath(const std::string& run_directory);  // where the recipe has no checkpoint.folder
std::string FlightRingPath(const std::string& run_directory, int64_t rank);
std::string TokensPath(const std::string& run_directory);
std::string LogsPath(const std::string& run_directory);
std::string TensorboardPath(const std::string& run_directory);
std::string HuggingFacePath(const std::string& run_directory);
std::string PartialExportPath(const std::string& run_directory);

class RunDirectory {
 public:
  // Creates the directory and its folders, if needed, and locks it. Errors (field job.dump_folder): it cannot be created or
  // written; FailedPrecondition: another process trains there.
  static absl::StatusOr<RunDirectory> Open(const std::string& path);
  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;
  ~RunDirectory();

  const std::string& path() const { return path_; }

  // Both replace the file atomically: a reader sees the old one or the new one.
  absl::Status WriteRecipe(const v1::Recipe& recipe) const;
  absl::Status WriteRun(const v1::Run& run) const;

  // Appends one line, handed to the operating system before this returns. A torn last line, left by a killed process or a full
  // disk, is removed first.
  absl::Status AppendMetrics(const v1::StepMetrics& metrics);

 private:
  RunDirectory(std::string path, int lock) : path_(std::move(path)), lock_fd_(lock) {}
  absl::Status OpenMetrics();

  std::string path_;
  int lock_fd_ = -1;
  int metrics_fd_ = -1;
};

// Where a run keeps its checkpoints: the recipe's checkpoint.folder, in an object store, or checkpoints/ of its run directory.
std::string CheckpointsOf(const v1::Recipe& recipe, const std::string& run_directory);
inline std::string CheckpointsOf(const v1::Start& start) { return CheckpointsOf(start.recipe(), start.run_directory()); }

// The same as the recipe.toml of the run directory has it, for who knows only this; where there is none, checkpoints/ of the run
// directory. Errors: a recipe.toml that cannot be read, for it may say that they are elsewhere.
absl::StatusOr<std::string> CheckpointsOfRun(const std::string& run_directory);

// The folder that holds step-N of this attempt: the one it resumes from, or its own.
std::string CheckpointsHolding(const v1::Start& start, int64_t step);

// Nothing if there is no run.json. Errors name the file.
absl::StatusOr<std::optional<v1::Run>> ReadRun(const std::string& run_directory);

// All complete lines in order; none if the file does not exist. Errors name file and line.
absl::StatusOr<std::vector<v1::StepMetrics>> ReadMetrics(const std::string& run_directory);

// One entry per step, ascending, of the training that counted in the end: steps of an earlier attempt that a later one repeated,
// or that lie beyond the point where it resumed, are dropped. In the order of the file.
std::vector<v1::StepMetrics> LatestOfEachStep(const std::vector<v1::StepMetrics>& metrics);

// Where an attempt at a job of the service writes. Agents create the folder, and the server accepts checkpoints from no other.
// Thread-safety: a pure function.

// "RUNS/ID/epoch-E": the run directory of the attempt under an epoch. ID is the last part of the job's resource name. Errors: a
// name or an epoch that would lead outside `runs`.
absl::StatusOr<std::string> EpochPath(const std::string& runs, const std::string& job, int64_t epoch);

// Where it keeps its checkpoints: "FOLDER/ID/epoch-E" if the job's recipe has a checkpoint.folder, or checkpoints/ of EpochPath.
// Errors: those of EpochPath.
absl::StatusOr<std::string> EpochCheckpoints(const std::string& runs, const v1::Recipe& recipe, const std::string& job,
                                             int64_t epoch);

// Whether a run directory is being trained in, for observers. Thread-safe.

// True if run.json says so and the process that locked the directory is alive on this machine. Takes no lock itself, so it never
// stops a training from starting.
bool IsTraining(const std::string& run_directory);

// The run directory's hf/, the trained model as a Hugging Face folder: written under a temporary name, marked with its
// checkpoint, and renamed into place atomically. Thread-safety: functions of the file system.

// Whether hf/ is the export of the committed checkpoint of `step` that is now in `checkpoints` (CheckpointsHolding). Where hf/
// says that it is of another step nobody looks there. Errors: an object store that does not say.
absl::StatusOr<bool> IsExported(const std::string& run_directory, const std::string& checkpoints, int64_t step);

// Creates an empty hf.partial/ for the export, removing what an interrupted one left. Sets `folder` to its path.
absl::Status BeginExport(const std::string& run_directory, std::string* folder);

// Call it when hf.partial/ is complete and on disk: marks it as the export of `step` in `checkpoints` and renames it to hf/,
// replacing an earlier one, which is removed as by checkpoint::RemoveAll.
absl::Status FinishExport(const std::string& run_directory, const std::string& checkpoints, int64_t step,
                          std::string_view build_version, const checkpoint::BytesDone& done = nullptr);

// When the disk that a training writes to is full: the message, and waiting for room. The first function is pure, the second
// blocks.

// "the disk of RUNS is full: 12 MiB are free of the 340 MiB that a checkpoint takes"; if `bytes` are free, or the need is unknown
// (0), or `path` is in an object store, which is then said to be full, it quotes the failed operation (`full`) instead.
std::string WaitsForRoom(const std::string& what, const std::string& path, int64_t bytes, int64_t free, const absl::Status& full);

// Runs `work` and retries it while it fails for lack of room (ResourceExhausted), first after a second and then with growing
// delays. `waits` gets the reason of each wait, and an empty text after the last one. `stop` is polled several times a second; if
// it returns true, the result is the error of `work`.
absl::Status DoWhenThereIsRoom(const std::function<absl::Status()>& work, const std::function<void(const std::string&)>& waits,
                               const std::function<bool()>& stop);

}  // namespace legoai::launch
