// Bytes that come token by token, as text: a character whose bytes are spread over tokens is given when it is whole. Bytes that
// are no UTF-8 become U+FFFD, one for each sequence that begins well and is cut short, as Unicode recommends and Python does.
// Torch-free. Not thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace legoai::generate {

class Utf8Stream {
 public:
  // The whole characters of what was held back and `bytes`.
  std::string Add(std::string_view bytes);
  // What is still held back: no more bytes come.
  std::string Finish();

 private:
  std::string pending_;
};

}  // namespace legoai::generate
