// The service's programs as of two releases. The older ones are copies of this build's, in which another build version is written
// over the one that was compiled in (core/process/build_version.h): to each other, to the store and to checkpoints they are of
// other sources. The newer ones are this build's own, with a server whose tables are one version newer (next_release.cc).
#pragma once

#include <string>

#include "absl/status/status.h"

namespace legoai::scenarios {

// A version as long as `version`, RELEASE+DIGEST, of the same release and other sources.
std::string OtherBuildVersion(const std::string& version);

// Puts server, agent, trainer and simulator into `folder`, which is made, under the paths that they have below the working
// directory. Errors: Internal where a program does not hold its version exactly once, or a file cannot be written.
absl::Status MakeOtherBuild(const std::string& folder);

// The same of the newer ones, as links.
absl::Status MakeNextRelease(const std::string& folder);

}  // namespace legoai::scenarios
