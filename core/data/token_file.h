// A dataset's text as token ids, tokenized once.
//
// With a cache folder the ids are kept there in a mapped file named by the digests of text and tokenizer: the ranks of a host
// share one copy in memory, and a second run does not tokenize again. The file is written under a unique temporary name and
// renamed when it is complete, so concurrent writers, on this host or another, do not disturb each other; an unfinished one is
// removed after an hour. Without a cache folder the ids are in memory. The text is one document: <|begin_of_text|> and
// <|end_of_text|> around it where the tokenizer has them.
//
// Folder (0700) and files (0600) are private to their owner, whatever the umask. A file records its text and tokenizer, and
// carries a CRC-32C of its ids and one of its header. Every Open() verifies all of it (3 to 10 GB/s once it is in the page
// cache), so a rank maps the ids that were written even if the file was replaced after the launcher checked it. A file that fails
// verification, is accessible to other users, or is not a regular file is written anew.
//
// Thread-safety: const access from several threads is safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/files.h"
#include "core/data/tokenizer.h"
#include "proto/legoai/v1/dataset.pb.h"

namespace legoai::data {

class TokenFile {
 public:
  // `dataset` as from DatasetFacts(). `cache_folder` may be empty, and is created if missing; a symbolic link is followed.
  // Errors: a text that has changed since its digest was taken (FailedPrecondition), an id that the tokenizer does not have, a
  // folder of another user. Cancelled leaves nothing behind.
  static absl::StatusOr<TokenFile> Open(const v1::Dataset& dataset, const Tokenizer& tokenizer, const std::string& cache_folder,
                                        const checkpoint::Cancel& cancel = nullptr);

  // Valid as long as this object, also after a move.
  std::span<const int32_t> tokens() const { return tokens_; }
  // Why the existing cache file was replaced, as a sentence for people; empty if it was valid or there was none.
  const std::string& warning() const { return warning_; }

 private:
  struct Header;
  struct Wanted;
  TokenFile() = default;
  static absl::StatusOr<TokenFile> InMemory(absl::StatusOr<std::vector<int32_t>> ids, std::string warning);
  static absl::StatusOr<TokenFile> Map(const std::string& path, const Wanted& wanted, const checkpoint::Cancel& cancel);

  std::vector<int32_t> memory_;
  std::optional<checkpoint::MappedFile> file_;
  std::span<const int32_t> tokens_;
  std::string warning_;
};

}  // namespace legoai::data
