#include "core/hardware/check_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/enum_text.h"

namespace legoai::sim {
namespace {

std::string RateText(double bytes_per_second) {
  return bytes_per_second < 1e9 ? absl::StrFormat("%.3g MB/s", bytes_per_second / 1e6)
                                : absl::StrFormat("%.3g GB/s", bytes_per_second / 1e9);
}

}  // namespace

std::string CheckedText(const v1::CheckResult& result) {
  const std::string kind = EnumText(result.kind());
  if (result.slots().empty()) return kind;
  return absl::StrCat(kind, result.slots_size() == 1 ? " of slot " : " of slots ", absl::StrJoin(result.slots(), " and "));
}

std::string FiguresText(const v1::CheckResult& result) {
  std::vector<std::string> figures;
  const auto add = [&](bool is_there, double rate, const char* what) {
    if (is_there) figures.push_back(RateText(rate) + what);
  };
  add(result.has_write_bytes_per_second(), result.write_bytes_per_second(), " written");
  add(result.has_read_bytes_per_second(), result.read_bytes_per_second(), " read");
  if (result.has_free_bytes())
    figures.push_back(absl::StrFormat("%.3g GB free", static_cast<double>(result.free_bytes()) / 1e9));
  add(result.has_to_device_bytes_per_second(), result.to_device_bytes_per_second(), " to it");
  add(result.has_from_device_bytes_per_second(), result.from_device_bytes_per_second(), " from it");
  if (result.has_flops_per_second()) figures.push_back(absl::StrFormat("%.0f GFLOP/s", result.flops_per_second() / 1e9));
  add(result.has_received_bytes_per_second(), result.received_bytes_per_second(), " received");
  return absl::StrJoin(figures, ", ");
}

std::string ResultText(const v1::CheckResult& result) {
  const std::string figures = FiguresText(result);
  return absl::StrCat(CheckedText(result), result.passed() ? ": passed" : ": FAILED",
                      absl::StrFormat(" in %.1f s", result.seconds()), figures.empty() ? "" : ", ", figures,
                      result.text().empty() ? "" : ": ", result.text());
}

}  // namespace legoai::sim
