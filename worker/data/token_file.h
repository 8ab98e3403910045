// A dataset's text as token ids, tokenized once.
//
// With a cache folder the ids are kept there in a file named by the digests of text and tokenizer and mapped: the ranks of a host
// share one copy in memory, and a second run does not tokenize again. The file gets its name when it is whole, and has
// one of its own until then, so whoever makes it at the same time, on this host or another, does not disturb the others; one that
// was left half made is removed after an hour. Without a cache folder the ids are in memory. The text is one document:
// <|begin_of_text|> and <|end_of_text|> around it where the tokenizer has them. Thread-safety: const access from several threads
// is safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/dataset.pb.h"
#include "worker/checkpoint/files.h"
#include "worker/data/tokenizer.h"

namespace legoai::data {

class TokenFile {
 public:
  // `dataset` as DatasetFacts() gives it; its digest is not computed again. `cache_folder` may be empty, and is made if missing.
  // Cancelled leaves nothing there.
  static absl::StatusOr<TokenFile> Open(const v1::Dataset& dataset, const Tokenizer& tokenizer, const std::string& cache_folder,
                                        const checkpoint::Cancel& cancel = nullptr);

  // Valid as long as this object, also after it was moved.
  std::span<const int32_t> tokens() const { return tokens_; }

 private:
  TokenFile() = default;
  static std::optional<TokenFile> Map(const std::string& path);

  std::vector<int32_t> memory_;
  std::optional<checkpoint::MappedFile> file_;
  std::span<const int32_t> tokens_;
};

}  // namespace legoai::data
