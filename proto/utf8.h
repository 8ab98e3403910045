// Text in messages is UTF-8; what users, files and other processes give may be any bytes. Thread-safety: pure
// functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace legoai {

bool IsUtf8(std::string_view text);

// Has no control character: none below U+0020, no DEL, none of U+0080 to U+009F. Bytes that are no UTF-8 are none.
bool IsPrintable(std::string_view text);

// `text` as a terminal, a log or a message may have it: bytes that are no UTF-8 as ToUtf8 shows them, control characters as in
// JSON, \n or \u001b. With Lines::kKeep line ends and tabs stay.
enum class Lines { kEscape, kKeep };
std::string Printable(std::string_view text, Lines lines = Lines::kEscape);

// `text` if it is UTF-8; otherwise with a question mark for every byte that is not ASCII.
std::string ToUtf8(std::string_view text);

// `text` if it has at most so many bytes; otherwise its beginning, cut not inside a character, and "...".
std::string CutText(std::string_view text, size_t most_bytes = 80);

}  // namespace legoai
