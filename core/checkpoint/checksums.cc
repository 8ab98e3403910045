#include "core/checkpoint/checksums.h"

#include <isa-l/crc.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "proto/status.h"

namespace legoai::checkpoint {
namespace {

constexpr size_t kBytes = size_t{1} << 20;  // read at a time

// Bytes are given piece by piece.
class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void Add(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  std::string Finish() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    return absl::BytesToHexString(std::string(reinterpret_cast<const char*>(digest), size));
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace

uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc) {
  constexpr size_t kPiece = size_t{1} << 30;  // the library counts in int
  // The library asks for a mutable pointer and does not write. It leaves the inversions at both ends to the caller.
  auto* at = const_cast<unsigned char*>(static_cast<const unsigned char*>(data));
  uint32_t state = ~crc;
  while (bytes > 0) {
    const size_t piece = std::min(bytes, kPiece);
    state = crc32_iscsi(at, static_cast<int>(piece), state);
    at += piece;
    bytes -= piece;
  }
  return ~state;
}

std::string Sha256(std::string_view bytes) {
  Digest digest;
  digest.Add(bytes);
  return digest.Finish();
}

absl::StatusOr<std::string> Sha256(std::string_view bytes, const Cancel& cancel) {
  Digest digest;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(kBytes, bytes.size()))) {
    RETURN_IF_ERROR(CheckNotCancelled(cancel));
    digest.Add(bytes.substr(0, kBytes));
  }
  return digest.Finish();
}

absl::StatusOr<std::string> Sha256OfFile(const std::string& path, const Cancel& cancel) {
  ASSIGN_OR_RETURN(const int descriptor, OpenRegularFile(path));
  Digest digest;
  std::vector<char> bytes(kBytes);
  absl::Status status;
  while (status.ok()) {
    const ssize_t got = read(descriptor, bytes.data(), bytes.size());
    if (got == 0) break;
    if (got > 0) digest.Add({bytes.data(), static_cast<size_t>(got)});
    if (got < 0 && errno != EINTR) status = FileError(path, "cannot read", errno);
    status.Update(CheckNotCancelled(cancel));
  }
  close(descriptor);
  if (!status.ok()) return status;
  return digest.Finish();
}

}  // namespace legoai::checkpoint
