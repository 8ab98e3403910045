#include "core/hardware/visible_devices.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace legoai::sim {
namespace {

constexpr absl::string_view kUuidPrefix = "GPU-";

// -1: none, or more than one.
int FindUuid(absl::string_view beginning, const std::vector<std::string>& uuids) {
  int found = -1;
  for (size_t i = 0; i < uuids.size(); ++i) {
    if (!absl::StartsWith(uuids[i], beginning)) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

// As strtol() reads it: blanks before it and what follows the digits do not count. -1: no index of one of `count` cards.
int ReadIndex(const std::string& text, size_t count) {
  char* end = nullptr;
  errno = 0;
  const long index = std::strtol(text.c_str(), &end, 10);
  const bool is_number = end != text.c_str() && errno == 0;
  return is_number && index >= 0 && index < static_cast<long>(count) ? static_cast<int>(index) : -1;
}

}  // namespace

VisibleDevices ReadVisibleDevices(std::string_view value, const std::vector<std::string>& uuids) {
  const absl::string_view text(value.data(), value.size());
  VisibleDevices visible;
  visible.by_index = !absl::StartsWith(text, kUuidPrefix);  // the first entry says what all are
  for (const absl::string_view entry : absl::StrSplit(text, ',')) {
    int position = -1;
    if (visible.by_index) {
      position = ReadIndex(std::string(entry), uuids.size());
    } else if (absl::StartsWith(entry, kUuidPrefix)) {
      position = FindUuid(entry, uuids);
    }
    if (position < 0) break;
    auto& positions = visible.positions;
    if (std::find(positions.begin(), positions.end(), position) != positions.end()) return {{}, visible.by_index};
    positions.push_back(position);
  }
  return visible;
}

}  // namespace legoai::sim
