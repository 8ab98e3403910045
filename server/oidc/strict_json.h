// JSON of strangers: a token's header and claims, a provider's keys. What two readers might read differently is refused, and what
// is deep enough to be a burden. Thread-safety: a pure function.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace legoai::oidc {

// An object, with no name twice in any object, and objects and lists nested `most_depth` deep at the most. Errors:
// InvalidArgument, saying what is wrong without repeating any of the text.
absl::StatusOr<nlohmann::json> ParseObject(std::string_view text, int most_depth);

// The text of this name; empty where there is none, or it is none.
std::string TextOf(const nlohmann::json& object, const char* name);

}  // namespace legoai::oidc
