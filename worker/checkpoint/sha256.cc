#include "worker/checkpoint/sha256.h"

#include <openssl/sha.h>

#include "absl/strings/escaping.h"
#include "worker/checkpoint/files.h"

namespace legoai::checkpoint {

std::string Sha256(std::string_view bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  return absl::BytesToHexString(std::string(reinterpret_cast<const char*>(digest), sizeof(digest)));
}

absl::StatusOr<std::string> Sha256OfFile(const std::string& path) {
  absl::StatusOr<MappedFile> file = checkpoint::MappedFile::Open(path);
  if (!file.ok()) return file.status();
  return Sha256(file->bytes());
}

}  // namespace legoai::checkpoint
