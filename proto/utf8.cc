#include "proto/utf8.h"

#include <google/protobuf/stubs/common.h>

#include <algorithm>
#include <cstdio>

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

}  // namespace legoai
