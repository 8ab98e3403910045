#include "server/cli/read_bytes.h"

#include <cmath>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

namespace legoai::cli {

std::optional<double> ReadBytes(absl::string_view text, double whole) {
  struct Unit {
    const char* name;
    double bytes;
  };
  const Unit units[] = {{"%", whole / 100},     {"TiB", std::exp2(40)}, {"GiB", std::exp2(30)},
                        {"MiB", std::exp2(20)}, {"KiB", std::exp2(10)}, {"B", 1}};
  double scale = 1, number = 0;
  for (const Unit& unit : units) {
    if (!absl::EndsWithIgnoreCase(text, unit.name)) continue;
    scale = unit.bytes;
    text.remove_suffix(absl::string_view(unit.name).size());
    break;
  }
  text = absl::StripAsciiWhitespace(text);
  // No sign, "inf", "nan" or "0x10".
  const bool plain = !text.empty() && (absl::ascii_isdigit(text[0]) || text[0] == '.') &&
                     text.find_first_not_of("0123456789.eE+-") == absl::string_view::npos;
  if (!plain || !absl::SimpleAtod(text, &number) || !std::isfinite(number * scale)) return std::nullopt;
  return number * scale;
}

}  // namespace legoai::cli
