#include "server/fleet/lease_binding.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::server {
namespace {

constexpr size_t kLongestPath = 4096;
constexpr int64_t kFirstLines = 10;

template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(parts...));
}

bool IsSha256(const std::string& text) {
  return text.size() == 64 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); });
}

// Another kind of step is saved by trainers that are stopped, and by nobody else.
bool IsDue(const v1::Recipe& recipe, int64_t step) {
  const int64_t interval = recipe.checkpoint().interval();
  return step == recipe.training().steps() || (interval > 0 && step % interval == 0);
}

// Of the checkpoints of one epoch, the latest that is kept; the latest of all is.
std::optional<v1::Checkpoint> LatestOf(const std::vector<v1::Checkpoint>& kept, int64_t epoch) {
  std::optional<v1::Checkpoint> latest;
  for (const v1::Checkpoint& one : kept) {
    if (one.epoch() == epoch && (!latest || one.step() > latest->step())) latest = one;
  }
  return latest;
}

// Of a step that is not after the last committed one of its epoch.
absl::StatusOr<bool> CheckAgain(store::ReadTransaction& read, const v1::Job& job, const v1::CommitRequest& request,
                                int64_t last) {
  ASSIGN_OR_RETURN(const auto all, read.ListCheckpoints(job.name()));
  for (const v1::Checkpoint& one : all) {
    if (one.epoch() != job.epoch() || one.step() != request.step()) continue;
    if (one.digest() == request.digest()) return false;
    return Refuse("it is committed with another digest, ", one.digest());
  }
  return Refuse("step ", last, " of this attempt is committed already, and they are committed in the order of their steps");
}

}  // namespace

absl::Status CheckRuns(const std::string& runs) {
  const std::filesystem::path path = runs;
  const bool plain = path.is_absolute() && path.has_filename() && path.lexically_normal().string() == runs &&
                     runs.size() <= kLongestPath &&
                     std::none_of(runs.begin(), runs.end(), [](unsigned char c) { return absl::ascii_iscntrl(c); });
  if (plain) return absl::OkStatus();
  return FieldError("worker.runs", absl::CHexEscape(runs.substr(0, 200)),
                    "must be the absolute path of a folder, without `.`, `..` and needless slashes");
}

absl::StatusOr<std::string> CheckpointsOf(const std::string& runs, const v1::LeaseId& lease) {
  ASSIGN_OR_RETURN(auto directory, launch::EpochPath(runs, lease.job(), lease.epoch()));
  return launch::CheckpointsPath(directory);
}

absl::StatusOr<bool> CheckCommit(store::ReadTransaction& read, const v1::Job& job, const v1::Attempt& attempt,
                                 const std::string& directory, const v1::CommitRequest& request) {
  if (request.directory() != directory) {
    return Refuse("this attempt saves in ", directory, ", and not in ", absl::CHexEscape(request.directory().substr(0, 300)));
  }
  if (!IsSha256(request.digest())) return Refuse("its digest is no SHA-256 in 64 hexadecimal digits");
  const int64_t first = attempt.resume_step() + 1, steps = attempt.recipe().training().steps();
  if (request.step() < first || request.step() > steps) {
    return Refuse("this attempt, which began after step ", attempt.resume_step(), " and ends with step ", steps,
                  ", does not come to it");
  }
  ASSIGN_OR_RETURN(const auto kept, read.ListKeptCheckpoints(job.name()));
  const auto latest = LatestOf(kept, job.epoch());
  if (!latest) return true;
  if (request.step() <= latest->step()) return CheckAgain(read, job, request, latest->step());
  if (!IsDue(attempt.recipe(), latest->step()))
    return Refuse("this attempt was stopped after step ", latest->step(), ", and saved for the last time then");
  return true;
}

absl::Status CheckStep(const v1::Job& job, const v1::Telemetry& fact) {
  const int64_t steps = (job.has_chosen() ? job.chosen().recipe() : job.spec().recipe()).training().steps();
  int64_t least = 0, step = 0;
  if (fact.has_metrics()) least = 1, step = fact.metrics().step();
  if (fact.has_progress()) step = fact.progress().step();
  if (fact.has_ended()) step = fact.ended().last_step();
  if (step >= least && step <= steps) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("a fact of step ", step, " of a training of ", steps));
}

bool IsWorthALine(int64_t count) { return count <= kFirstLines || (count & (count - 1)) == 0; }

}  // namespace legoai::server
