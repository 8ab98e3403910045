// Text to token ids and back.
//
// "byte": 256 ids, one per byte and no others; every text has exactly one encoding, and decoding gives it back. A model for it
// needs a vocabulary of 256, which tensor parallelism divides. A tiktoken file (Llama 3's tokenizer.model): lines `base64 rank`,
// ranks 0 ... n-1. Text is split by Llama 3's pattern, each piece encoded by ranks; <|begin_of_text|> is n and <|end_of_text|>
// n + 1, as in Llama 3. A tokenizer.json of Hugging Face (tokenizer_json.h) of the kind of Llama 3, GPT-2, Qwen, Mistral or
// Gemma, or one that was exported here. Text that looks like a special token is ordinary text. But for bytes the text must be
// UTF-8. Thread-safety: const access from several threads is safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/files.h"
#include "core/data/tokenizer_json.h"

namespace legoai::data {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of the text, without begin or end tokens. Errors: text that is not UTF-8 where that is required; Cancelled.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, const checkpoint::Cancel& cancel = nullptr) const {
    return DoEncode(text, cancel);
  }
  // The bytes of the ids, one after the other. A text whose encoding has a space before it, as Mistral's has, is given with that
  // space; one that Qwen's encodes, in NFC. Ids that end within a character give bytes that are not UTF-8. Errors: an id outside
  // [0, VocabSize()).
  virtual absl::StatusOr<std::string> Decode(std::span<const int32_t> ids) const = 0;
  // Ids are below this.
  virtual int64_t VocabSize() const = 0;
  // The ids that a document begins and ends with; nothing if the tokenizer has no such id.
  virtual std::optional<int32_t> BeginOfText() const { return std::nullopt; }
  virtual std::optional<int32_t> EndOfText() const { return std::nullopt; }
  // Equal for equal tokenizers only: "byte", or the SHA-256 of the file.
  virtual const std::string& Identity() const = 0;
  // For writing it in another format.
  virtual Vocabulary GetVocabulary() const = 0;

 private:
  virtual absl::StatusOr<std::vector<int32_t>> DoEncode(std::string_view text, const checkpoint::Cancel& cancel) const = 0;
};

// `path` is "byte", a tiktoken file or a tokenizer.json (recipe field model.tokenizer_path, which errors name together with file
// and line).
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path);

// Error if the tokenizer has ids for which the model has no embedding.
absl::Status CheckFits(const Tokenizer& tokenizer, int64_t model_vocab_size);

// A tokenizer in the files that Hugging Face transformers reads beside a model. Thread-safety: a function of the file
// system.

// Writes tokenizer.json, tokenizer_config.json and generation_config.json into `folder`: AutoTokenizer gives a text the same ids
// as training, preceded by the document's begin token, and `generate` stops at its end token. `context`: the most tokens that the
// model takes.
absl::Status ExportTokenizer(const Tokenizer& tokenizer, int64_t context, const std::string& folder);

}  // namespace legoai::data
