#include "server/oidc/base64url.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

namespace legoai::oidc {

std::optional<std::string> DecodeBase64Url(std::string_view text) {
  // The library's function also takes padding and space, which cjose reads otherwise.
  const bool plain =
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; });
  std::string bytes;
  if (!plain || !absl::WebSafeBase64Unescape(absl::string_view(text.data(), text.size()), &bytes)) return std::nullopt;
  return bytes;
}

std::string EncodeBase64Url(std::string_view bytes) {
  return absl::WebSafeBase64Escape(absl::string_view(bytes.data(), bytes.size()));
}

}  // namespace legoai::oidc
