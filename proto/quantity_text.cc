#include "proto/quantity_text.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace legoai {
namespace {

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
