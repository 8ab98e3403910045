#include "core/data/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::data {
namespace {

using Json = nlohmann::json;  // its objects are maps: a vocabulary has 100,000 keys
using Split = Vocabulary::Split;
using Symbols = Vocabulary::Symbols;
using Prefix = Vocabulary::Prefix;
using Kind = Vocabulary::Kind;

constexpr char kLlama3Pattern[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                                  R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen2Pattern[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                                 R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kGpt2Pattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// tokenizer.json shows bytes as characters: those that print as themselves, the others as the characters from U+0100 on.
class ByteCharacters {
 public:
  static const ByteCharacters& Get() {
    static const auto* const one = new ByteCharacters();
    return *one;
  }

  std::string Show(std::string_view bytes) const {
    std::string shown;
    for (const char byte : bytes) shown += characters_[static_cast<unsigned char>(byte)];
    return shown;
  }

  // Nothing where a character stands for no byte.
  std::optional<std::string> Read(std::string_view shown) const {
    std::string bytes;
    while (!shown.empty()) {
      const size_t size = (shown[0] & 0x80) == 0 ? 1 : 2;
      const auto found = bytes_.find(std::string(shown.substr(0, size)));
      if (found == bytes_.end()) return std::nullopt;
      bytes.push_back(found->second);
      shown.remove_prefix(size);
    }
    return bytes;
  }

 private:
  ByteCharacters() {
    unsigned next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool prints = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
      const unsigned code = prints ? byte : next++;
      std::string& character = characters_[byte];
      if (code < 0x80) {
        character.push_back(static_cast<char>(code));
      } else {
        character.push_back(static_cast<char>(0xc0 | (code >> 6)));
        character.push_back(static_cast<char>(0x80 | (code & 0x3f)));
      }
      bytes_.emplace(character, static_cast<char>(byte));
    }
  }

  std::array<std::string, 256> characters_;
  std::unordered_map<std::string, char> bytes_;
};

Json ByteLevel(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json Replace(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", std::string(from)}}}, {"content", std::string(to)}};
}

Json Sequence(const char* parts, Json list) { return {{"type", "Sequence"}, {parts, std::move(list)}}; }

Json Metaspace(Prefix prefix) {
  return {{"type", "Metaspace"},
          {"replacement", std::string(kShownSpace)},
          {"prepend_scheme", prefix == Prefix::kFirst ? "first" : "always"},
          {"split", false}};
}

Json Normalizer(const Vocabulary& vocabulary) {
  if (vocabulary.is_composed) return {{"type", "NFC"}};
  if (vocabulary.symbols == Symbols::kBytes) return nullptr;
  if (vocabulary.prefix == Prefix::kNever) return Replace(" ", kShownSpace);
  if (vocabulary.prefix != Prefix::kEvenSo) return nullptr;  // the pre-tokenizer does it
  const Json prepend = {{"type", "Prepend"}, {"prepend", std::string(kShownSpace)}};
  return Sequence("normalizers", Json::array({prepend, Replace(" ", kShownSpace)}));
}

Json PreTokenizer(const Vocabulary& vocabulary) {
  if (vocabulary.symbols == Symbols::kCharacters) {
    const bool is_normalizers = vocabulary.prefix == Prefix::kNever || vocabulary.prefix == Prefix::kEvenSo;
    return is_normalizers ? Json() : Metaspace(vocabulary.prefix);
  }
  const Split split = vocabulary.split;
  if (split == Split::kNone || split == Split::kGpt2) return ByteLevel(/*use_regex=*/split == Split::kGpt2);
  const Json cut = {
      {"type", "Split"}, {"pattern", {{"Regex", std::string(SplitPattern(split))}}}, {"behavior", "Isolated"}, {"invert", false}};
  return Sequence("pretokenizers", Json::array({cut, ByteLevel(false)}));
}

Json Decoder(const Vocabulary& vocabulary) {
  if (vocabulary.symbols == Symbols::kBytes) return ByteLevel(/*use_regex=*/true);
  Json list = Json::array({Replace(kShownSpace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (vocabulary.prefix != Prefix::kNever) list.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return Sequence("decoders", std::move(list));
}

// Puts the id that a document begins with before a text.
Json PostProcessor(const Vocabulary& vocabulary) {
  if (!vocabulary.begin) return nullptr;
  const std::string& name = vocabulary.tokens[*vocabulary.begin].text;
  const auto special = [&](int type) -> Json { return {{"SpecialToken", {{"id", name}, {"type_id", type}}}}; };
  const auto sequence = [](const char* id, int type) -> Json { return {{"Sequence", {{"id", id}, {"type_id", type}}}}; };
  const Json token = {{"id", name}, {"ids", Json::array({*vocabulary.begin})}, {"tokens", Json::array({name})}};
  return {{"type", "TemplateProcessing"},
          {"single", Json::array({special(0), sequence("A", 0)})},
          {"pair", Json::array({special(0), sequence("A", 0), special(1), sequence("B", 1)})},
          {"special_tokens", {{name, token}}}};
}

absl::Status Fault(const std::string& key, const std::string& value, const std::string& remedy) {
  return FieldError("tokenizer.json: " + key, value, remedy);
}

// Of a value that is shown; one that is no text may be nested as deep as the file is long.
std::string Text(const Json& json) { return json.is_string() ? json.get<std::string>() : json.type_name(); }

constexpr char kSupported[] =
    "is not supported: BPE of bytes as Llama 3, GPT-2 and Qwen have it is, and BPE of characters with bytes for the others as "
    "Mistral and the first Gemma have it; give such a file, or a tiktoken file";

// The member of an object; null where there is none.
const Json& At(const Json& json, const char* key) {
  static const auto* const null = new Json();
  const auto found = json.is_object() ? json.find(key) : json.end();
  return json.is_object() && found != json.end() ? *found : *null;
}

bool IsByteLevel(const Json& json, bool use_regex) {
  const Json& regex = At(json, "use_regex");
  return At(json, "type") == "ByteLevel" && At(json, "add_prefix_space") == false &&
         (regex.is_null() ? true : regex == true) == use_regex;
}

std::optional<Split> ReadSplit(const Json& json) {
  if (IsByteLevel(json, true)) return Split::kGpt2;
  if (IsByteLevel(json, false)) return Split::kNone;
  const Json& parts = At(json, "pretokenizers");
  if (At(json, "type") != "Sequence" || !parts.is_array() || parts.size() != 2 || !IsByteLevel(parts[1], false)) return {};
  const Json& cut = parts[0];
  if (At(cut, "type") != "Split" || At(cut, "behavior") != "Isolated" || At(cut, "invert") == true) return {};
  for (const Split split : {Split::kLlama3, Split::kGpt2, Split::kQwen2}) {
    if (At(At(cut, "pattern"), "Regex") == std::string(SplitPattern(split))) return split;
  }
  return {};
}

bool IsReplace(const Json& json) {
  return At(json, "type") == "Replace" && At(At(json, "pattern"), "String") == " " && At(json, "content") == kShownSpace;
}

bool IsPrependAndReplace(const Json& json) {
  const Json& parts = At(json, "normalizers");
  return At(json, "type") == "Sequence" && parts.is_array() && parts.size() == 2 && At(parts[0], "type") == "Prepend" &&
         At(parts[0], "prepend") == kShownSpace && IsReplace(parts[1]);
}

// Who puts the space of sentencepiece into a text, normalizer or pre-tokenizer, and whether one before it.
absl::Status ReadPrefix(const Json& normalizer, const Json& pre_tokenizer, Vocabulary* out) {
  if (!normalizer.is_null()) {
    const bool is_replace = IsReplace(normalizer);
    if (!is_replace && !IsPrependAndReplace(normalizer)) return Fault("normalizer", Text(At(normalizer, "type")), kSupported);
    // Gemma's cuts at spaces, of which the normalizer has left none.
    const bool finds_nothing = At(pre_tokenizer, "type") == "Split" && At(At(pre_tokenizer, "pattern"), "String") == " " &&
                               At(pre_tokenizer, "invert") != true;
    if (!pre_tokenizer.is_null() && !finds_nothing)
      return Fault("pre_tokenizer", Text(At(pre_tokenizer, "type")), kSupported);
    out->prefix = is_replace ? Prefix::kNever : Prefix::kEvenSo;
    return absl::OkStatus();
  }
  const Json& scheme = At(pre_tokenizer, "prepend_scheme");
  const bool is_known = scheme == "first" || scheme == "always" || scheme == "never";
  if (At(pre_tokenizer, "type") != "Metaspace" || At(pre_tokenizer, "replacement") != kShownSpace || !is_known ||
      At(pre_tokenizer, "split") != false)
    return Fault("pre_tokenizer", Text(At(pre_tokenizer, "type")), kSupported);
  out->prefix = scheme == "first" ? Prefix::kFirst : scheme == "always" ? Prefix::kAlways : Prefix::kNever;
  return absl::OkStatus();
}

absl::Status ReadSymbols(const Json& json, Vocabulary* out) {
  const Json &normalizer = At(json, "normalizer"), &pre_tokenizer = At(json, "pre_tokenizer");
  if (At(At(json, "model"), "byte_fallback") == true) {
    out->symbols = Symbols::kCharacters;
    // A piece is the whole text there, and is cut where no merge goes on.
    if (out->whole_first) return Fault("model.ignore_merges", "true", "is not supported beside byte_fallback");
    return ReadPrefix(normalizer, pre_tokenizer, out);
  }
  out->is_composed = At(normalizer, "type") == "NFC";
  if (!normalizer.is_null() && !out->is_composed) return Fault("normalizer", Text(At(normalizer, "type")), kSupported);
  const auto split = ReadSplit(pre_tokenizer);
  if (!split) return Fault("pre_tokenizer", Text(At(pre_tokenizer, "type")), kSupported);
  out->split = *split;
  return absl::OkStatus();
}

// What is added to the vocabulary, or is in it and found before anything else, by id.
absl::StatusOr<std::map<int64_t, Vocabulary::Token>> ReadAdded(const Json& list, bool has_normalizer) {
  std::map<int64_t, Vocabulary::Token> added;
  if (!list.is_null() && !list.is_array()) return Fault("added_tokens", "", "must be a list");
  for (const Json& one : list) {
    const Json &id = At(one, "id"), &name = At(one, "content");
    if (!id.is_number_integer() || !name.is_string() || name.get_ref<const std::string&>().empty())
      return Fault("added_tokens", "", "each needs an id and its content");
    const std::string text = name.get<std::string>();
    const bool is_special = At(one, "special") == true;
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      if (!is_special && At(one, key) == true)
        return Fault("added_tokens", text, absl::StrCat("has ", key, ", which is not supported but of special tokens"));
    }
    if (!is_special && has_normalizer && At(one, "normalized") != false)
      return Fault("added_tokens", text, "is normalized, which is not supported but of special tokens");
    if (!added.emplace(id.get<int64_t>(), Vocabulary::Token{text, is_special ? Kind::kSpecial : Kind::kAdded, false}).second)
      return Fault("added_tokens", text, "has the id of another");
  }
  return added;
}

absl::Status CheckBytes(const Vocabulary& vocabulary) {
  std::unordered_set<std::string_view> listed;
  for (const Vocabulary::Token& token : vocabulary.tokens) {
    const bool may_be_symbol = token.kind == Kind::kOrdinary || vocabulary.symbols == Symbols::kCharacters;
    if (token.is_listed && may_be_symbol) listed.insert(token.text);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const std::string character(1, static_cast<char>(byte));
    const bool is_there = vocabulary.symbols == Symbols::kBytes
                              ? listed.contains(character)
                              : listed.contains(ByteToken(byte)) || (byte < 0x80 && listed.contains(character));
    if (!is_there)
      return Fault("model.vocab", "", absl::StrCat("has no token for byte ", byte, ", so not every text can be encoded"));
  }
  return absl::OkStatus();
}

// Every id from 0 on is one of the vocabulary or of what is added.
absl::Status ReadTokens(const Json& json, Vocabulary* out) {
  const Json& vocab = At(At(json, "model"), "vocab");
  if (!vocab.is_object() || vocab.empty()) return Fault("model.vocab", "", "must be an object of tokens");
  ASSIGN_OR_RETURN(auto all, ReadAdded(At(json, "added_tokens"), !At(json, "normalizer").is_null()));
  std::unordered_set<std::string> added;
  for (const auto& [id, token] : all) added.insert(token.text);
  for (const auto& [shown, number] : vocab.items()) {
    if (!number.is_number_integer()) return Fault("model.vocab", shown, "must have a whole number as its id");
    const auto id = number.get<int64_t>();
    if (added.contains(shown)) {
      const auto found = all.find(id);
      if (found == all.end() || found->second.text != shown) return Fault("added_tokens", shown, "has another id in model.vocab");
      found->second.is_listed = true;
      continue;
    }
    std::optional<std::string> text = shown;
    if (out->symbols == Symbols::kBytes) text = ByteCharacters::Get().Read(shown);
    if (!text || text->empty()) return Fault("model.vocab", shown, "has a character that stands for no byte");
    if (!all.emplace(id, Vocabulary::Token{*std::move(text)}).second)
      return Fault("model.vocab", shown, "has the id of another token");
  }
  const auto count = static_cast<int64_t>(all.size());
  if (all.begin()->first != 0 || all.rbegin()->first != count - 1)
    return Fault("model.vocab", "", "must have, with added_tokens, the ids from 0 on without a gap");
  for (auto& [id, token] : all) out->tokens.push_back(std::move(token));
  return CheckBytes(*out);
}

// "a b", or since 2024 ["a", "b"].
std::optional<std::pair<std::string, std::string>> ReadMerge(const Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
  if (!merge.is_string()) return {};
  const std::string text = merge.get<std::string>();
  const size_t space = text.find(' ');
  if (space == std::string::npos) return {};
  return std::pair(text.substr(0, space), text.substr(space + 1));
}

// As the vocabulary shows it.
std::string Shown(const Vocabulary& vocabulary, const Vocabulary::Token& token) {
  const bool as_bytes = vocabulary.symbols == Symbols::kBytes && token.kind == Kind::kOrdinary;
  return as_bytes ? ByteCharacters::Get().Show(token.text) : token.text;
}

absl::Status ReadMerges(const Json& merges, Vocabulary* out) {
  if (!merges.is_array()) return Fault("model.merges", "", "must be a list");
  std::unordered_map<std::string, int32_t> ids;
  for (size_t id = 0; id < out->tokens.size(); ++id) {
    if (out->tokens[id].is_listed) ids.emplace(Shown(*out, out->tokens[id]), static_cast<int32_t>(id));
  }
  std::unordered_set<std::string> bytes;
  for (int byte = 0; byte < 256 && out->symbols == Symbols::kCharacters; ++byte) bytes.insert(ByteToken(byte));
  out->merges.emplace();
  for (const Json& one : merges) {
    const auto merge = ReadMerge(one);
    const std::string joined = merge ? merge->first + merge->second : Text(one);
    const auto made = ids.find(joined);
    const auto left = merge ? ids.find(merge->first) : ids.end(), right = merge ? ids.find(merge->second) : ids.end();
    if (made == ids.end() || left == ids.end() || right == ids.end() || merge->first.empty() || merge->second.empty())
      return Fault("model.merges", joined, "does not make a token of two others");
    // Else a text could not be cut at each character that is no token.
    if (bytes.contains(merge->first) || bytes.contains(merge->second))
      return Fault("model.merges", joined, "joins a byte, which is not supported");
    out->merges->push_back({left->second, right->second, made->second});
  }
  return absl::OkStatus();
}

absl::Status CheckModel(const Json& model) {
  if (const Json& type = At(model, "type"); !type.is_null() && type != "BPE") return Fault("model.type", Text(type), kSupported);
  if (const Json& dropout = At(model, "dropout"); !dropout.is_null() && dropout != 0)
    return Fault("model.dropout", Text(dropout), "is not supported: a text has one encoding");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const Json& affix = At(model, key); !affix.is_null() && affix != "")
      return Fault(absl::StrCat("model.", key), Text(affix), kSupported);
  }
  return absl::OkStatus();
}

// The special token that a text begins with, of TemplateProcessing alone or in a sequence.
std::optional<std::string> FirstSpecial(const Json& json) {
  const Json& processors = At(json, "processors");
  if (processors.is_array()) {
    for (const Json& one : processors) {
      if (const auto name = FirstSpecial(one)) return name;
    }
  }
  const Json& single = At(json, "single");
  if (!single.is_array() || single.empty()) return {};
  const Json& name = At(At(single[0], "SpecialToken"), "id");
  return name.is_string() ? std::optional(name.get<std::string>()) : std::nullopt;
}

std::optional<int32_t> IdOf(const Vocabulary& vocabulary, const std::string& name) {
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const Vocabulary::Token& token = vocabulary.tokens[id];
    if (token.kind == Kind::kSpecial && token.text == name) return static_cast<int32_t>(id);
  }
  return {};
}

}  // namespace

std::string_view SplitPattern(Split split) {
  switch (split) {
    case Split::kNone: return "";
    case Split::kLlama3: return kLlama3Pattern;
    case Split::kGpt2: return kGpt2Pattern;
    case Split::kQwen2: return kQwen2Pattern;
  }
  return "";
}

std::string ByteToken(unsigned char byte) { return absl::StrFormat("<0x%02X>", byte); }

std::string WriteTokenizerJson(const Vocabulary& vocabulary) {
  Json added = Json::array(), vocab = Json::object(), merges = Json::array();
  std::vector<std::string> texts;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const Vocabulary::Token& token = vocabulary.tokens[id];
    if (token.is_listed) {
      vocab[Shown(vocabulary, token)] = id;
      texts.push_back(token.text);
    }
    if (token.kind == Kind::kOrdinary) continue;
    added.push_back({{"id", id},
                     {"content", token.text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", token.kind == Kind::kSpecial}});
  }
  // A vocabulary without merges lists its tokens first.
  for (const Merge& merge : vocabulary.merges ? *vocabulary.merges : AllMerges(texts)) {
    const std::string left = Shown(vocabulary, vocabulary.tokens[merge.left]);
    const std::string right = Shown(vocabulary, vocabulary.tokens[merge.right]);
    // Versions before 2024 read this form alone.
    const bool is_plain = (left + right).find(' ') == std::string::npos;
    merges.push_back(is_plain ? Json(absl::StrCat(left, " ", right)) : Json::array({left, right}));
  }
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", vocabulary.symbols == Symbols::kCharacters},
                      {"ignore_merges", vocabulary.whole_first},
                      {"vocab", std::move(vocab)},
                      {"merges", std::move(merges)}};
  const Json json = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", std::move(added)},
                     {"normalizer", Normalizer(vocabulary)},
                     {"pre_tokenizer", PreTokenizer(vocabulary)},
                     {"post_processor", PostProcessor(vocabulary)},
                     {"decoder", Decoder(vocabulary)},
                     {"model", model}};
  return json.dump(1) + "\n";
}

absl::StatusOr<Vocabulary> ParseTokenizerJson(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return FieldError("tokenizer.json", "", "is no JSON object");
  const Json& model = At(json, "model");
  RETURN_IF_ERROR(CheckModel(model));
  Vocabulary vocabulary;
  vocabulary.whole_first = At(model, "ignore_merges") == true;
  RETURN_IF_ERROR(ReadSymbols(json, &vocabulary));
  RETURN_IF_ERROR(ReadTokens(json, &vocabulary));
  RETURN_IF_ERROR(ReadMerges(At(model, "merges"), &vocabulary));
  if (const auto first = FirstSpecial(At(json, "post_processor"))) vocabulary.begin = IdOf(vocabulary, *first);
  for (const char* name : {"<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>"}) {
    if (!vocabulary.end) vocabulary.end = IdOf(vocabulary, name);
  }
  return vocabulary;
}

}  // namespace legoai::data
