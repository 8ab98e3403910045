#include "server/jobs/names.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/errors.h"
#include "server/store/ulid.h"

namespace legoai::server {
namespace {

constexpr size_t kSegmentMost = 63;
constexpr size_t kShown = 200;

absl::Status WrongName(std::string_view field, std::string_view name, std::string_view form) {
  return FieldError(field, name.substr(0, kShown), absl::StrCat("must be ", std::string(form)));
}

// Lower case, digits and dashes, beginning with a letter.
bool IsProject(std::string_view text) {
  return !text.empty() && text.size() <= kSegmentMost && absl::ascii_islower(text[0]) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-'; });
}

std::vector<std::string> Split(std::string_view name) { return absl::StrSplit(std::string(name), '/'); }

}  // namespace

bool IsSegment(std::string_view text) {
  return !text.empty() && text.size() <= kSegmentMost && absl::ascii_isalnum(text[0]) &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_'; });
}

absl::StatusOr<std::string> ParseProjectName(std::string_view field, std::string_view name) {
  const std::vector<std::string> parts = Split(name);
  if (parts.size() != 2 || parts[0] != "projects" || !IsProject(parts[1]))
    return WrongName(field, name, "a project, \"projects/default\"");
  return parts[1];
}

absl::StatusOr<JobName> ParseJobName(std::string_view field, std::string_view name) {
  const std::vector<std::string> parts = Split(name);
  if (parts.size() != 4 || parts[0] != "projects" || !IsProject(parts[1]) || parts[2] != "jobs" || !store::IsUlid(parts[3]))
    return WrongName(field, name, "a job, \"projects/default/jobs/ID\" with an ID of 26 capitals and digits");
  return JobName{parts[1], parts[3]};
}

absl::StatusOr<AttemptName> ParseAttemptName(std::string_view field, std::string_view name) {
  constexpr std::string_view kMiddle = "/attempts/";
  const size_t at = name.find(kMiddle);
  AttemptName parsed;
  const bool numbered = at != std::string_view::npos &&
                        absl::SimpleAtoi(std::string(name.substr(at + kMiddle.size())), &parsed.attempt) && parsed.attempt >= 1;
  if (!numbered || !ParseJobName(field, name.substr(0, at)).ok() || FormatAttemptName(name.substr(0, at), parsed.attempt) != name)
    return WrongName(field, name, "an attempt, \"projects/default/jobs/ID/attempts/1\"");
  parsed.job = std::string(name.substr(0, at));
  return parsed;
}

absl::StatusOr<StepTraceName> ParseStepTraceName(std::string_view field, std::string_view name) {
  constexpr std::string_view kMiddle = "/stepTraces/";
  const size_t at = name.find(kMiddle);
  StepTraceName parsed;
  if (at != std::string_view::npos) {
    parsed.job = std::string(name.substr(0, at));
    const std::vector<std::string> numbers = absl::StrSplit(std::string(name.substr(at + kMiddle.size())), '-');
    const bool read = numbers.size() == 3 && absl::SimpleAtoi(numbers[0], &parsed.attempt) &&
                      absl::SimpleAtoi(numbers[1], &parsed.step) && absl::SimpleAtoi(numbers[2], &parsed.rank);
    if (read && ParseJobName(field, parsed.job).ok() && FormatStepTraceName(parsed) == name) return parsed;
  }
  return WrongName(field, name, "a step's trace, \"projects/default/jobs/ID/stepTraces/ATTEMPT-STEP-RANK\"");
}

absl::StatusOr<std::string> ParseWorkerName(std::string_view field, std::string_view name) {
  const std::vector<std::string> parts = Split(name);
  if (parts.size() != 2 || parts[0] != "workers" || !IsSegment(parts[1]))
    return WrongName(field, name, "a worker, \"workers/NAME\"; `lego workers` lists them");
  return parts[1];
}

std::string FormatProjectName(std::string_view project) { return absl::StrCat("projects/", std::string(project)); }

std::string FormatJobName(std::string_view project, std::string_view id) {
  return absl::StrCat("projects/", std::string(project), "/jobs/", std::string(id));
}

std::string FormatAttemptName(std::string_view job, int64_t attempt) {
  return absl::StrCat(std::string(job), "/attempts/", attempt);
}

std::string FormatCheckpointName(std::string_view job, int64_t step) {
  return absl::StrCat(std::string(job), "/checkpoints/", step);
}

std::string FormatStepTraceName(const StepTraceName& name) {
  return absl::StrCat(name.job, "/stepTraces/", name.attempt, "-", name.step, "-", name.rank);
}

std::string FormatWorkerName(std::string_view worker) { return absl::StrCat("workers/", std::string(worker)); }

}  // namespace legoai::server
