// tests/transformers/tokenizers_test.py holds what is written against the tokenizers library itself.
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
    Vocabulary vocabulary = LoadTokenizer(path).value()->GetVocabulary();
    const auto back = ParseTokenizerJson(WriteTokenizerJson(vocabulary)).value();
    EXPECT_TRUE(back.merges.has_value());
    vocabulary.merges = back.merges;  // those of ranks are written as a list
    EXPECT_TRUE(back == vocabulary) << path;
  }
}

// Shaped as the released files; recorded from the tokenizers library: testdata/make_families.py.
class FamilyTest : public testing::TestWithParam<const char*> {
 protected:
  std::string File(const char* end) const { return std::string("core/data/testdata/") + GetParam() + end; }
};

TEST_P(FamilyTest, IdsAreThoseOfTheLibrary) {
  const auto tokenizer = LoadTokenizer(File(".tokenizer.json")).value();
  const auto cases = Json::parse(checkpoint::ReadFile(File(".encodings.json")).value());
  ASSERT_GT(cases.size(), 100u);
  for (const auto& recorded : cases) {
    auto ids = tokenizer->Encode(recorded["text"].get<std::string>()).value();
    if (const auto begin = tokenizer->BeginOfText()) ids.insert(ids.begin(), *begin);
    EXPECT_EQ(ids, recorded["ids"].get<std::vector<int32_t>>()) << recorded["text"];
  }
}

TEST_P(FamilyTest, IsWrittenAsTheSame) {
  const auto vocabulary = ParseTokenizerJson(checkpoint::ReadFile(File(".tokenizer.json")).value()).value();
  EXPECT_TRUE(ParseTokenizerJson(WriteTokenizerJson(vocabulary)).value() == vocabulary);
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTest, testing::Values("mistral", "mistral-v3", "gemma", "qwen"), [](const auto& info) {
  return std::string(info.param) == "mistral-v3" ? "mistral_v3" : std::string(info.param);
});

TEST(TokenizerJsonTest, DocumentsOfTheFamiliesBeginAndEndAsTheirFilesSay) {
  const auto names = [](const std::string& family) {
    const auto tokenizer = LoadTokenizer("core/data/testdata/" + family + ".tokenizer.json").value();
    const auto name = [&](std::optional<int32_t> id) { return id ? tokenizer->Decode(std::vector{*id}).value() : "none"; };
    return name(tokenizer->BeginOfText()) + " " + name(tokenizer->EndOfText());
  };
  EXPECT_EQ(names("mistral"), "<s> </s>");
  EXPECT_EQ(names("mistral-v3"), "<s> </s>");
  EXPECT_EQ(names("gemma"), "<bos> <eos>");
  EXPECT_EQ(names("qwen"), "none <|endoftext|>");
}

TEST(TokenizerJsonTest, WhatIsDecodedIsTheTextThatWasEncoded) {
  const std::string text = "Größe \t of\n\n 日本 \x01 😀  steps";
  const auto decoded = [&](const std::string& family) {
    const auto tokenizer = LoadTokenizer("core/data/testdata/" + family + ".tokenizer.json").value();
    return tokenizer->Decode(tokenizer->Encode(text).value()).value();
  };
  EXPECT_EQ(decoded("mistral"), " " + text) << "with the space that is put before";
  EXPECT_EQ(decoded("mistral-v3"), " " + text);
  EXPECT_EQ(decoded("gemma"), text);
  EXPECT_EQ(decoded("qwen"), text);
}

TEST(TokenizerJsonTest, TextThatIsNotUtf8IsRefusedWithItsPlace) {
  for (const char* family : {"mistral", "gemma", "qwen"}) {
    const auto tokenizer = LoadTokenizer(std::string("core/data/testdata/") + family + ".tokenizer.json").value();
    const absl::Status status = tokenizer->Encode("fine\n\nthen \xff").status();
    EXPECT_NE(status.message().find("byte 11"), std::string::npos) << status;
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

// Two orders of the same merges are two encodings.
TEST(TokenizerJsonTest, MergesAreDoneInTheirOrder) {
  Json json = Gpt2Like();
  json["model"]["vocab"]["th"] = 260;
  json["model"]["merges"] = {"h e", "t he", "t h"};
  EXPECT_EQ(LoadText("he.json", json.dump())->Encode("the").value(), (std::vector<int32_t>{257}));
  json["model"]["merges"] = {"t h", "h e", "t he"};
  EXPECT_EQ(LoadText("th.json", json.dump())->Encode("the").value(), (std::vector<int32_t>{260, 'e'}));
}

// Of those that begin at a place the longest.
TEST(TokenizerJsonTest, AddedTokensAreFoundFirst) {
  Json json = Gpt2Like();
  json["added_tokens"].push_back({{"id", 260}, {"content", "<a"}, {"special", false}});
  json["added_tokens"].push_back({{"id", 261}, {"content", "<ab>"}, {"special", false}});
  const auto tokenizer = LoadText("added.json", json.dump());
  EXPECT_EQ(tokenizer->Encode("the<ab><abc").value(), (std::vector<int32_t>{257, 261, 260, 'b', 'c'}));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{261, 260}).value(), "<ab><a");
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
  refused([](Json& j) { j["model"]["byte_fallback"] = true; }, "pre_tokenizer");
  refused([](Json& j) { j["model"]["dropout"] = 0.1; }, "model.dropout");
  refused([](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, "model.end_of_word_suffix");
  refused([](Json& j) { j["normalizer"] = {{"type", "NFKC"}}; }, "normalizer");
  refused([](Json& j) { j["pre_tokenizer"] = {{"type", "Whitespace"}}; }, "pre_tokenizer");
  refused([](Json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }, "pre_tokenizer");
  refused([](Json& j) { j["model"].erase("vocab"); }, "model.vocab");
  refused([](Json& j) { j["model"]["vocab"]["he"] = 300; }, "model.vocab");
  refused([](Json& j) { j["model"]["vocab"].erase("A"); }, "model.vocab");
  refused([](Json& j) { j["model"]["vocab"]["\u4e2d"] = 260; }, "model.vocab");
  refused([](Json& j) { j["model"]["merges"] = {"h e", "x y"}; }, "model.merges");
  refused([](Json& j) { j["model"]["merges"] = 3; }, "model.merges");
  refused([](Json& j) { j["added_tokens"][0]["id"] = 400; }, "added_tokens");
  refused([](Json& j) { j["added_tokens"][0].update({{"special", false}, {"rstrip", true}}); }, "added_tokens");
  const auto refused_of = [](const std::string& family, const std::function<void(Json&)>& change, const std::string& field) {
    Json json = Json::parse(checkpoint::ReadFile("core/data/testdata/" + family + ".tokenizer.json").value());
    change(json);
    const auto vocabulary = ParseTokenizerJson(json.dump());
    ASSERT_FALSE(vocabulary.ok()) << field;
    EXPECT_EQ(GetFieldViolation(vocabulary.status())->field(), "tokenizer.json: " + field) << vocabulary.status();
  };
  refused_of("mistral", [](Json& j) { j["normalizer"] = {{"type", "Lowercase"}}; }, "normalizer");
  refused_of("mistral", [](Json& j) { j["normalizer"] = nullptr; }, "pre_tokenizer");
  refused_of("mistral", [](Json& j) { j["model"]["ignore_merges"] = true; }, "model.ignore_merges");
  refused_of("mistral", [](Json& j) { j["model"]["vocab"].erase("<0x80>"); }, "model.vocab");
  refused_of("mistral", [](Json& j) { j["model"]["merges"].push_back("a <0x80>"); }, "model.merges");
  refused_of("mistral-v3", [](Json& j) { j["pre_tokenizer"]["split"] = true; }, "pre_tokenizer");
  refused_of("gemma", [](Json& j) { j["pre_tokenizer"]["pattern"]["String"] = "a"; }, "pre_tokenizer");
  refused_of("gemma", [](Json& j) { j["added_tokens"].back()["normalized"] = true; }, "added_tokens");
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
