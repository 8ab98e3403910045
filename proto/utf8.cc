#include "proto/utf8.h"

#include <google/protobuf/stubs/common.h>

#include <algorithm>

namespace legoai {

bool IsUtf8(std::string_view text) {
  return google::protobuf::internal::IsStructurallyValidUTF8(text.data(), static_cast<int>(text.size()));
}

std::string ToUtf8(std::string_view text) {
  std::string shown(text);
  if (IsUtf8(text)) return shown;
  std::replace_if(shown.begin(), shown.end(), [](char c) { return static_cast<unsigned char>(c) >= 128; }, '?');
  return shown;
}

std::string CutText(std::string_view text, size_t most_bytes) {
  if (text.size() <= most_bytes) return std::string(text);
  size_t end = most_bytes - 3;
  while (end > 0 && (text[end] & 0xc0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace legoai
