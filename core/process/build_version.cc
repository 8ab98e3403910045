#include "core/process/build_version.h"

#include <utility>

#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace legoai::launch {

void SetProgramHelp(const std::string& usage, const std::string& file) {
  absl::SetProgramUsageMessage(usage);
  absl::FlagsUsageConfig config;
  config.contains_help_flags = [file](absl::string_view name) { return absl::EndsWith(name, file); };
  config.contains_helpshort_flags = config.contains_help_flags;
  config.version_string = [] { return absl::StrCat(std::string(BuildVersion()), "\n"); };
  absl::SetFlagsUsageConfig(std::move(config));
}

}  // namespace legoai::launch
