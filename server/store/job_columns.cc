#include "server/store/job_columns.h"

#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace legoai::store {

std::optional<JobNameParts> SplitJobName(std::string_view name) {
  constexpr std::string_view kProjects = "projects/", kJobs = "/jobs/";
  const size_t jobs = name.find(kJobs);
  if (name.substr(0, kProjects.size()) != kProjects || jobs == std::string_view::npos || jobs <= kProjects.size())
    return std::nullopt;
  const JobNameParts parts{name.substr(0, jobs), name.substr(jobs + kJobs.size())};
  const bool nested =
      parts.id.find('/') != std::string_view::npos || parts.project.find('/', kProjects.size()) != std::string_view::npos;
  if (parts.id.empty() || nested) return std::nullopt;
  return parts;
}

absl::Status NoJobName(const std::string& name) {
  return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is no name of a job: projects/P/jobs/ID"));
}

std::string FoldedName(const v1::Job& job) { return absl::AsciiStrToLower(job.spec().display_name()); }

JobFilter::JobFilter(const JobQuery& query)
    : until_us(query.created_until_us == 0 ? std::numeric_limits<int64_t>::max() : query.created_until_us),
      name(absl::AsciiStrToLower(query.display_name_contains)),
      text(absl::AsciiStrToLower(query.text_contains)),
      id_text(absl::AsciiStrToUpper(query.text_contains)),
      of_all(name.empty() && text.empty() && query.created_from_us <= 0 && query.created_until_us == 0) {}

}  // namespace legoai::store
