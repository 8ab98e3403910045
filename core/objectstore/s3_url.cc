#include "core/objectstore/s3_url.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/errors.h"
#include "proto/text.h"

namespace legoai::objectstore {
namespace {

constexpr std::string_view kScheme = "s3://";

bool IsBucket(std::string_view name) {
  const auto plain = [](unsigned char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c); };
  return name.size() >= 3 && name.size() <= 63 && plain(name.front()) && plain(name.back()) &&
         std::all_of(name.begin(), name.end(), [&](unsigned char c) { return plain(c) || c == '-' || c == '.'; });
}

bool IsPrefix(const std::string& prefix, size_t most_bytes) {
  if (prefix.empty() || prefix.size() > most_bytes || !IsPrintable(prefix)) return false;
  const std::vector<std::string> parts = absl::StrSplit(prefix, '/');
  return std::none_of(parts.begin(), parts.end(),
                      [](const std::string& part) { return part.empty() || part == "." || part == ".."; });
}

}  // namespace

bool IsUrl(std::string_view text) { return text.find("://") != std::string_view::npos; }

absl::StatusOr<S3Url> ParseS3Url(std::string_view field, std::string_view url, size_t most_bytes) {
  const auto refuse = [&](std::string_view why) {
    return FieldError(field, CutText(url, 200), absl::StrCat(std::string(why), ": write s3://BUCKET/PREFIX"));
  };
  if (url.substr(0, kScheme.size()) != kScheme)
    return refuse(IsUrl(url) ? "of all schemes only s3:// is supported" : "is no URL of an object store");
  const std::string_view rest = url.substr(kScheme.size());
  const size_t slash = rest.find('/');
  S3Url parsed{std::string(rest.substr(0, slash)), slash == std::string_view::npos ? "" : std::string(rest.substr(slash + 1))};
  if (!IsBucket(parsed.bucket))
    return refuse("its bucket must have 3 to 63 lower-case letters, digits, dots and hyphens, a letter or digit at both ends");
  if (!IsPrefix(parsed.key, most_bytes))
    return refuse(absl::StrCat("needs a prefix after the bucket, of at most ", most_bytes,
                               " bytes, without control characters, a slash at its end, or an empty part, `.` or `..`"));
  return parsed;
}

}  // namespace legoai::objectstore
