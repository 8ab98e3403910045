// A tokenizer as tokenizer.json, the form of Hugging Face's tokenizers library. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/data/byte_pair_encoding.h"

namespace legoai::data {

// What a tokenizer is made of.
struct Vocabulary {
  // What a text is before anything is joined: its bytes, or, as sentencepiece has it, its characters, with U+2581 for a space,
  // and the bytes of those characters that are no tokens.
  enum class Symbols { kBytes, kCharacters };
  // Of kBytes: how a text is cut into the pieces that are encoded one by one: not at all, or by the pattern of a family.
  enum class Split { kNone, kLlama3, kGpt2, kQwen2 };
  // Of kCharacters: whether a space is put before a text that does not begin with one: never; before a text; before a text and
  // after each added token (kAlways); so, and also where there is one already (kEvenSo).
  enum class Prefix { kNever, kFirst, kAlways, kEvenSo };
  // Added tokens are found in a text before anything else; no text has special ones.
  enum class Kind { kOrdinary, kAdded, kSpecial };
  struct Token {
    std::string text;  // bytes; of kCharacters as listed, "<0x0A>" and U+2581 among them; of an added one its name
    Kind kind = Kind::kOrdinary;
    bool is_listed = true;  // in the vocabulary that merges make; added tokens may be beside it
    bool operator==(const Token&) const = default;
  };

  Symbols symbols = Symbols::kBytes;
  Split split = Split::kNone;
  Prefix prefix = Prefix::kNever;
  bool is_composed = false;  // a text is normalized to Unicode's NFC first
  bool whole_first = false;  // a piece that is a token is that token, whatever merges say
  std::vector<Token> tokens;
  std::optional<std::vector<Merge>> merges;  // none: whatever makes the token with the lowest id goes first, as in tiktoken
  std::optional<int32_t> begin, end;         // ids that a document begins and ends with
  bool operator==(const Vocabulary&) const = default;
};

// The regular expression of a split, as tiktoken and tokenizers have it; empty for kNone.
std::string_view SplitPattern(Vocabulary::Split split);

// The space of sentencepiece, U+2581, and the token that stands for a byte ("<0x0A>").
inline constexpr std::string_view kShownSpace = "\xe2\x96\x81";
std::string ByteToken(unsigned char byte);

// Where there are no merges they are made of ranks as transformers' converter of tiktoken files makes them: for a token every way
// to cut it in two that leaves tokens, in the order of ids.
std::string WriteTokenizerJson(const Vocabulary& vocabulary);

// Reads byte-level BPE as Llama 3, GPT-2, Qwen 2.5, Qwen 3 and WriteTokenizerJson have it, and BPE over characters with bytes
// for the others as Llama 2, Mistral and the first Gemma have it; refuses anything else that would give other ids. Errors:
// FieldError with field "tokenizer.json: KEY".
absl::StatusOr<Vocabulary> ParseTokenizerJson(std::string_view text);

}  // namespace legoai::data
