#include "core/data/export_tokenizer.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "core/checkpoint/files.h"
#include "proto/status.h"

namespace legoai::data {
namespace {

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

absl::Status ExportTokenizer(const Tokenizer& tokenizer, int64_t context, const std::string& folder) {
  const Vocabulary vocabulary = tokenizer.GetVocabulary();
  RETURN_IF_ERROR(checkpoint::WriteFile(folder + "/tokenizer.json", WriteTokenizerJson(vocabulary)));
  RETURN_IF_ERROR(checkpoint::WriteFile(folder + "/tokenizer_config.json", TokenizerConfig(vocabulary, context)));
  return checkpoint::WriteFile(folder + "/generation_config.json", GenerationConfig(vocabulary));
}

}  // namespace legoai::data
