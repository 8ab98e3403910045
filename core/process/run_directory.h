// What a run leaves on the disk, and where; and waiting while that disk is full.
//
//   recipe.toml            the recipe as it runs, every field filled in
//   run.json               legoai.v1.Run: model, seed, build version, dataset, attempts
//   metrics.jsonl          legoai.v1.StepMetrics, a line each, keyed by (attempt, step)
//   checkpoints/step-N     worker/checkpoint
//   flight/rank-R          the flight recorder's ring of each rank; flight/rank-R.json a dump of it
//   tokens/                the text as token ids, made once
//   logs/rank-R.log        stdout and stderr of each rank
//   tensorboard/           event files, if wished for
//   hf/                    the trained model as a Hugging Face folder, if wished for; hf.partial/ one being
//   written; hf.replaced/ the earlier one, for a moment, where the file system cannot exchange names
//   *.before-attempt-N     checkpoints/ and hf/ that attempt N began anew without (--fresh)
//
// One process at a time works in it: Open() locks the directory until the object is gone, or its process is.
// A RunDirectory is not thread-safe.
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

// Places in a run directory, for those who only read or were told where to write.
std::string RecipePath(const std::string& run_directory);
std::string RunJsonPath(const std::string& run_directory);
std::string MetricsPath(const std::string& run_directory);
std::string CheckpointsPath(const std::string& run_directory);
std::string FlightRingPath(const std::string& run_directory, int64_t rank);
std::string TokensPath(const std::string& run_directory);
std::string LogsPath(const std::string& run_directory);
std::string TensorboardPath(const std::string& run_directory);
std::string HuggingFacePath(const std::string& run_directory);
std::string PartialExportPath(const std::string& run_directory);

class RunDirectory {
 public:
  // Makes the directory and its folders, if needed, and locks it. Errors (field job.dump_folder): it cannot be made or written;
  // FailedPrecondition: another process trains there.
  static absl::StatusOr<RunDirectory> Open(const std::string& path);
  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;
  ~RunDirectory();

  const std::string& path() const { return path_; }

  // Both replace the file at once: a reader sees the old one or the new one.
  absl::Status WriteRecipe(const v1::Recipe& recipe) const;
  absl::Status WriteRun(const v1::Run& run) const;

  // Appends one line, handed to the operating system before this returns. A torn last line, left by a process that was killed,
  // is cut off first; so is one that a full disk cut short.
  absl::Status AppendMetrics(const v1::StepMetrics& metrics);

 private:
  RunDirectory(std::string path, int lock) : path_(std::move(path)), lock_fd_(lock) {}
  absl::Status OpenMetrics();

  std::string path_;
  int lock_fd_ = -1;
  int metrics_fd_ = -1;
};

// The folder that holds step-N of this attempt: the one that it goes on from, or its own.
std::string CheckpointsHolding(const v1::Start& start, int64_t step);

// Nothing where no run.json is. Errors name the file.
absl::StatusOr<std::optional<v1::Run>> ReadRun(const std::string& run_directory);

// All complete lines in order; none where the file is not there. Errors name file and line.
absl::StatusOr<std::vector<v1::StepMetrics>> ReadMetrics(const std::string& run_directory);

// One entry per step, ascending, of the training as it went in the end: what an earlier attempt reported of steps that a later
// one did again, or that lie beyond where the later one began again, is left out. In the order of the file.
std::vector<v1::StepMetrics> LatestOfEachStep(const std::vector<v1::StepMetrics>& metrics);

// Where an attempt at a job of the service writes. Agents make the folder, and the server takes a checkpoint from no other.
// Thread-safety: a pure function.

// "RUNS/ID/epoch-E": the run directory of the attempt under an epoch. ID is the last part of the job's resource name. Errors: a
// name or an epoch that would lead elsewhere.
absl::StatusOr<std::string> EpochPath(const std::string& runs, const std::string& job, int64_t epoch);

// Whether a training goes on in a run directory, for those who only look. Thread-safe.

// That run.json says so, and that the process that locked the directory lives on this machine. Takes no lock itself: who begins
// to train at this moment is not kept from it.
bool IsTraining(const std::string& run_directory);

// The run directory's hf/, the trained model as a Hugging Face folder: made beside its place, marked with the checkpoint it is
// of, and put in place at once. Thread-safety: functions of the file system.

// Whether hf/ is the export of the committed checkpoint of `step`, as it is now in `checkpoints` (CheckpointsHolding).
bool IsExported(const std::string& run_directory, const std::string& checkpoints, int64_t step);

// An empty hf.partial/ to write the export into; what an interrupted export left goes. Gives its path in `folder`.
absl::Status BeginExport(const std::string& run_directory, std::string* folder);

// Everything is in hf.partial/ and on the disk: marks it as of `step` in `checkpoints`, and makes it hf/ in place of an earlier
// one, which is removed as checkpoint::RemoveAll does.
absl::Status FinishExport(const std::string& run_directory, const std::string& checkpoints, int64_t step,
                          std::string_view build_version, const checkpoint::BytesDone& done = nullptr);

// A full disk where a training writes: what is said of it, and waiting until there is room. A pure function, and one that blocks.

// "the disk of RUNS is full: 12 MiB are free of the 340 MiB that a checkpoint takes"; where `bytes` are free, or it is not known
// how many are needed (0): with what was tried (`full`) instead.
std::string WaitsForRoom(const std::string& what, const std::string& path, int64_t bytes, int64_t free, const absl::Status& full);

// Does `work`, and again as long as it fails for want of room (ResourceExhausted), after a second and then after longer and
// longer. `waits` hears of each wait why, and in the end of an empty text where there was one. `stop` is asked several times a
// second; then the error is the work's.
absl::Status DoWhenThereIsRoom(const std::function<absl::Status()>& work, const std::function<void(const std::string&)>& waits,
                               const std::function<bool()>& stop);

}  // namespace legoai::launch
