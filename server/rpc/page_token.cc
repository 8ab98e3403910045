#include "server/rpc/page_token.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/files.h"
#include "proto/errors.h"

namespace legoai::server {
namespace {

constexpr size_t kDigest = 16;  // hexadecimal digits
constexpr size_t kMostToken = 1000;

std::string Digest(std::string_view text) { return checkpoint::Sha256(text).substr(0, kDigest); }

// Lengths keep ("ab", "c") and ("a", "bc") apart.
std::string QueryDigest(std::initializer_list<std::string_view> query) {
  std::string text;
  for (std::string_view part : query) absl::StrAppend(&text, part.size(), ":", std::string(part));
  return Digest(text);
}

}  // namespace

std::string MakePageToken(std::initializer_list<std::string_view> query, std::string_view cursor) {
  const std::string body = QueryDigest(query) + std::string(cursor);
  return absl::WebSafeBase64Escape(Digest(body) + body);
}

absl::StatusOr<std::string> ReadPageToken(std::initializer_list<std::string_view> query, std::string_view token) {
  if (token.empty()) return std::string();
  std::string bytes;
  const bool whole = token.size() <= kMostToken && absl::WebSafeBase64Unescape(std::string(token), &bytes) &&
                     bytes.size() > 2 * kDigest && Digest(std::string_view(bytes).substr(kDigest)) == bytes.substr(0, kDigest);
  if (!whole)
    return FieldError("page_token", token.substr(0, 60), "is none that the server gave; leave it empty for the first page");
  if (bytes.substr(kDigest, kDigest) != QueryDigest(query))
    return FieldError("page_token", token.substr(0, 60),
                      "belongs to another query; give the same parent and filter as with the page before, or leave it empty");
  return bytes.substr(2 * kDigest);
}

absl::StatusOr<int64_t> PageSize(int64_t asked, int64_t otherwise) {
  if (asked < 0) return FieldError("page_size", absl::StrCat(asked), "must not be negative");
  return asked == 0 ? otherwise : std::min(asked, kMostPageSize);
}

}  // namespace legoai::server
