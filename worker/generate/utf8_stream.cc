#include "worker/generate/utf8_stream.h"

#include <cstddef>

namespace legoai::generate {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";  // U+FFFD

struct Character {
  size_t bytes = 1;  // that belong to it
  bool whole = false;
  bool cut = false;  // the text ends within it
};

// How many bytes follow a first byte, and where the second one must lie (the Unicode Standard, table 3-7). 0: no first byte.
size_t Following(unsigned char first, unsigned char* least, unsigned char* most) {
  *least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  *most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (first >= 0xc2 && first <= 0xdf) return 1;
  if (first >= 0xe0 && first <= 0xef) return 2;
  return first >= 0xf0 && first <= 0xf4 ? 3 : 0;
}

Character FirstOf(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {1, true, false};
  unsigned char least, most;
  const size_t following = Following(first, &least, &most);
  for (size_t i = 1; i <= following; ++i, least = 0x80, most = 0xbf) {
    if (i == text.size()) return {i, false, true};
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < least || byte > most) return {i, false, false};
  }
  return {following + 1, following > 0, false};
}

}  // namespace

std::string Utf8Stream::Add(std::string_view bytes) {
  pending_ += bytes;
  std::string text;
  std::string_view left = pending_;
  while (!left.empty()) {
    const Character character = FirstOf(left);
    if (character.cut) break;
    text += character.whole ? left.substr(0, character.bytes) : kReplacement;
    left.remove_prefix(character.bytes);
  }
  pending_ = std::string(left);
  return text;
}

std::string Utf8Stream::Finish() {
  const bool cut = !pending_.empty();
  pending_.clear();
  return cut ? kReplacement : "";
}

}  // namespace legoai::generate
