#include "worker/agent/log_tail.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "absl/strings/str_split.h"

namespace legoai::agent {

std::vector<std::string> LastLines(const std::string& path, size_t lines, int64_t bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const int64_t size = file ? static_cast<int64_t>(file.tellg()) : 0;
  if (size <= 0) return {};
  // One byte more tells whether the first line is whole.
  const int64_t begin = std::max<int64_t>(0, size - bytes - 1);
  file.seekg(begin);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (begin > 0) text.erase(0, std::min(text.find('\n'), text.size()));
  std::vector<std::string> all = absl::StrSplit(text, '\n', absl::SkipEmpty());
  if (all.size() > lines) all.erase(all.begin(), all.end() - static_cast<int64_t>(lines));
  return all;
}

}  // namespace legoai::agent
