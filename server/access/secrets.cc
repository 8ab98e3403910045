#include "server/access/secrets.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/files.h"
#include "server/store/ulid.h"

namespace legoai::access {
namespace {

constexpr std::string_view kPrefix = "lego_";
constexpr int kWords = 4;        // of 64 bits
constexpr size_t kLetters = 43;  // of 32 bytes in base64url, without padding

}  // namespace

std::string NewSecret() {
  uint64_t words[kWords];
  for (uint64_t& word : words) word = store::SystemRandom();
  const std::string text = absl::WebSafeBase64Escape(std::string(reinterpret_cast<const char*>(words), sizeof(words)));
  return absl::StrCat(std::string(kPrefix), text.substr(0, kLetters));
}

bool IsSecret(std::string_view text) {
  if (!text.starts_with(kPrefix) || text.size() != kPrefix.size() + kLetters) return false;
  text.remove_prefix(kPrefix.size());
  return std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; });
}

std::string SecretDigest(std::string_view secret) { return checkpoint::Sha256(secret); }

}  // namespace legoai::access
