// tests/integration/transformers_test.py holds what is written against the tokenizers library itself.
#include "core/data/tokenizer_json.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "core/checkpoint/files.h"
#include "core/data/tokenizer.h"
#include "proto/errors.h"

namespace legoai::data {
namespace {

using Json = nlohmann::json;

constexpr char kTiktoken[] = "core/data/testdata/small.tiktoken";

std::string Path(const std::string& name) { return testing::TempDir() + "/tokenizer_json_test_" + name; }

std::unique_ptr<Tokenizer> LoadText(const std::string& name, const std::string& text) {
  EXPECT_TRUE(checkpoint::WriteFile(Path(name), text).ok());
  auto tokenizer = LoadTokenizer(Path(name));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TEST(TokenizerJsonTest, WhatIsWrittenIsReadAsTheSame) {
  for (const char* path : {"byte", kTiktoken}) {
    const Vocabulary vocabulary = LoadTokenizer(path).value()->GetVocabulary();
    const auto back = ParseTokenizerJson(WriteTokenizerJson(vocabulary)).value();
    EXPECT_TRUE(back == vocabulary) << path;
  }
}

TEST(TokenizerJsonTest, TheByteTokenizersExportIsTheByteTokenizer) {
  const std::string text = WriteTokenizerJson(LoadTokenizer("byte").value()->GetVocabulary());
  EXPECT_EQ(LoadText("byte.json", text)->Identity(), "byte");
  const Json json = Json::parse(text);
  EXPECT_EQ(json["model"]["vocab"].size(), 256);
  EXPECT_EQ(json["model"]["vocab"]["A"], 65);
  EXPECT_EQ(json["model"]["vocab"]["\u0120"], 32) << "a space";
  EXPECT_EQ(json["model"]["vocab"]["\u00e9"], 0xe9) << "a byte that Latin-1 prints";
  EXPECT_TRUE(json["model"]["merges"].empty());
}

TEST(TokenizerJsonTest, IdsAreThoseOfTheTiktokenFile) {
  const auto tiktoken = LoadTokenizer(kTiktoken).value();
  const auto json = LoadText("small.json", WriteTokenizerJson(tiktoken->GetVocabulary()));
  EXPECT_EQ(json->BeginOfText(), tiktoken->BeginOfText());
  EXPECT_EQ(json->EndOfText(), tiktoken->EndOfText());
  EXPECT_NE(json->Identity(), tiktoken->Identity());
  const auto cases = Json::parse(checkpoint::ReadFile("core/data/testdata/small.encodings.json").value());
  for (const auto& recorded : cases) {
    EXPECT_EQ(json->Encode(recorded["text"].get<std::string>()).value(), recorded["ids"].get<std::vector<int32_t>>());
  }
}

// As the Hub's GPT-2 has it: bytes in an order of their own, <|endoftext|> in the vocabulary too, no template, no type.
Json Gpt2Like() {
  Json json = Json::parse(WriteTokenizerJson(LoadTokenizer("byte").value()->GetVocabulary()));
  Json& vocab = json["model"]["vocab"];
  std::swap(vocab["A"], vocab["!"]);
  vocab["he"] = 256;
  vocab["the"] = 257;
  vocab["\u0120the"] = 258;
  vocab["<|endoftext|>"] = 259;
  json["model"]["merges"] = {"h e", "t he", "\u0120 the"};
  json["model"].erase("type");
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  json["added_tokens"] = {{{"id", 259}, {"content", "<|endoftext|>"}, {"special", true}}};
  return json;
}

TEST(TokenizerJsonTest, ReadsGpt2) {
  const auto tokenizer = LoadText("gpt2.json", Gpt2Like().dump());
  EXPECT_EQ(tokenizer->VocabSize(), 260);
  EXPECT_EQ(tokenizer->BeginOfText(), std::nullopt);
  EXPECT_EQ(tokenizer->EndOfText(), 259);
  EXPECT_EQ(tokenizer->Encode("the A!").value(), (std::vector<int32_t>{257, ' ', '!', 'A'}));
  EXPECT_EQ(tokenizer->Encode(" the\n12345").value(), (std::vector<int32_t>{258, '\n', '1', '2', '3', '4', '5'}));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{257, 258, 259}).value(), "the the<|endoftext|>");
  EXPECT_TRUE(*ParseTokenizerJson(WriteTokenizerJson(tokenizer->GetVocabulary())) == tokenizer->GetVocabulary());
}

TEST(TokenizerJsonTest, WhatWouldGiveOtherIdsIsRefusedByItsKey) {
  const auto refused = [](const std::function<void(Json&)>& change, const std::string& field) {
    Json json = Gpt2Like();
    change(json);
    const auto vocabulary = ParseTokenizerJson(json.dump());
    ASSERT_FALSE(vocabulary.ok()) << field;
    EXPECT_EQ(GetFieldViolation(vocabulary.status())->field(), "tokenizer.json: " + field) << vocabulary.status();
  };
  refused([](Json& j) { j["model"]["type"] = "Unigram"; }, "model.type");
  refused([](Json& j) { j["model"]["byte_fallback"] = true; }, "model.byte_fallback");
  refused([](Json& j) { j["normalizer"] = {{"type", "NFC"}}; }, "normalizer");
  refused([](Json& j) { j["pre_tokenizer"] = {{"type", "Whitespace"}}; }, "pre_tokenizer");
  refused([](Json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }, "pre_tokenizer");
  refused([](Json& j) { j["model"].erase("vocab"); }, "model.vocab");
  refused([](Json& j) { j["model"]["vocab"]["he"] = 300; }, "model.vocab");
  refused([](Json& j) { j["model"]["vocab"].erase("A"); }, "model.vocab");
  refused([](Json& j) { j["model"]["vocab"]["\u4e2d"] = 260; }, "model.vocab");
  refused([](Json& j) { j["model"]["merges"] = {"t he", "h e", "\u0120 the"}; }, "model.merges");
  refused([](Json& j) { j["model"]["merges"] = {"h e", "x y"}; }, "model.merges");
  refused([](Json& j) { j["model"]["merges"] = {"h e", "t he"}; }, "model.vocab");
  refused([](Json& j) { j["model"]["merges"] = 3; }, "model.merges");
  refused([](Json& j) { j["added_tokens"][0]["id"] = 400; }, "added_tokens");
  refused([](Json& j) { j["added_tokens"][0]["special"] = false; }, "added_tokens");
  EXPECT_EQ(GetFieldViolation(ParseTokenizerJson("[1]").status())->field(), "tokenizer.json");
  EXPECT_EQ(GetFieldViolation(ParseTokenizerJson("{").status())->field(), "tokenizer.json");
  // In a file the recipe's key is named, with the file.
  EXPECT_TRUE(checkpoint::WriteFile(Path("bad.json"), "{\"model\": {\"type\": \"WordPiece\"}}").ok());
  const auto fault = GetFieldViolation(LoadTokenizer(Path("bad.json")).status());
  EXPECT_EQ(fault->field(), "model.tokenizer_path");
  EXPECT_NE(fault->remedy().find("tokenizer.json: model.type = WordPiece"), std::string::npos) << fault->remedy();
}

TEST(TokenizerJsonTest, AnExportNamesWhereDocumentsBeginAndEnd) {
  const auto read = [](const std::string& folder, const char* name) {
    return Json::parse(checkpoint::ReadFile(folder + "/" + name).value());
  };
  const std::string folder = Path("folder");
  ASSERT_TRUE(checkpoint::MakeFolders(folder).ok());
  ASSERT_TRUE(ExportTokenizer(*LoadTokenizer(kTiktoken).value(), 128, folder).ok());
  EXPECT_EQ(read(folder, "generation_config.json"), (Json{{"bos_token_id", 512}, {"eos_token_id", 513}}));
  const Json config = read(folder, "tokenizer_config.json");
  EXPECT_EQ(config["bos_token"], "<|begin_of_text|>");
  EXPECT_EQ(config["eos_token"], "<|end_of_text|>");
  EXPECT_EQ(config["model_max_length"], 128);
  ASSERT_TRUE(ExportTokenizer(*LoadTokenizer("byte").value(), 128, folder).ok());
  EXPECT_EQ(read(folder, "generation_config.json"), Json::object());
  EXPECT_FALSE(read(folder, "tokenizer_config.json").contains("eos_token"));
}

}  // namespace
}  // namespace legoai::data
