// How a text is cut before it is encoded: at tokens that are looked for as they are, into the pieces of a split, and Unicode's
// normal form C. Thread-safety: const access from several threads is safe.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/data/tokenizer_json.h"

namespace legoai::data {

// Error (field training.dataset_path): where the text is not UTF-8.
absl::Status CheckUtf8(std::string_view text);

// The text, which is UTF-8, in NFC. Where MayNotBeComposed says no, it is so already.
absl::StatusOr<std::string> Compose(std::string_view text);
bool MayNotBeComposed(std::string_view text);

// Cuts a text, which is UTF-8, into the pieces that are encoded one by one. Every character is in one.
class Splitter {
 public:
  static absl::StatusOr<Splitter> Create(Vocabulary::Split split);
  Splitter(Splitter&&) noexcept;
  ~Splitter();

  absl::Status ForEachPiece(std::string_view text, const std::function<absl::Status(std::string_view piece)>& visit) const;

 private:
  struct Pattern;
  explicit Splitter(std::unique_ptr<Pattern> pattern);
  std::unique_ptr<Pattern> pattern_;
};

// Tokens that a text is searched for before anything else: the leftmost, and of those that begin there the longest.
class AddedTokens {
 public:
  void Add(std::string_view text, int32_t id);

  // What lies between, unless it is empty, with whether it begins the text, and the tokens, in their order.
  absl::Status ForEachPart(std::string_view text, const std::function<absl::Status(std::string_view part, bool is_first)>& visit,
                           const std::function<void(int32_t id)>& found) const;

 private:
  std::array<std::vector<std::pair<std::string, int32_t>>, 256> by_first_byte_;  // the longest first
};

}  // namespace legoai::data
