// A dataset's text as token ids, tokenized once.
//
// With a cache folder the ids are kept there in a file named by the digests of text and tokenizer and mapped: the ranks of a host
// share one copy in memory, and a second run does not tokenize again. The file gets its name when it is whole, and has
// one of its own until then, so whoever makes it at the same time, on this host or another, does not disturb the others; one that
// was left half made is removed after an hour. Without a cache folder the ids are in memory. The text is one document:
// <|begin_of_text|> and <|end_of_text|> around it where the tokenizer has them.
//
// The folder is its owner's alone (0700), and so are the files (0600), whatever the umask. A file says of which text and
// tokenizer it is, and carries a CRC-32C of its ids and one of its header. Every Open() reads it whole (3 to 10 GB/s once the
// host has it in memory): the ids that a rank maps are those that were made, also if the file was exchanged after the launcher
// had looked at it. What does not hold, is open to other users, or is no regular file is not used, but made anew.
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
  // `dataset` as DatasetFacts() gives it. `cache_folder` may be empty, and is made if missing; a link to a folder is followed.
  // Errors: a text that has changed since its digest was taken (FailedPrecondition), an id that the tokenizer does not have, a
  // folder of another user. Cancelled leaves nothing there.
  static absl::StatusOr<TokenFile> Open(const v1::Dataset& dataset, const Tokenizer& tokenizer, const std::string& cache_folder,
                                        const checkpoint::Cancel& cancel = nullptr);

  // Valid as long as this object, also after it was moved.
  std::span<const int32_t> tokens() const { return tokens_; }
  // Why the cache that was there is not used but was made anew, as a sentence for people; empty: it holds, or there was none.
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
