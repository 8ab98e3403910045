// For tests as another user than root.
#pragma once

#include <filesystem>

#include "absl/status/status.h"

namespace legoai {

// Makes this process the user nobody, without any right of root, who owns `folder` with all that is in it and may read where this
// process runs: folders above both that are closed to others are open in a mount namespace of this process alone. Only root may
// call it, in a process of one thread; it cannot be undone, so call it in a forked child.
// Errors: PermissionDenied with what this machine does not let root do (in a sandbox without other users).
absl::Status BecomeNobody(const std::filesystem::path& folder);

}  // namespace legoai
