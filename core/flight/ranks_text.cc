#include "core/flight/ranks_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace legoai::comm {

std::string RanksText(const std::vector<int64_t>& ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i >= 3) {
      parts.push_back(absl::StrCat(ranks[i], "-", ranks[end - 1]));
    } else {
      for (size_t k = i; k < end; ++k) parts.push_back(absl::StrCat(ranks[k]));
    }
    i = end;
  }
  return absl::StrJoin(parts, ",");
}

}  // namespace legoai::comm
