#include "server/http/path_template.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/status.h"

namespace legoai::server {
namespace {

std::optional<int> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? std::optional<int>(lower - 'a' + 10) : std::nullopt;
}

bool IsPlain(std::string_view text) {
  for (const char c : text) {
    if (c == '/' || absl::ascii_iscntrl(static_cast<unsigned char>(c))) return false;
  }
  return !text.empty();
}

// The text as slash-separated parts, where a variable in braces is one part.
std::vector<std::string_view> Parts(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  bool inside = false;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && (text[i] == '{' || text[i] == '}')) inside = text[i] == '{';
    if (i < text.size() && (text[i] != '/' || inside)) continue;
    parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return parts;
}

}  // namespace

std::optional<std::string> DecodePercent(std::string_view text, bool plus_is_space) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += plus_is_space && text[i] == '+' ? ' ' : text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const auto high = HexDigit(text[i + 1]), low = HexDigit(text[i + 2]);
    if (!high || !low) return std::nullopt;
    decoded += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return decoded;
}

absl::StatusOr<PathTemplate> PathTemplate::Parse(std::string_view text) {
  PathTemplate parsed;
  const size_t colon = text.rfind(':');
  if (colon != std::string_view::npos && text.find('}', colon) == std::string_view::npos) {
    parsed.verb_ = std::string(text.substr(colon + 1));
    text = text.substr(0, colon);
  }
  const std::string shown(text);
  if (!text.starts_with('/')) return absl::InvalidArgumentError(absl::StrCat("path template ", shown, " begins with no /"));
  for (const std::string_view part : Parts(text.substr(1))) {
    const bool variable = part.size() > 2 && part.front() == '{' && part.back() == '}';
    absl::Status status = variable ? parsed.AddVariable(part.substr(1, part.size() - 2)) : parsed.AddSegment(part, -1);
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat("path template ", shown, ": ", status.message()));
  }
  return parsed;
}

absl::Status PathTemplate::AddVariable(std::string_view inside) {
  const size_t equals = inside.find('=');
  variables_.emplace_back(inside.substr(0, equals));
  if (equals == std::string_view::npos) return AddSegment("*", static_cast<int>(variables_.size()) - 1);
  for (const std::string_view part : Parts(inside.substr(equals + 1))) {
    RETURN_IF_ERROR(AddSegment(part, static_cast<int>(variables_.size()) - 1));
  }
  return absl::OkStatus();
}

absl::Status PathTemplate::AddSegment(std::string_view text, int variable) {
  if (text.empty()) return absl::InvalidArgumentError("an empty segment");
  if (text == "**") return absl::InvalidArgumentError("** is not supported: name the segments");
  if (text.find_first_of("{}*") != std::string_view::npos && text != "*") {
    return absl::InvalidArgumentError(absl::StrCat(std::string(text), " is no segment"));
  }
  segments_.push_back({text == "*" ? "" : std::string(text), variable});
  return absl::OkStatus();
}

std::optional<std::map<std::string, std::string>> PathTemplate::Match(std::string_view path) const {
  if (!path.starts_with('/')) return std::nullopt;
  path.remove_prefix(1);
  if (!verb_.empty()) {
    if (!path.ends_with(":" + verb_)) return std::nullopt;
    path.remove_suffix(verb_.size() + 1);
  }
  const std::vector<std::string_view> parts = Parts(path);
  if (parts.size() != segments_.size()) return std::nullopt;
  // Without a verb in the template a colon in the last segment is one that belongs to another method.
  if (verb_.empty() && parts.back().find(':') != std::string_view::npos) return std::nullopt;
  std::map<std::string, std::string> values;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::optional<std::string> part = DecodePercent(parts[i]);
    if (!part || !IsPlain(*part) || (!segments_[i].literal.empty() && *part != segments_[i].literal)) return std::nullopt;
    if (segments_[i].variable < 0) continue;
    std::string& value = values[variables_[segments_[i].variable]];
    absl::StrAppend(&value, value.empty() ? "" : "/", *part);
  }
  return values;
}

}  // namespace legoai::server
