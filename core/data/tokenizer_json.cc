#include "core/data/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::data {
namespace {

using Json = nlohmann::json;  // its objects are maps: a vocabulary has 100,000 keys
using Split = Vocabulary::Split;

constexpr char kLlama3Pattern[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
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

struct Merges {
  std::vector<std::string> list;
  bool make_all = true;  // every token that is not a single byte
};

// All ways to cut each token in two tokens, in the order of ids, then of the halves' ids.
Merges MergesOf(const std::vector<std::string>& tokens) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < tokens.size(); ++id) ids.emplace(tokens[id], id);
  Merges merges;
  const ByteCharacters& characters = ByteCharacters::Get();
  for (const std::string& token : tokens) {
    std::vector<std::pair<size_t, size_t>> halves;
    for (size_t at = 1; at < token.size(); ++at) {
      const auto left = ids.find(std::string_view(token).substr(0, at)), right = ids.find(std::string_view(token).substr(at));
      if (left != ids.end() && right != ids.end()) halves.emplace_back(left->second, right->second);
    }
    std::sort(halves.begin(), halves.end());
    for (const auto& [left, right] : halves)
      merges.list.push_back(absl::StrCat(characters.Show(tokens[left]), " ", characters.Show(tokens[right])));
    if (token.size() > 1 && halves.empty()) merges.make_all = false;
  }
  return merges;
}

Json ByteLevel(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json PreTokenizer(Split split) {
  if (split != Split::kLlama3) return ByteLevel(/*use_regex=*/split == Split::kGpt2);
  const Json cut = {
      {"type", "Split"}, {"pattern", {{"Regex", std::string(SplitPattern(split))}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({cut, ByteLevel(false)})}};
}

// Puts the id that a document begins with before a text.
Json PostProcessor(const Vocabulary& vocabulary) {
  if (!vocabulary.begin) return nullptr;
  const std::string name = vocabulary.special[static_cast<size_t>(*vocabulary.begin) - vocabulary.tokens.size()];
  const auto special = [&](int type) { return Json{{"SpecialToken", {{"id", name}, {"type_id", type}}}}; };
  const auto sequence = [&](const char* id, int type) { return Json{{"Sequence", {{"id", id}, {"type_id", type}}}}; };
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

constexpr char kSupported[] = "is not supported: byte-level BPE as Llama 3 and GPT-2 have it is; give a tiktoken file instead";

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
  for (const Split split : {Split::kLlama3, Split::kGpt2}) {
    if (At(At(cut, "pattern"), "Regex") == std::string(SplitPattern(split))) return split;
  }
  return {};
}

// Names by id of what is added to the vocabulary, and of the vocabulary's own tokens that no text has.
absl::StatusOr<std::map<int64_t, std::string>> ReadAdded(const Json& list) {
  std::map<int64_t, std::string> names;
  if (!list.is_null() && !list.is_array()) return Fault("added_tokens", "", "must be a list");
  for (const Json& one : list) {
    const Json &id = At(one, "id"), &name = At(one, "content");
    if (!id.is_number_integer() || !name.is_string()) return Fault("added_tokens", "", "each needs an id and its content");
    if (At(one, "special") != true)
      return Fault("added_tokens", name.get<std::string>(), "is not special, which is not supported");
    names[id.get<int64_t>()] = name.get<std::string>();
  }
  return names;
}

// Ids 0 ... n-1 are those of the vocabulary without what is added, which has those from n on.
absl::Status ReadTokens(const Json& json, Vocabulary* out) {
  const Json& vocab = At(At(json, "model"), "vocab");
  if (!vocab.is_object() || vocab.empty()) return Fault("model.vocab", "", "must be an object of tokens");
  ASSIGN_OR_RETURN(auto added, ReadAdded(At(json, "added_tokens")));
  std::map<int64_t, std::string> tokens;
  for (const auto& [shown, id] : vocab.items()) {
    if (!id.is_number_integer()) return Fault("model.vocab", shown, "must have a whole number as its id");
    if (added.contains(id.get<int64_t>())) continue;
    const auto bytes = ByteCharacters::Get().Read(shown);
    if (!bytes || bytes->empty()) return Fault("model.vocab", shown, "has a character that stands for no byte");
    if (!tokens.emplace(id.get<int64_t>(), *bytes).second) return Fault("model.vocab", shown, "has the id of another token");
  }
  const auto count = static_cast<int64_t>(tokens.size());
  if (tokens.empty() || tokens.begin()->first != 0 || tokens.rbegin()->first != count - 1)
    return Fault("model.vocab", "", "must have the ids from 0 on without a gap");
  for (auto& [id, bytes] : tokens) out->tokens.push_back(std::move(bytes));
  for (auto& [id, name] : added) {
    if (id != count + static_cast<int64_t>(out->special.size()))
      return Fault("added_tokens", name, absl::StrCat("must have the ids from ", count, " on without a gap"));
    out->special.push_back(std::move(name));
  }
  std::array<bool, 256> there = {};
  for (const std::string& token : out->tokens) {
    if (token.size() == 1) there[static_cast<unsigned char>(token[0])] = true;
  }
  const bool all = std::all_of(there.begin(), there.end(), [](bool is) { return is; });
  return all ? absl::OkStatus() : Fault("model.vocab", "", "has not all 256 bytes, so not every text can be encoded");
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

// Joining by the lowest id is joining by the first merge only where merges are in the order of the ids that they make.
absl::Status CheckMerges(const Json& merges, bool ignore_merges, const std::vector<std::string>& tokens) {
  if (!merges.is_array()) return Fault("model.merges", "", "must be a list");
  std::unordered_map<std::string, size_t> ids;
  for (size_t id = 0; id < tokens.size(); ++id) ids.emplace(ByteCharacters::Get().Show(tokens[id]), id);
  std::vector<bool> made(tokens.size());
  size_t last = 0;
  for (const Json& one : merges) {
    const auto merge = ReadMerge(one);
    const std::string joined = merge ? merge->first + merge->second : Text(one);
    const auto found = ids.find(joined);
    if (!merge || found == ids.end() || !ids.contains(merge->first) || !ids.contains(merge->second))
      return Fault("model.merges", joined, "does not make a token of two others");
    if (found->second < last)
      return Fault("model.merges", joined, "comes after a merge that makes a higher id, which is not supported");
    last = found->second;
    made[last] = true;
  }
  // Who ignores merges finds a whole piece in the vocabulary first, as is done here; else such a token could never be.
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].size() > 1 && !made[id] && !ignore_merges)
      return Fault("model.vocab", ByteCharacters::Get().Show(tokens[id]), "is made by no merge, which is not supported");
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
  const auto found = std::find(vocabulary.special.begin(), vocabulary.special.end(), name);
  if (found == vocabulary.special.end()) return {};
  return static_cast<int32_t>(vocabulary.tokens.size() + (found - vocabulary.special.begin()));
}

}  // namespace

std::string_view SplitPattern(Split split) {
  switch (split) {
    case Split::kNone: return "";
    case Split::kLlama3: return kLlama3Pattern;
    case Split::kGpt2: return kGpt2Pattern;
  }
  return "";
}

std::string WriteTokenizerJson(const Vocabulary& vocabulary) {
  Json added = Json::array(), vocab = Json::object();
  for (size_t i = 0; i < vocabulary.special.size(); ++i) {
    added.push_back({{"id", vocabulary.tokens.size() + i},
                     {"content", vocabulary.special[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) vocab[ByteCharacters::Get().Show(vocabulary.tokens[id])] = id;
  Merges merges = MergesOf(vocabulary.tokens);
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", vocabulary.split == Split::kLlama3 || !merges.make_all},
                      {"vocab", std::move(vocab)},
                      {"merges", std::move(merges.list)}};
  const Json json = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", std::move(added)},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", PreTokenizer(vocabulary.split)},
                     {"post_processor", PostProcessor(vocabulary)},
                     {"decoder", ByteLevel(/*use_regex=*/true)},
                     {"model", model}};
  return json.dump(1) + "\n";
}

absl::StatusOr<Vocabulary> ParseTokenizerJson(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return FieldError("tokenizer.json", "", "is no JSON object");
  const Json& model = At(json, "model");
  if (const Json& type = At(model, "type"); !type.is_null() && type != "BPE") return Fault("model.type", Text(type), kSupported);
  if (At(model, "byte_fallback") == true) return Fault("model.byte_fallback", "true", kSupported);
  if (const Json& normalizer = At(json, "normalizer"); !normalizer.is_null())
    return Fault("normalizer", Text(At(normalizer, "type")), kSupported);
  Vocabulary vocabulary;
  const auto split = ReadSplit(At(json, "pre_tokenizer"));
  if (!split) return Fault("pre_tokenizer", "", kSupported);
  vocabulary.split = *split;
  RETURN_IF_ERROR(ReadTokens(json, &vocabulary));
  RETURN_IF_ERROR(CheckMerges(At(model, "merges"), At(model, "ignore_merges") == true, vocabulary.tokens));
  if (const auto first = FirstSpecial(At(json, "post_processor"))) vocabulary.begin = IdOf(vocabulary, *first);
  for (const char* name : {"<|end_of_text|>", "<|endoftext|>"}) {
    if (!vocabulary.end) vocabulary.end = IdOf(vocabulary, name);
  }
  return vocabulary;
}

}  // namespace legoai::data
