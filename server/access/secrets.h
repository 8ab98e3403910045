// Secrets of tokens; core/process/secret_file.h keeps them in files. Thread-safety: pure functions, but for NewSecret().
#pragma once

#include <string>
#include <string_view>

namespace legoai::access {

// A new one: "lego_" and 256 bits of the system's random source in base64url. The prefix is for tools that search code and logs
// for secrets.
std::string NewSecret();

// Whether it has the form of one. Anything else needs no look into the store.
bool IsSecret(std::string_view text);

// What the store keeps of one: its SHA-256, hexadecimal. A slow, salted hash is for passwords, which can be guessed; 256 random
// bits cannot, and every call hashes one.
std::string SecretDigest(std::string_view secret);

}  // namespace legoai::access
