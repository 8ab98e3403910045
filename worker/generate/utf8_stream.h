// Decodes bytes that arrive token by token: a character spread over several tokens is returned when it is complete. Invalid UTF-8
// becomes U+FFFD, one for each maximal truncated sequence, as Unicode recommends and Python does. Torch-free. Not thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace legoai::generate {

class Utf8Stream {
 public:
  // The complete characters of the pending bytes and `bytes`.
  std::string Add(std::string_view bytes);
  // The pending bytes at the end of the stream.
  std::string Finish();

 private:
  std::string pending_;
};

}  // namespace legoai::generate
