#include "core/process/run_directory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/storage.h"
#include "proto/errors.h"
#include "proto/json/json.h"
#include "proto/read_file.h"
#include "proto/status.h"
#include "proto/text.h"
#include "proto/toml/toml.h"

namespace legoai::launch {
namespace {

// Length of the part of the file that ends with a line break.
absl::StatusOr<int64_t> CompleteBytes(const std::string& path) {
  absl::StatusOr<std::string> contents = checkpoint::ReadFile(path);
  if (absl::IsNotFound(contents.status())) return 0;
  if (!contents.ok()) return contents.status();
  const size_t last = contents->rfind('\n');
  return last == std::string::npos ? 0 : static_cast<int64_t>(last + 1);
}

// " (process 4711)", as the one that holds the lock wrote it there.
std::string LockHolder(int fd) {
  char text[16] = {};
  int pid = 0;
  if (pread(fd, text, sizeof(text) - 1, 0) <= 0 || !absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &pid)) return "";
  return absl::StrCat(" (process ", pid, ")");
}

// ResourceExhausted where the disk is full, as anything that is written below says it.
absl::Status CannotBe(const char* what, const std::string& path, int error) {
  const absl::StatusCode code = checkpoint::FileError(path, "", error).code();
  return FieldError("job.dump_folder", path, absl::StrCat("cannot be ", what, ": ", std::strerror(error)),
                    code == absl::StatusCode::kResourceExhausted ? code : absl::StatusCode::kInvalidArgument);
}

// "01J..." of "projects/default/jobs/01J...".
std::string IdOf(const std::string& job) { return job.substr(job.rfind('/') + 1); }

bool IsFolderName(const std::string& id) {
  return !id.empty() && id.size() <= 128 &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; });
}

std::string MarkPath(const std::string& folder) { return folder + "/legoai.json"; }

constexpr absl::Duration kFirstPause = absl::Seconds(1), kLongestPause = absl::Seconds(30);
constexpr absl::Duration kBeat = absl::Milliseconds(100);

}  // namespace

std::string RecipePath(const std::string& run_directory) { return run_directory + "/recipe.toml"; }
std::string RunJsonPath(const std::string& run_directory) { return run_directory + "/run.json"; }
std::string MetricsPath(const std::string& run_directory) { return run_directory + "/metrics.jsonl"; }
std::string CheckpointsPath(const std::string& run_directory) { return run_directory + "/checkpoints"; }
std::string FlightRingPath(const std::string& run_directory, int64_t rank) {
  return absl::StrCat(run_directory, "/flight/rank-", rank);
}
std::string TokensPath(const std::string& run_directory) { return run_directory + "/tokens"; }
std::string LogsPath(const std::string& run_directory) { return run_directory + "/logs"; }
std::string TensorboardPath(const std::string& run_directory) { return run_directory + "/tensorboard"; }
std::string HuggingFacePath(const std::string& run_directory) { return run_directory + "/hf"; }
std::string PartialExportPath(const std::string& run_directory) { return run_directory + "/hf.partial"; }

std::string CheckpointsOf(const v1::Recipe& recipe, const std::string& run_directory) {
  const std::string& folder = recipe.checkpoint().folder();
  return folder.empty() ? CheckpointsPath(run_directory) : folder;
}

absl::StatusOr<std::string> CheckpointsOfRun(const std::string& run_directory) {
  const auto text = ReadFile(RecipePath(run_directory), kMostTextBytes);
  if (absl::IsNotFound(text.status())) return CheckpointsPath(run_directory);
  if (!text.ok()) return text.status();
  v1::Recipe recipe;
  if (const absl::Status parsed = ParseToml(*text, &recipe); !parsed.ok())
    return Annotate(parsed, absl::StrCat(RecipePath(run_directory), ", which says where the checkpoints are"));
  return CheckpointsOf(recipe, run_directory);
}

std::string CheckpointsHolding(const v1::Start& start, int64_t step) {
  const bool resumed = start.has_resume_step() && start.resume_step() == step && !start.resume_directory().empty();
  return resumed ? start.resume_directory() : CheckpointsOf(start);
}

absl::StatusOr<RunDirectory> RunDirectory::Open(const std::string& path) {
  for (const char* folder : {"/checkpoints", "/flight", "/logs"}) {
    std::error_code error;
    std::filesystem::create_directories(path + folder, error);
    if (error) return CannotBe("made", path, error.value());
  }
  const int fd = open((path + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return CannotBe("written", path, errno);
  RunDirectory directory(path, fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return FieldError(
        "job.dump_folder", path,
        absl::StrCat("another training runs in this folder", LockHolder(fd), ": wait for it, or choose another folder"),
        absl::StatusCode::kFailedPrecondition);
  }
  // For who finds it locked. On a full disk it is left out.
  if (ftruncate(fd, 0) == 0) dprintf(fd, "%d\n", static_cast<int>(getpid()));
  return directory;
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      lock_fd_(std::exchange(other.lock_fd_, -1)),
      metrics_fd_(std::exchange(other.metrics_fd_, -1)) {}

RunDirectory::~RunDirectory() {
  if (metrics_fd_ >= 0) close(metrics_fd_);
  if (lock_fd_ >= 0) close(lock_fd_);
}

absl::Status RunDirectory::WriteRecipe(const v1::Recipe& recipe) const {
  return checkpoint::ReplaceFile(RecipePath(path_), ToToml(recipe));
}

absl::Status RunDirectory::WriteRun(const v1::Run& run) const {
  return checkpoint::ReplaceFile(RunJsonPath(path_), ToJson(run) + "\n");
}

absl::Status RunDirectory::OpenMetrics() {
  const std::string path = MetricsPath(path_);
  ASSIGN_OR_RETURN(const int64_t complete, CompleteBytes(path));
  metrics_fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
  if (metrics_fd_ < 0) return checkpoint::FileError(path, "cannot open", errno);
  if (ftruncate(metrics_fd_, complete) != 0) return checkpoint::FileError(path, "cannot cut off a torn line of", errno);
  return absl::OkStatus();
}

absl::Status RunDirectory::AppendMetrics(const v1::StepMetrics& metrics) {
  if (metrics_fd_ < 0) {
    RETURN_IF_ERROR(OpenMetrics());
  }
  const std::string line = ToJson(metrics, -1) + "\n";
  const ssize_t written = write(metrics_fd_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return absl::OkStatus();
  const int error = written < 0 ? errno : ENOSPC;
  const off_t end = lseek(metrics_fd_, 0, SEEK_END);
  // Half a line would make one that nobody can read out of itself and the next.
  if (written > 0 && ftruncate(metrics_fd_, end - written) != 0) {
    close(metrics_fd_);
    metrics_fd_ = -1;  // the next line opens the file anew, and cuts there
  }
  return checkpoint::FileError(MetricsPath(path_), "cannot write", error);
}

absl::StatusOr<std::optional<v1::Run>> ReadRun(const std::string& run_directory) {
  const std::string path = RunJsonPath(run_directory);
  absl::StatusOr<std::string> text = checkpoint::ReadFile(path);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  if (!text.ok()) return text.status();
  v1::Run run;
  if (absl::Status status = ParseJson(*text, &run); !status.ok()) return Annotate(status, path);
  return run;
}

absl::StatusOr<std::vector<v1::StepMetrics>> ReadMetrics(const std::string& run_directory) {
  const std::string path = MetricsPath(run_directory);
  absl::StatusOr<std::string> text = checkpoint::ReadFile(path);
  std::vector<v1::StepMetrics> metrics;
  if (absl::IsNotFound(text.status())) return metrics;
  if (!text.ok()) return text.status();
  std::vector<std::string> lines = absl::StrSplit(*text, '\n');
  lines.pop_back();  // empty, or torn
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::Status status = ParseJson(lines[i], &metrics.emplace_back());
    if (!status.ok()) return Annotate(status, absl::StrCat(path, " line ", i + 1));
  }
  return metrics;
}

std::vector<v1::StepMetrics> LatestOfEachStep(const std::vector<v1::StepMetrics>& metrics) {
  std::map<int64_t, v1::StepMetrics> by_step;
  int64_t attempt = 0;
  for (const v1::StepMetrics& entry : metrics) {
    // Another attempt is a later one, and had begun before it reported this step.
    if (entry.attempt() != attempt) by_step.erase(by_step.lower_bound(entry.step()), by_step.end());
    attempt = entry.attempt();
    by_step[entry.step()] = entry;
  }
  std::vector<v1::StepMetrics> latest;
  for (auto& [step, entry] : by_step) latest.push_back(std::move(entry));
  return latest;
}

absl::StatusOr<std::string> EpochPath(const std::string& runs, const std::string& job, int64_t epoch) {
  const std::string id = IdOf(job);
  if (!IsFolderName(id)) return FieldError("lease.job", job, "its last part must be letters, digits, - and _");
  if (epoch < 1) return FieldError("lease.epoch", absl::StrCat(epoch), "must be at least 1");
  return absl::StrCat(runs, "/", id, "/epoch-", epoch);
}

absl::StatusOr<std::string> EpochCheckpoints(const std::string& runs, const v1::Recipe& recipe, const std::string& job,
                                             int64_t epoch) {
  const std::string& folder = recipe.checkpoint().folder();
  ASSIGN_OR_RETURN(auto path, EpochPath(folder.empty() ? runs : folder, job, epoch));
  return folder.empty() ? CheckpointsPath(path) : path;
}

bool IsTraining(const std::string& run_directory) {
  const auto run = ReadRun(run_directory);
  if (!run.ok() || !run->has_value() || (*run)->attempts().empty()) return false;
  if ((*run)->attempts().rbegin()->outcome() != "running") return false;
  const absl::StatusOr<std::string> holder = ReadFile(run_directory + "/.lock", /*most_bytes=*/64);
  pid_t pid = 0;
  if (!holder.ok() || !absl::SimpleAtoi(absl::StripAsciiWhitespace(*holder), &pid) || pid <= 0) return false;
  return kill(pid, 0) == 0 || errno == EPERM;
}

absl::StatusOr<bool> IsExported(const std::string& run_directory, const std::string& checkpoints, int64_t step) {
  const auto text = checkpoint::ReadFile(MarkPath(HuggingFacePath(run_directory)));
  v1::Export mark;
  if (!text.ok() || !ParseJson(*text, &mark).ok() || mark.step() != step) return false;
  const auto digest = checkpoint::ManifestDigest(checkpoints, step);
  if (digest.ok()) return mark.checkpoint_sha256() == *digest;
  const bool none = absl::IsNotFound(digest.status()) || absl::IsDataLoss(digest.status());
  if (checkpoint::IsInObjectStore(checkpoints) && !none) return digest.status();
  return false;
}

absl::Status BeginExport(const std::string& run_directory, std::string* folder) {
  *folder = PartialExportPath(run_directory);
  RETURN_IF_ERROR(checkpoint::RemoveAll(*folder));
  return checkpoint::MakeFolders(*folder);
}

absl::Status FinishExport(const std::string& run_directory, const std::string& checkpoints, int64_t step,
                          std::string_view build_version, const checkpoint::BytesDone& done) {
  ASSIGN_OR_RETURN(const auto digest, checkpoint::ManifestDigest(checkpoints, step));
  v1::Export mark;
  mark.set_step(step);
  mark.set_checkpoint_sha256(digest);
  mark.set_build_version(std::string(build_version));
  const std::string folder = PartialExportPath(run_directory);
  RETURN_IF_ERROR(checkpoint::WriteFile(MarkPath(folder), ToJson(mark) + "\n"));
  return checkpoint::ReplaceFolder(folder, HuggingFacePath(run_directory), done);
}

namespace {

// What is full, which the failed operation names: `path`, or its field's value.
std::string FullText(const std::string& path, const absl::Status& full) {
  return absl::StrCat("the ", checkpoint::IsInObjectStore(path) ? "object store" : "disk", " is full: ", full.message());
}

}  // namespace

std::string WaitsForRoom(const std::string& what, const std::string& path, int64_t bytes, int64_t free,
                         const absl::Status& full) {
  if (checkpoint::IsInObjectStore(path) || free >= bytes) return FullText(path, full);
  return absl::StrCat("the disk of ", path, " is full: ", BytesText(free), " are free of the ", BytesText(bytes), " that ", what,
                      " takes");
}

absl::Status DoWhenThereIsRoom(const std::function<absl::Status()>& work, const std::function<void(const std::string&)>& waits,
                               const std::function<bool()>& stop) {
  bool waited = false;
  for (absl::Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    const absl::Status done = work();
    if (!absl::IsResourceExhausted(done)) {
      if (waited) waits("");
      return done;
    }
    waited = true;
    const auto violation = GetFieldViolation(done);
    waits(FullText(violation ? violation->value() : "", done));
    for (absl::Duration slept; slept < pause; slept += kBeat) {
      if (stop()) return done;
      absl::SleepFor(kBeat);
    }
  }
}

}  // namespace legoai::launch
