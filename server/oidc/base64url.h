// Base64url as RFC 7515 has it: without padding, and nothing else in it. Thread-safety: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace legoai::oidc {

// Nothing where it is not of that form. The empty text is.
std::optional<std::string> DecodeBase64Url(std::string_view text);

std::string EncodeBase64Url(std::string_view bytes);

}  // namespace legoai::oidc
