#include "core/process/epoch_path.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"

namespace legoai::launch {
namespace {

// "01J..." of "projects/default/jobs/01J...".
std::string IdOf(const std::string& job) { return job.substr(job.rfind('/') + 1); }

bool IsFolderName(const std::string& id) {
  return !id.empty() && id.size() <= 128 &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; });
}

}  // namespace

absl::StatusOr<std::string> EpochPath(const std::string& runs, const std::string& job, int64_t epoch) {
  const std::string id = IdOf(job);
  if (!IsFolderName(id)) return FieldError("lease.job", job, "its last part must be letters, digits, - and _");
  if (epoch < 1) return FieldError("lease.epoch", absl::StrCat(epoch), "must be at least 1");
  return absl::StrCat(runs, "/", id, "/epoch-", epoch);
}

}  // namespace legoai::launch
