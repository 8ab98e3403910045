#include "core/data/tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/files.h"
#include "core/data/byte_pair_encoding.h"
#include "proto/errors.h"
#include "proto/read_file.h"
#include "proto/status.h"

namespace legoai::data {
namespace {

constexpr char kField[] = "model.tokenizer_path";
constexpr int64_t kMaxBytes = int64_t{256} << 20;  // of a tokenizer's file
constexpr size_t kAskEvery = size_t{1} << 16;      // bytes of text: whether to go on
// White space is spelled out as Unicode's White_Space property: PCRE2's own \s counts U+180E in.
constexpr char kSpace[] = R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// `pattern` for PCRE2: \s and \S within and without brackets.
std::string WithUnicodeSpace(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const char escaped = c == '\\' && i + 1 < pattern.size() ? pattern[++i] : '\0';
    if (escaped == 's') {
      out += in_class ? std::string(kSpace) : absl::StrCat("[", kSpace, "]");
    } else if (escaped == 'S') {
      out += absl::StrCat("[^", kSpace, "]");
    } else if (escaped != '\0') {
      out += {c, escaped};
    } else {
      in_class = c == '[' || (in_class && c != ']');
      out += c;
    }
  }
  return out;
}

std::string Message(int pcre2_error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(pcre2_error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

template <typename T, void (*kFree)(T*)>
struct Deleter {
  void operator()(T* pointer) const { kFree(pointer); }
};
using Code = std::unique_ptr<pcre2_code, Deleter<pcre2_code, pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data, pcre2_match_data_free>>;

// Cuts a text into the pieces that are encoded one by one. Every character is in one.
class Splitter {
 public:
  static absl::StatusOr<Splitter> Create(Vocabulary::Split split) {
    // Any text is one piece of a vocabulary without a split; it must be UTF-8 all the same.
    const std::string pattern = split == Vocabulary::Split::kNone ? "(?s).+" : WithUnicodeSpace(SplitPattern(split));
    int error = 0;
    PCRE2_SIZE at = 0;
    Splitter splitter;
    splitter.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.c_str()), PCRE2_ZERO_TERMINATED,
                                       PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr));
    if (!splitter.code_) return absl::InternalError(absl::StrCat("split pattern: ", Message(error), " at ", at));
    pcre2_jit_compile(splitter.code_.get(), PCRE2_JIT_COMPLETE);  // where there is none, matching is only slower
    return splitter;
  }

  template <typename Visit>
  absl::Status ForEachPiece(std::string_view text, const Visit& visit) const {
    const MatchData match(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
    uint32_t options = 0;  // the first call checks that all of the text is UTF-8
    for (size_t at = 0; at < text.size(); at = range[1], options = PCRE2_NO_UTF_CHECK) {
      const int result =
          pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, options, match.get(), nullptr);
      if (result < 0 && options == 0)
        return FieldError("training.dataset_path", absl::StrCat("byte ", pcre2_get_startchar(match.get())),
                          absl::StrCat("not UTF-8 (", Message(result), "); convert the text, or use the byte tokenizer"));
      if (result < 0) return absl::InternalError(absl::StrCat("splitting the text at byte ", at, ": ", Message(result)));
      RETURN_IF_ERROR(visit(text.substr(range[0], range[1] - range[0])));
    }
    return absl::OkStatus();
  }

 private:
  Code code_;
};

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
    for (int byte = 0; byte < 256; ++byte) bytes.tokens.emplace_back(1, static_cast<char>(byte));
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

class RankTokenizer : public Tokenizer {
 public:
  RankTokenizer(Vocabulary vocabulary, std::string identity, Splitter splitter)
      : split_(vocabulary.split),
        special_(std::move(vocabulary.special)),
        begin_(vocabulary.begin),
        end_(vocabulary.end),
        encoding_(std::move(vocabulary.tokens)),
        identity_(std::move(identity)),
        splitter_(std::move(splitter)) {}

  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (int32_t id : ids) {
      if (id < 0 || id >= VocabSize())
        return FieldError("token", absl::StrCat(id), absl::StrCat("the tokenizer has ", VocabSize(), " ids"));
      text += id < Tokens() ? encoding_.tokens()[id] : special_[id - Tokens()];
    }
    return text;
  }
  int64_t VocabSize() const override { return Tokens() + static_cast<int64_t>(special_.size()); }
  std::optional<int32_t> BeginOfText() const override { return begin_; }
  std::optional<int32_t> EndOfText() const override { return end_; }
  const std::string& Identity() const override { return identity_; }
  Vocabulary GetVocabulary() const override { return {split_, encoding_.tokens(), special_, begin_, end_}; }

 private:
  absl::StatusOr<std::vector<int32_t>> DoEncode(std::string_view text, const checkpoint::Cancel& cancel) const override {
    std::vector<int32_t> ids;
    size_t until_asked = 0;  // bytes
    RETURN_IF_ERROR(splitter_.ForEachPiece(text, [&](std::string_view piece) {
      encoding_.Encode(piece, ids);
      until_asked -= std::min(until_asked, piece.size());
      if (until_asked > 0) return absl::OkStatus();
      until_asked = kAskEvery;
      return checkpoint::CheckNotCancelled(cancel);
    }));
    return ids;
  }

  int32_t Tokens() const { return static_cast<int32_t>(encoding_.tokens().size()); }

  Vocabulary::Split split_;
  std::vector<std::string> special_;
  std::optional<int32_t> begin_, end_;
  BytePairEncoding encoding_;
  std::string identity_;
  Splitter splitter_;
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
  const auto count = static_cast<int32_t>(tokens.size());
  return Vocabulary{Vocabulary::Split::kLlama3, std::move(tokens), {"<|begin_of_text|>", "<|end_of_text|>"}, count, count + 1};
}

absl::StatusOr<Vocabulary> ReadTokenizerJson(const std::string& path, std::string_view text) {
  absl::StatusOr<Vocabulary> vocabulary = ParseTokenizerJson(text);
  if (vocabulary.ok()) return vocabulary;
  const v1::FieldViolation fault = GetFieldViolation(vocabulary.status()).value_or(v1::FieldViolation());
  const std::string value = fault.value().empty() ? "" : absl::StrCat(" = ", fault.value());
  return FieldError(kField, path, absl::StrCat(fault.field(), value, ": ", fault.remedy()));
}

using Json = nlohmann::ordered_json;

std::string NameOf(const Vocabulary& vocabulary, int32_t id) {
  return vocabulary.special[static_cast<size_t>(id) - vocabulary.tokens.size()];
}

std::string TokenizerConfig(const Vocabulary& vocabulary, int64_t context) {
  Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"model_max_length", context},
               {"model_input_names", {"input_ids", "attention_mask"}},
               {"clean_up_tokenization_spaces", false}};
  if (vocabulary.begin) json["bos_token"] = NameOf(vocabulary, *vocabulary.begin);
  if (vocabulary.end) json["eos_token"] = NameOf(vocabulary, *vocabulary.end);
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
  return std::make_unique<RankTokenizer>(std::move(vocabulary), checkpoint::Sha256(text), std::move(splitter));
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
