#include "worker/agent/gang_folder.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/checkpoint/files.h"
#include "proto/errors.h"
#include "proto/read_file.h"
#include "proto/text.h"

namespace legoai::agent {
namespace {

std::string NotePath(const std::string& run_directory) { return run_directory + "/gang"; }

// Another attempt of the job, and another job, has another.
std::string NoteOf(const v1::StartAttempt& start) {
  return absl::StrCat(start.lease().job(), ", attempt ", start.attempt(), ", epoch ", start.lease().epoch(), "\n");
}

// A network file system may remember for a minute that a file, or one of the folders above it, was not there: opening a folder
// has it ask anew.
void OpenFoldersOf(const std::string& run_directory) {
  const std::filesystem::path own = run_directory, job = own.parent_path();
  for (const std::filesystem::path& folder : {job.parent_path(), job, own}) {
    std::error_code error;
    const std::filesystem::directory_iterator opened(folder, error);
  }
}

}  // namespace

absl::Status WriteGangNote(const std::string& run_directory, const v1::StartAttempt& start) {
  return checkpoint::ReplaceFile(NotePath(run_directory), NoteOf(start));
}

absl::Status AwaitGangNote(const std::string& run_directory, const v1::StartAttempt& start, absl::Duration timeout,
                           const std::function<bool()>& given_up) {
  const absl::Time until = absl::Now() + timeout;
  while (true) {
    OpenFoldersOf(run_directory);
    const auto note = ReadFile(NotePath(run_directory));
    if (note.ok() && *note == NoteOf(start)) return absl::OkStatus();
    if (given_up()) return absl::CancelledError("given up while it looked for the folder of the gang");
    if (absl::Now() > until) break;
    absl::SleepFor(absl::Milliseconds(200));
  }
  return FieldError("--runs", run_directory,
                    absl::StrCat("on ", start.placement().worker(), " is not the folder of ", start.gang().first_worker(),
                                 ", whose note about this attempt is not in it after ", DurationText(timeout),
                                 ": all workers that train together need one folder that they share, for their checkpoints; "
                                 "where it is shared, see whether the disk is full to which the first writes"),
                    absl::StatusCode::kUnavailable);
}

}  // namespace legoai::agent
