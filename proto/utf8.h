// Text in messages is UTF-8; what users, files and other processes give may be any bytes. Torch-free. Thread-safety: pure
// functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace legoai {

bool IsUtf8(std::string_view text);

// `text` if it is UTF-8; otherwise with a question mark for every byte that is not ASCII.
std::string ToUtf8(std::string_view text);

// `text` if it has at most so many bytes; otherwise its beginning, cut not inside a character, and "...".
std::string CutText(std::string_view text, size_t most_bytes = 80);

}  // namespace legoai
