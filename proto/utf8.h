// Text in messages is UTF-8; what users, files and other processes give may be any bytes. Torch-free. Thread-safety: pure
// functions.
#pragma once

#include <string>
#include <string_view>

namespace legoai {

bool IsUtf8(std::string_view text);

// `text` if it is UTF-8; otherwise with a question mark for every byte that is not ASCII.
std::string ToUtf8(std::string_view text);

}  // namespace legoai
