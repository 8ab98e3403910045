#include "core/data/tokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/data/byte_pair_encoding.h"
#include "core/data/text_pieces.h"
#include "proto/errors.h"
#include "proto/read_file.h"
#include "proto/status.h"

namespace legoai::data {
namespace {

constexpr char kField[] = "model.tokenizer_path";
constexpr int64_t kMaxBytes = int64_t{256} << 20;  // of a tokenizer's file
constexpr size_t kAskEvery = size_t{1} << 16;      // bytes of text: whether to go on
class ByteTokenizer : public Tokenizer {
 public:
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (int32_t id : ids) {
      if (id < 0 || id > 255) return FieldError("token", absl::StrCat(id), "the byte tokenizer has the ids 0 to 255");
      text.push_back(static_cast<char>(id));
    }
    return text;
  }
  int64_t VocabSize() const override { return 256; }
  const std::string& Identity() const override { return identity_; }
  Vocabulary GetVocabulary() const override { return Bytes(); }

  static Vocabulary Bytes() {
    Vocabulary bytes;
    for (int byte = 0; byte < 256; ++byte) bytes.tokens.push_back({std::string(1, static_cast<char>(byte))});
    bytes.merges.emplace();
    return bytes;
  }

 private:
  absl::StatusOr<std::vector<int32_t>> DoEncode(std::string_view text, const checkpoint::Cancel& cancel) const override {
    std::vector<int32_t> ids;
    ids.reserve(text.size());
    while (!text.empty()) {
      RETURN_IF_ERROR(checkpoint::CheckNotCancelled(cancel));
      for (const char byte : text.substr(0, kAskEvery)) ids.push_back(static_cast<unsigned char>(byte));
      text.remove_prefix(std::min(text.size(), kAskEvery));
    }
    return ids;
  }

  std::string identity_ = "byte";
};

using Kind = Vocabulary::Kind;
using Prefix = Vocabulary::Prefix;
using Symbols = Vocabulary::Symbols;

// Bytes of the character that a text, which is UTF-8, begins with.
size_t FirstCharacter(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

// The bytes of two neighbouring characters as one number.
uint64_t JunctionOf(std::string_view left, std::string_view right) {
  uint64_t junction = 0;
  for (const std::string_view character : {left, right}) {
    uint64_t bytes = 0;
    for (const char byte : character) bytes = bytes << 8 | static_cast<unsigned char>(byte);
    junction = junction << 32 | bytes;
  }
  return junction;
}

// What a token's id means in a text.
std::string BytesOf(const Vocabulary& vocabulary, const Vocabulary::Token& token) {
  if (vocabulary.symbols == Symbols::kBytes || token.kind == Kind::kSpecial) return token.text;
  for (int byte = 0; byte < 256; ++byte) {
    if (token.text.size() == 6 && token.text == ByteToken(byte)) return std::string(1, static_cast<char>(byte));
  }
  std::string bytes;
  for (std::string_view rest = token.text; !rest.empty();) {
    const bool is_space = rest.starts_with(kShownSpace);
    bytes.push_back(is_space ? ' ' : rest[0]);
    rest.remove_prefix(is_space ? kShownSpace.size() : 1);
  }
  return bytes;
}

BytePairEncoding EncodingOf(const Vocabulary& vocabulary) {
  if (vocabulary.merges) return BytePairEncoding(*vocabulary.merges);
  std::vector<std::string> tokens;
  for (const Vocabulary::Token& token : vocabulary.tokens) {
    if (token.is_listed) tokens.push_back(token.text);
  }
  return BytePairEncoding::OfRanks(tokens);
}

class VocabularyTokenizer : public Tokenizer {
 public:
  VocabularyTokenizer(Vocabulary vocabulary, std::string identity, Splitter splitter)
      : vocabulary_(std::move(vocabulary)),
        identity_(std::move(identity)),
        splitter_(std::move(splitter)),
        encoding_(EncodingOf(vocabulary_)) {
    const auto& tokens = vocabulary_.tokens;
    for (int32_t id = 0; id < VocabSize(); ++id) {
      const Vocabulary::Token& token = tokens[id];
      bytes_.push_back(BytesOf(vocabulary_, token));
      if (token.kind == Kind::kAdded) added_.Add(token.text, id);
      if (token.is_listed && (token.kind == Kind::kOrdinary || vocabulary_.symbols == Symbols::kCharacters))
        ids_.emplace(token.text, id);
    }
    for (int byte = 0; byte < 256; ++byte) {
      const std::string plain(1, static_cast<char>(byte));
      const auto found = ids_.find(vocabulary_.symbols == Symbols::kBytes ? plain : ByteToken(byte));
      // "\t" of Gemma is no byte but a character.
      byte_ids_[byte] = found != ids_.end() ? found->second : ids_.at(plain);
    }
    if (vocabulary_.symbols == Symbols::kCharacters) FindJunctions();
  }

  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (int32_t id : ids) {
      if (id < 0 || id >= VocabSize())
        return FieldError("token", absl::StrCat(id), absl::StrCat("the tokenizer has ", VocabSize(), " ids"));
      text += bytes_[id];
    }
    return text;
  }
  int64_t VocabSize() const override { return static_cast<int64_t>(vocabulary_.tokens.size()); }
  std::optional<int32_t> BeginOfText() const override { return vocabulary_.begin; }
  std::optional<int32_t> EndOfText() const override { return vocabulary_.end; }
  const std::string& Identity() const override { return identity_; }
  Vocabulary GetVocabulary() const override { return vocabulary_; }

 private:
  absl::StatusOr<std::vector<int32_t>> DoEncode(std::string_view text, const checkpoint::Cancel& cancel) const override {
    std::vector<int32_t> ids;
    size_t until_asked = 0;  // bytes
    const auto go_on = [&](size_t size) {
      until_asked -= std::min(until_asked, size);
      if (until_asked > 0) return absl::OkStatus();
      until_asked = kAskEvery;
      return checkpoint::CheckNotCancelled(cancel);
    };
    RETURN_IF_ERROR(CheckUtf8(text));
    RETURN_IF_ERROR(added_.ForEachPart(
        text,
        [&](std::string_view part, bool is_first) {
          return vocabulary_.symbols == Symbols::kBytes ? EncodeBytes(part, go_on, &ids)
                                                        : EncodeCharacters(part, is_first, go_on, &ids);
        },
        [&](int32_t id) { ids.push_back(id); }));
    return ids;
  }

  template <class GoOn>
  absl::Status EncodeBytes(std::string_view text, const GoOn& go_on, std::vector<int32_t>* out) const {
    std::string composed;
    if (vocabulary_.is_composed && MayNotBeComposed(text)) {
      ASSIGN_OR_RETURN(composed, Compose(text));
      text = composed;
    }
    std::vector<int32_t> symbols;
    return splitter_.ForEachPiece(text, [&](std::string_view piece) {
      const auto whole = vocabulary_.whole_first ? ids_.find(piece) : ids_.end();
      symbols.clear();
      if (whole != ids_.end()) {  // most pieces are words that are tokens
        symbols.push_back(whole->second);
      } else {
        for (const char byte : piece) symbols.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
        encoding_.Join(&symbols);
      }
      out->insert(out->end(), symbols.begin(), symbols.end());
      return go_on(piece.size());
    });
  }

  // A text is one piece in theory. It may be cut between two characters at which no merge joins what ends with the one and begins
  // with the other.
  template <class GoOn>
  absl::Status EncodeCharacters(std::string_view text, bool is_first, const GoOn& go_on, std::vector<int32_t>* out) const {
    std::vector<int32_t> symbols;
    std::string_view last;
    const auto end_piece = [&] {
      encoding_.Join(&symbols);
      out->insert(out->end(), symbols.begin(), symbols.end());
      symbols.clear();
    };
    const auto add = [&](std::string_view character) {
      const auto found = ids_.find(character);
      if (found == ids_.end() || !junctions_.contains(JunctionOf(last, character))) end_piece();
      last = character;
      if (found != ids_.end()) {
        symbols.push_back(found->second);
        return;
      }
      for (const char byte : character) out->push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    };
    if (HasPrefix(text, is_first)) add(kShownSpace);
    while (!text.empty()) {
      const size_t size = FirstCharacter(text);
      const std::string_view character = text.substr(0, size);
      add(character == " " ? kShownSpace : character);
      text.remove_prefix(size);
      RETURN_IF_ERROR(go_on(size));
    }
    end_piece();
    return absl::OkStatus();
  }

  bool HasPrefix(std::string_view text, bool is_first) const {
    if (vocabulary_.prefix == Prefix::kEvenSo) return true;
    const bool has_one = text.starts_with(' ') || text.starts_with(kShownSpace);
    return !has_one && (vocabulary_.prefix == Prefix::kAlways || (vocabulary_.prefix == Prefix::kFirst && is_first));
  }

  // Where a merge's halves meet.
  void FindJunctions() {
    for (const Merge& merge : *vocabulary_.merges) {
      const std::string_view left = vocabulary_.tokens[merge.left].text, right = vocabulary_.tokens[merge.right].text;
      size_t last = left.size() - 1;
      while (last > 0 && (left[last] & 0xc0) == 0x80) --last;
      junctions_.insert(JunctionOf(left.substr(last), right.substr(0, FirstCharacter(right))));
    }
  }

  Vocabulary vocabulary_;
  std::string identity_;
  Splitter splitter_;
  BytePairEncoding encoding_;
  AddedTokens added_;
  std::vector<std::string> bytes_;                      // by id
  std::unordered_map<std::string_view, int32_t> ids_;   // of what is listed, views of vocabulary_
  std::array<int32_t, 256> byte_ids_ = {};
  std::unordered_set<uint64_t> junctions_;  // JunctionOf
};

// One `base64 rank` line; its rank must be the number of lines before it that are not empty.
absl::StatusOr<std::string> ParseLine(const std::string& line, size_t rank) {
  const size_t space = line.find(' ');
  std::string token;
  int64_t number = -1;
  if (space == std::string::npos || !absl::Base64Unescape(line.substr(0, space), &token) || token.empty() ||
      !absl::SimpleAtoi(line.substr(space + 1), &number))
    return absl::InvalidArgumentError("not `base64 rank`; give a tiktoken file");
  if (number != static_cast<int64_t>(rank))
    return absl::InvalidArgumentError(absl::StrCat("rank ", number, " where ", rank, " is due"));
  return token;
}

absl::StatusOr<std::vector<std::string>> ParseTiktoken(const std::string& path, std::string_view text) {
  std::vector<std::string> tokens;
  std::unordered_map<std::string, size_t> line_of;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    const std::string where = absl::StrCat(path, ":", number);
    absl::StatusOr<std::string> token = ParseLine(line, tokens.size());
    if (!token.ok()) return FieldError(kField, where, std::string(token.status().message()));
    const auto [earlier, is_new] = line_of.emplace(*token, number);
    if (!is_new) return FieldError(kField, where, absl::StrCat("the same token as on line ", earlier->second));
    tokens.push_back(*std::move(token));
  }
  for (int byte = 0; byte < 256; ++byte)
    if (!line_of.contains(std::string(1, static_cast<char>(byte))))
      return FieldError(kField, path,
                        absl::StrCat("has no token for byte ", byte, ", so not every text can be encoded; give a tiktoken file"));
  return tokens;
}

absl::StatusOr<Vocabulary> ReadTiktoken(const std::string& path, std::string_view text) {
  ASSIGN_OR_RETURN(std::vector<std::string> tokens, ParseTiktoken(path, text));
  Vocabulary vocabulary;
  vocabulary.split = Vocabulary::Split::kLlama3;
  vocabulary.whole_first = true;
  vocabulary.begin = static_cast<int32_t>(tokens.size());
  vocabulary.end = *vocabulary.begin + 1;
  for (std::string& bytes : tokens) vocabulary.tokens.push_back({std::move(bytes)});
  for (const char* name : {"<|begin_of_text|>", "<|end_of_text|>"}) vocabulary.tokens.push_back({name, Kind::kSpecial, false});
  return vocabulary;
}

absl::StatusOr<Vocabulary> ReadTokenizerJson(const std::string& path, std::string_view text) {
  absl::StatusOr<Vocabulary> vocabulary = ParseTokenizerJson(text);
  if (vocabulary.ok()) return vocabulary;
  const v1::FieldViolation fault = GetFieldViolation(vocabulary.status()).value_or(v1::FieldViolation());
  const std::string value = fault.value().empty() ? "" : absl::StrCat(" = ", fault.value());
  return FieldError(kField, path, absl::StrCat(fault.field(), value, ": ", fault.remedy()));
}

using Json = nlohmann::ordered_json;

std::string TokenizerConfig(const Vocabulary& vocabulary, int64_t context) {
  Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"model_max_length", context},
               {"model_input_names", {"input_ids", "attention_mask"}},
               {"clean_up_tokenization_spaces", false}};
  if (vocabulary.begin) json["bos_token"] = vocabulary.tokens[*vocabulary.begin].text;
  if (vocabulary.end) json["eos_token"] = vocabulary.tokens[*vocabulary.end].text;
  return json.dump(2) + "\n";
}

std::string GenerationConfig(const Vocabulary& vocabulary) {
  Json json = Json::object();
  if (vocabulary.begin) json["bos_token_id"] = *vocabulary.begin;
  if (vocabulary.end) json["eos_token_id"] = *vocabulary.end;
  return json.dump(2) + "\n";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path) {
  if (path == "byte") return std::make_unique<ByteTokenizer>();
  ASSIGN_OR_RETURN(std::string text, ReadFileOf(kField, path, kMaxBytes, "give 'byte', a tiktoken file or a tokenizer.json"));
  const bool is_json = absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{");
  ASSIGN_OR_RETURN(Vocabulary vocabulary, is_json ? ReadTokenizerJson(path, text) : ReadTiktoken(path, text));
  // An export of the byte tokenizer is the byte tokenizer.
  if (vocabulary == ByteTokenizer::Bytes()) return std::make_unique<ByteTokenizer>();
  ASSIGN_OR_RETURN(Splitter splitter, Splitter::Create(vocabulary.split));
  return std::make_unique<VocabularyTokenizer>(std::move(vocabulary), checkpoint::Sha256(text), std::move(splitter));
}

absl::Status CheckFits(const Tokenizer& tokenizer, int64_t model_vocab_size) {
  if (tokenizer.VocabSize() <= model_vocab_size) return absl::OkStatus();
  return FieldError(kField, absl::StrCat(tokenizer.VocabSize(), " ids"),
                    absl::StrCat("more than the model's vocab_size of ", model_vocab_size,
                                 "; choose a smaller tokenizer, or a model with a larger vocabulary"));
}

absl::Status ExportTokenizer(const Tokenizer& tokenizer, int64_t context, const std::string& folder) {
  const Vocabulary vocabulary = tokenizer.GetVocabulary();
  RETURN_IF_ERROR(checkpoint::WriteFile(folder + "/tokenizer.json", WriteTokenizerJson(vocabulary)));
  RETURN_IF_ERROR(checkpoint::WriteFile(folder + "/tokenizer_config.json", TokenizerConfig(vocabulary, context)));
  return checkpoint::WriteFile(folder + "/generation_config.json", GenerationConfig(vocabulary));
}

}  // namespace legoai::data
