#include "core/data/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "proto/errors.h"

namespace legoai::data {
namespace {

constexpr char kVocabulary[] = "core/data/testdata/small.tiktoken";

std::string Path(const std::string& name) { return testing::TempDir() + "/tokenizer_test_" + name; }

TEST(TokenizerTest, BytesAreTheirOwnIds) {
  const auto tokenizer = LoadTokenizer("byte").value();
  const std::string text("h\xc3\xa9\xff\0", 5);
  EXPECT_EQ(tokenizer->Encode(text).value(), (std::vector<int32_t>{104, 195, 169, 255, 0}));
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text).value()).value(), text);
  EXPECT_EQ(tokenizer->VocabSize(), 256);
  EXPECT_FALSE(tokenizer->BeginOfText() || tokenizer->EndOfText());
  EXPECT_FALSE(tokenizer->Decode(std::vector<int32_t>{256}).ok());
}

// Recorded from the tiktoken package: testdata/make_reference.py.
TEST(TokenizerTest, EncodesAsTiktokenDoes) {
  const auto tokenizer = LoadTokenizer(kVocabulary).value();
  const auto cases = nlohmann::json::parse(checkpoint::ReadFile("core/data/testdata/small.encodings.json").value());
  ASSERT_GT(cases.size(), 100u);
  for (const auto& recorded : cases) {
    const std::string text = recorded["text"];
    const auto ids = tokenizer->Encode(text).value();
    EXPECT_EQ(ids, recorded["ids"].get<std::vector<int32_t>>()) << recorded["text"];
    EXPECT_EQ(tokenizer->Decode(ids).value(), text);
  }
}

TEST(TokenizerTest, SpecialTokensFollowTheRanks) {
  const auto tokenizer = LoadTokenizer(kVocabulary).value();
  EXPECT_EQ(tokenizer->BeginOfText(), 512);
  EXPECT_EQ(tokenizer->EndOfText(), 513);
  EXPECT_EQ(tokenizer->VocabSize(), 514);
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{512, 'a', 513}).value(), "<|begin_of_text|>a<|end_of_text|>");
  EXPECT_FALSE(tokenizer->Decode(std::vector<int32_t>{514}).ok());
  EXPECT_FALSE(tokenizer->Decode(std::vector<int32_t>{-1}).ok());
}

TEST(TokenizerTest, TextThatIsNotUtf8IsRefusedWithItsPlace) {
  const auto tokenizer = LoadTokenizer(kVocabulary).value();
  const absl::Status status = tokenizer->Encode("fine, then \xff").status();
  EXPECT_NE(status.message().find("byte 11"), std::string::npos) << status;
  EXPECT_NE(status.message().find("not UTF-8"), std::string::npos) << status;
}

TEST(TokenizerTest, MoreIdsThanTheModelIsAnError) {
  const auto tokenizer = LoadTokenizer(kVocabulary).value();
  EXPECT_TRUE(CheckFits(*tokenizer, 514).ok());
  const absl::Status status = CheckFits(*tokenizer, 513);
  EXPECT_EQ(GetFieldViolation(status)->field(), "model.tokenizer_path");
  EXPECT_NE(status.message().find("513"), std::string::npos) << status;
}

TEST(TokenizerTest, EqualFilesHaveOneIdentity) {
  const auto tokenizer = LoadTokenizer(kVocabulary).value();
  ASSERT_TRUE(checkpoint::WriteFile(Path("copy"), checkpoint::ReadFile(kVocabulary).value()).ok());
  EXPECT_EQ(LoadTokenizer(Path("copy")).value()->Identity(), tokenizer->Identity());
  EXPECT_NE(LoadTokenizer("byte").value()->Identity(), tokenizer->Identity());
}

TEST(TokenizerTest, BadFilesAreRefusedByLine) {
  const std::string good = checkpoint::ReadFile(kVocabulary).value();
  const auto expect_error = [](const std::string& contents, const std::string& word) {
    ASSERT_TRUE(checkpoint::WriteFile(Path("bad"), contents).ok());
    const absl::Status status = LoadTokenizer(Path("bad")).status();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(GetFieldViolation(status)->field(), "model.tokenizer_path");
    EXPECT_NE(status.message().find(word), std::string::npos) << status;
  };
  expect_error(good + "word\n", "bad:513: not `base64 rank`");
  expect_error(good + "!!!! 512\n", "bad:513: not `base64 rank`");
  expect_error(good + "d29yZA== 513\n", "rank 513 where 512 is due");
  expect_error(good + "AA== 512\n", "the same token as on line 1");
  expect_error("AA== 0\n", "no token for byte 1");
  EXPECT_EQ(LoadTokenizer("/no/such.model").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace legoai::data
