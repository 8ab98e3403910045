#include "worker/data/token_file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "worker/data/dataset_facts.h"

namespace legoai::data {
namespace {

std::string Folder() {
  const std::string folder = testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

v1::Dataset Text(const std::string& folder, const std::string& text) {
  EXPECT_TRUE(checkpoint::WriteFile(folder + "/text.txt", text).ok());
  return DatasetFacts(folder + "/text.txt").value();
}

std::vector<int32_t> Copy(const TokenFile& file) { return {file.tokens().begin(), file.tokens().end()}; }

TEST(TokenFileTest, SameInMemoryAndFromTheCache) {
  const std::string folder = Folder();
  const v1::Dataset dataset = Text(folder, "abc");
  const auto tokenizer = LoadTokenizer("byte").value();
  const std::vector<int32_t> expected = {'a', 'b', 'c'};
  EXPECT_EQ(Copy(TokenFile::Open(dataset, *tokenizer, "").value()), expected);
  EXPECT_EQ(Copy(TokenFile::Open(dataset, *tokenizer, folder + "/cache/deep").value()), expected);
  // The second time the text is not read: it is gone.
  std::filesystem::remove(folder + "/text.txt");
  TokenFile first = TokenFile::Open(dataset, *tokenizer, folder + "/cache/deep").value();
  const TokenFile moved = std::move(first);
  EXPECT_EQ(Copy(moved), expected);
  EXPECT_FALSE(TokenFile::Open(dataset, *tokenizer, folder + "/other").ok());
}

TEST(TokenFileTest, DocumentIsFramedBySpecialTokens) {
  const std::string folder = Folder();
  const auto tokenizer = LoadTokenizer("worker/data/testdata/small.tiktoken").value();
  const TokenFile file = TokenFile::Open(Text(folder, "zq"), *tokenizer, "").value();
  EXPECT_EQ(Copy(file), (std::vector<int32_t>{512, 'z', 'q', 513}));
}

TEST(TokenFileTest, OtherTextAndOtherTokenizerHaveTheirOwnFiles) {
  const std::string folder = Folder();
  const auto bytes = LoadTokenizer("byte").value();
  const auto pairs = LoadTokenizer("worker/data/testdata/small.tiktoken").value();
  EXPECT_EQ(TokenFile::Open(Text(folder, "zq"), *bytes, folder).value().tokens().size(), 2u);
  EXPECT_EQ(TokenFile::Open(Text(folder, "zq"), *pairs, folder).value().tokens().size(), 4u);
  EXPECT_EQ(TokenFile::Open(Text(folder, "zqx"), *bytes, folder).value().tokens().size(), 3u);
}

TEST(TokenFileTest, TornCacheIsMadeAgain) {
  const std::string folder = Folder();
  const v1::Dataset dataset = Text(folder, "abc");
  const auto tokenizer = LoadTokenizer("byte").value();
  ASSERT_TRUE(TokenFile::Open(dataset, *tokenizer, folder + "/cache").ok());
  const std::string path = std::filesystem::directory_iterator(folder + "/cache")->path().string();
  const std::string whole = checkpoint::ReadFile(path).value();
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_TRUE(checkpoint::WriteFile(path, whole.substr(0, size)).ok());
    EXPECT_EQ(TokenFile::Open(dataset, *tokenizer, folder + "/cache").value().tokens().size(), 3u);
    EXPECT_EQ(checkpoint::ReadFile(path).value(), whole);
  }
}

TEST(TokenFileTest, WhatAKilledProcessLeftHalfMadeIsRemoved) {
  namespace fs = std::filesystem;
  const std::string folder = Folder(), cache = folder + "/cache";
  fs::create_directories(cache);
  const std::string digits(32, 'a');
  const std::vector<std::string> names = {"tokens-" + digits + ".bin.7.0123456789abcdef", "tokens-" + digits + ".bin",
                                          "other.bin.7"};
  for (const std::string& name : names) {
    ASSERT_TRUE(checkpoint::WriteFile(cache + "/" + name, "half").ok());
    fs::last_write_time(cache + "/" + name, fs::file_time_type::clock::now() - std::chrono::hours(2));
  }
  const std::string young = cache + "/tokens-" + digits + ".bin.8.0123456789abcdef";
  ASSERT_TRUE(checkpoint::WriteFile(young, "half").ok());
  ASSERT_TRUE(TokenFile::Open(Text(folder, "abc"), *LoadTokenizer("byte").value(), cache).ok());
  EXPECT_FALSE(fs::exists(cache + "/" + names[0]));
  EXPECT_TRUE(fs::exists(cache + "/" + names[1]));
  EXPECT_TRUE(fs::exists(cache + "/" + names[2]));
  EXPECT_TRUE(fs::exists(young)) << "somebody is making it";
}

TEST(TokenFileTest, CacheThatCannotBeWrittenIsAnError) {
  const std::string folder = Folder();
  const auto status = TokenFile::Open(Text(folder, "abc"), *LoadTokenizer("byte").value(), folder + "/text.txt/cache").status();
  EXPECT_NE(status.message().find("text.txt/cache"), std::string::npos) << status;
}

}  // namespace
}  // namespace legoai::data
