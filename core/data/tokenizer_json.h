// A tokenizer as tokenizer.json, the form of Hugging Face's tokenizers library: byte-level BPE. Thread-safety: pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace legoai::data {

// What a tokenizer is made of.
struct Vocabulary {
  // How a text is cut into the pieces that are encoded one by one: not at all, or by the pattern of Llama 3 or GPT-2.
  enum class Split { kNone, kLlama3, kGpt2 };
  Split split = Split::kNone;
  std::vector<std::string> tokens;    // the bytes of ids 0 ... n-1; of two neighbours that can be joined, the lower id goes first
  std::vector<std::string> special;   // names of the ids from n on, which no text has
  std::optional<int32_t> begin, end;  // ids that a document begins and ends with
  bool operator==(const Vocabulary&) const = default;
};

// The regular expression of a split, as tiktoken and tokenizers have it; empty for kNone.
std::string_view SplitPattern(Vocabulary::Split split);

// Merges are made of ranks as transformers' converter of tiktoken files makes them: for a token every way to cut it in two that
// leaves tokens, in the order of ids.
std::string WriteTokenizerJson(const Vocabulary& vocabulary);

// Read is byte-level BPE with one of these splits and merges in the order of ids, as Llama 3, GPT-2 and WriteTokenizerJson have
// it; anything else that would give other ids is refused. Errors: FieldError with field "tokenizer.json: KEY".
absl::StatusOr<Vocabulary> ParseTokenizerJson(std::string_view text);

}  // namespace legoai::data
