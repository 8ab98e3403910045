#include "proto/text.h"

#include <google/protobuf/stubs/common.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace legoai {
namespace {

// Bytes of the control character that `text` begins with; 0: it begins with another one.
size_t ControlBytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x20 || first == 0x7f) return 1;
  // U+0080 to U+009F take two bytes.
  const bool upper = first == 0xc2 && text.size() > 1 && (static_cast<unsigned char>(text[1]) & 0xe0) == 0x80;
  return upper ? 2 : 0;
}

std::string EscapeOf(std::string_view control) {
  switch (control[0]) {
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: break;
  }
  char escape[8];
  std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(control.back())));
  return escape;
}

constexpr size_t kMostCompared = 256;  // bytes: who sends megabytes as a key meant none of ours

// `value` in the largest of `units` (each `base` times the one before) that leaves at least 1; three digits.
std::string Scaled(double value, double base, const std::vector<const char*>& units) {
  size_t unit = 0;
  while (std::abs(value) >= base && unit + 1 < units.size()) {
    value /= base;
    ++unit;
  }
  const double size = std::abs(value);
  const int digits = unit == 0 && value == std::floor(value) ? 0 : size < 10 ? 2 : size < 100 ? 1 : 0;
  return absl::StrFormat("%.*f%s", digits, value, units[unit]);
}

}  // namespace

bool IsUtf8(std::string_view text) {
  return google::protobuf::internal::IsStructurallyValidUTF8(text.data(), static_cast<int>(text.size()));
}

bool IsPrintable(std::string_view text) {
  for (; !text.empty(); text.remove_prefix(1)) {
    if (ControlBytes(text) > 0) return false;
  }
  return true;
}

std::string Printable(std::string_view raw, Lines lines) {
  const std::string utf8 = ToUtf8(raw);
  std::string shown;
  for (std::string_view text = utf8; !text.empty();) {
    const size_t control = ControlBytes(text), taken = std::max<size_t>(control, 1);
    const bool stays = control == 0 || (lines == Lines::kKeep && (text[0] == '\n' || text[0] == '\t'));
    shown += stays ? std::string(text.substr(0, taken)) : EscapeOf(text.substr(0, taken));
    text.remove_prefix(taken);
  }
  return shown;
}

std::string ToUtf8(std::string_view text) {
  std::string shown(text);
  if (IsUtf8(text)) return shown;
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return static_cast<unsigned char>(c) >= 128; }, '?');
  return shown;
}

std::string CutText(std::string_view text, size_t most_bytes) {
  if (text.size() <= most_bytes) return std::string(text);
  size_t end = most_bytes - 3;
  while (end > 0 && (text[end] & 0xc0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

namespace {

int Distance(std::string_view from, std::string_view to, int of_another_letter) {
  const int rows = from.size() + 1, columns = to.size() + 1;
  std::vector<int> cost(rows * columns);
  auto at = [&](int i, int j) -> int& { return cost[i * columns + j]; };
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      if (i == 0 || j == 0) {
        at(i, j) = i + j;
        continue;
      }
      const int here = from[i - 1] == to[j - 1] ? 0 : of_another_letter;
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + here});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return cost.back();
}

}  // namespace

int EditDistance(std::string_view from, std::string_view to) { return Distance(from, to, 1); }

// Who leaves a part of a name out means it rather than a short name of other letters: another letter is one removed and one
// added.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  word = word.substr(0, kMostCompared);
  const auto nearest = std::min_element(candidates.begin(), candidates.end(), [&](const std::string& a, const std::string& b) {
    return Distance(word, a, 2) < Distance(word, b, 2);
  });
  return nearest == candidates.end() ? "" : *nearest;
}

std::string BytesText(double bytes) { return Scaled(bytes, 1024, {" B", " KiB", " MiB", " GiB", " TiB"}); }

std::string SecondsText(double seconds) {
  if (seconds >= 1) return absl::StrFormat("%.*f s", seconds < 10 ? 3 : seconds < 100 ? 2 : 1, seconds);
  return Scaled(seconds * 1e6, 1000, {" us", " ms", " s"});
}

std::string DurationText(double seconds) {
  if (!std::isfinite(seconds)) return "an unknown time";
  if (seconds > 0 && seconds < 0.9) return SecondsText(seconds);
  const int64_t whole = std::llround(std::clamp(seconds, 0.0, 1e15));
  const std::pair<int64_t, const char*> parts[] = {
      {whole / 86400, " d"}, {whole / 3600 % 24, " h"}, {whole / 60 % 60, " min"}, {whole % 60, " s"}};
  const auto first = std::find_if(std::begin(parts), std::end(parts) - 1, [](const auto& part) { return part.first > 0; });
  std::string text = absl::StrCat(first->first, first->second);
  const auto second = first + 1;
  if (second != std::end(parts) && second->first > 0) absl::StrAppend(&text, " ", second->first, second->second);
  return text;
}

std::string DurationText(absl::Duration duration) { return DurationText(absl::ToDoubleSeconds(duration)); }

std::string CountText(double count) { return Scaled(count, 1000, {"", " K", " M", " B", " T"}); }

std::string WithCommas(int64_t number) {
  std::string digits = std::to_string(number);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3) digits.insert(at, 1, ',');
  return digits;
}

std::string PercentText(double share) { return absl::StrFormat("%.1f %%", 100 * share); }

std::string FlopsText(double flops) {
  return Scaled(flops, 1000, {" FLOP/s", " KFLOP/s", " MFLOP/s", " GFLOP/s", " TFLOP/s", " PFLOP/s"});
}

std::string BandwidthText(double bytes) { return Scaled(bytes, 1000, {" B/s", " KB/s", " MB/s", " GB/s", " TB/s"}); }

}  // namespace legoai
