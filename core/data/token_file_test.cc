#include "core/data/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>

#include "absl/strings/str_format.h"
#include "core/data/dataset_facts.h"
#include "proto/errors.h"

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
  const auto tokenizer = LoadTokenizer("core/data/testdata/small.tiktoken").value();
  const TokenFile file = TokenFile::Open(Text(folder, "zq"), *tokenizer, "").value();
  EXPECT_EQ(Copy(file), (std::vector<int32_t>{512, 'z', 'q', 513}));
}

TEST(TokenFileTest, OtherTextAndOtherTokenizerHaveTheirOwnFiles) {
  const std::string folder = Folder();
  const auto bytes = LoadTokenizer("byte").value();
  const auto pairs = LoadTokenizer("core/data/testdata/small.tiktoken").value();
  EXPECT_EQ(TokenFile::Open(Text(folder, "zq"), *bytes, folder).value().tokens().size(), 2u);
  EXPECT_EQ(TokenFile::Open(Text(folder, "zq"), *pairs, folder).value().tokens().size(), 4u);
  EXPECT_EQ(TokenFile::Open(Text(folder, "zqx"), *bytes, folder).value().tokens().size(), 3u);
}

// A cache of the text "abcabc…", and what became of it.
class TokenCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    dataset_ = Text(folder_, text_);
    const auto made = Open().value();
    ASSERT_EQ(made.warning(), "");
    path_ = std::filesystem::directory_iterator(cache_)->path().string();
    whole_ = checkpoint::ReadFile(path_).value();
  }
  absl::StatusOr<TokenFile> Open() { return TokenFile::Open(dataset_, *tokenizer_, cache_); }

  // What is there is not used: the tokens are those of the text, `why` is told, and the file is as good as new.
  void ExpectMadeAnew(const std::string& why) {
    const auto opened = Open().value();
    EXPECT_EQ(std::string(opened.tokens().begin(), opened.tokens().end()), text_);
    EXPECT_THAT(opened.warning(), testing::HasSubstr(path_ + " " + why));
    EXPECT_EQ(checkpoint::ReadFile(path_).value(), whole_);
    ExpectPrivate();
    EXPECT_EQ(Open()->warning(), "") << "it holds again";
  }
  void ExpectPrivate() {
    EXPECT_EQ(ModeOf(cache_), 0700);
    EXPECT_EQ(ModeOf(path_), 0600);
    EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(path_)));
  }
  static int ModeOf(const std::string& path) {
    struct stat facts;
    return lstat(path.c_str(), &facts) == 0 ? facts.st_mode & 07777 : -1;
  }
  // The file with other bytes, as private as before.
  void Write(const std::string& bytes) { ASSERT_TRUE(checkpoint::WriteFile(path_, bytes).ok()); }

  const std::string folder_ = Folder(), cache_ = folder_ + "/cache";
  const std::unique_ptr<Tokenizer> tokenizer_ = LoadTokenizer("byte").value();
  std::string text_ = "abcabcabcabcabc";
  v1::Dataset dataset_;
  std::string path_, whole_;
};

TEST_F(TokenCacheTest, TornIsMadeAnew) {
  for (size_t size = 0; size < whole_.size(); ++size) {
    SCOPED_TRACE(size);
    Write(whole_.substr(0, size));
    ExpectMadeAnew(size < whole_.size() - 4 * text_.size() ? "is cut short" : "has ");
  }
  Write(whole_ + std::string(4, 'a'));
  ExpectMadeAnew("has 64 bytes of ids where 15 ids are due");
}

TEST_F(TokenCacheTest, ABitThatHasFlippedInAnyByteIsFound) {
  for (size_t byte = 0; byte < whole_.size(); ++byte) {
    SCOPED_TRACE(byte);
    std::string bytes = whole_;
    bytes[byte] = static_cast<char>(bytes[byte] ^ (1 << byte % 8));
    Write(bytes);
    ExpectMadeAnew("");
  }
}

// Right in itself, and not what the name promises: as when one file was copied over another.
TEST_F(TokenCacheTest, OfAnotherTextOrTokenizerIsMadeAnew) {
  const std::string own = path_;
  for (const bool other_text : {true, false}) {
    const std::string other = folder_ + "/other";
    std::filesystem::remove_all(other);
    const v1::Dataset dataset = other_text ? Text(folder_, "xyz") : dataset_;
    const auto tokenizer = LoadTokenizer(other_text ? "byte" : "core/data/testdata/small.tiktoken").value();
    ASSERT_TRUE(TokenFile::Open(dataset, *tokenizer, other).ok());
    dataset_ = Text(folder_, text_);
    Write(checkpoint::ReadFile(std::filesystem::directory_iterator(other)->path().string()).value());
    ExpectMadeAnew(other_text ? "is of another text" : "is of another tokenizer");
  }
}

TEST_F(TokenCacheTest, OfAnEarlierVersionIsMadeAnew) {
  std::string old = "LGTOKEN1";
  const int64_t count = static_cast<int64_t>(text_.size());
  old.append(reinterpret_cast<const char*>(&count), sizeof(count));
  Write(old + whole_.substr(whole_.size() - 4 * text_.size()));
  ExpectMadeAnew("is cut short");
  Write(old + std::string(1000, 'a'));
  ExpectMadeAnew("was made by another version");
}

TEST_F(TokenCacheTest, WhatOthersMayHaveMadeIsNotUsed) {
  namespace fs = std::filesystem;
  for (const int mode : {0644, 0660, 0602}) {
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    ExpectMadeAnew(absl::StrFormat("is open to other users (mode %04o)", mode));
  }
  const std::string elsewhere = folder_ + "/elsewhere";
  ASSERT_TRUE(checkpoint::WriteFile(elsewhere, whole_).ok());
  ASSERT_EQ(chmod(elsewhere.c_str(), 0600), 0);
  fs::remove(path_);
  fs::create_symlink(elsewhere, path_);
  ExpectMadeAnew("is no regular file");
  EXPECT_EQ(checkpoint::ReadFile(elsewhere).value(), whole_) << "nothing is written through a link";
  fs::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  ExpectMadeAnew("is no regular file");
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_THAT(Open().status().message(), testing::HasSubstr(path_));
}

TEST_F(TokenCacheTest, OfAnotherUserIsNotUsed) {
  if (chown(path_.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "only root gives files away, and not in a sandbox";
  ExpectMadeAnew("belongs to user 12345");
  ASSERT_EQ(chown(cache_.c_str(), 12345, 12345), 0);
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Open().status().message(), testing::HasSubstr("belongs to user 12345"));
}

TEST_F(TokenCacheTest, IsItsOwnersAloneWhateverTheUmask) {
  ExpectPrivate();
  for (const mode_t mask : {0u, 0022u, 0777u}) {
    std::filesystem::remove_all(cache_);
    const mode_t before = umask(mask);
    const auto opened = Open();
    umask(before);
    ASSERT_TRUE(opened.ok()) << opened.status();
    ExpectPrivate();
  }
  ASSERT_EQ(chmod(cache_.c_str(), 0755), 0);
  EXPECT_EQ(Open()->warning(), "") << "an older folder is tightened";
  ExpectPrivate();
  // The folders of a job's attempts share their tokens over a link.
  std::filesystem::create_directory_symlink("cache", folder_ + "/link");
  std::filesystem::remove(folder_ + "/text.txt");
  EXPECT_TRUE(TokenFile::Open(dataset_, *tokenizer_, folder_ + "/link").ok()) << "it is there already";
}

// The digest is of the text as it was when the dataset was looked at.
TEST_F(TokenCacheTest, ATextThatHasChangedSinceIsRefused) {
  std::filesystem::remove_all(cache_);
  const std::string& path = folder_ + "/text.txt";
  ASSERT_TRUE(checkpoint::WriteFile(path, "abcabcabcabcabd").ok());
  for (const std::string& cache : {cache_, std::string()}) {
    const absl::Status status = TokenFile::Open(dataset_, *tokenizer_, cache).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    ASSERT_TRUE(GetFieldViolation(status)) << status;
    EXPECT_EQ(GetFieldViolation(status)->field(), "training.dataset_path");
  }
  EXPECT_TRUE(std::filesystem::is_empty(cache_));
}

// One whose ids go further than it says.
class Boastful : public Tokenizer {
 public:
  absl::StatusOr<std::string> Decode(std::span<const int32_t>) const override { return ""; }
  int64_t VocabSize() const override { return 99; }
  const std::string& Identity() const override { return identity_; }
  Vocabulary GetVocabulary() const override { return {}; }

 private:
  absl::StatusOr<std::vector<int32_t>> DoEncode(std::string_view text, const checkpoint::Cancel&) const override {
    return std::vector<int32_t>(text.begin(), text.end());
  }
  const std::string identity_ = "boastful";
};

TEST_F(TokenCacheTest, AnIdThatTheTokenizerDoesNotHaveIsNamed) {
  const absl::Status status = TokenFile::Open(dataset_, Boastful(), folder_ + "/other").status();
  ASSERT_TRUE(GetFieldViolation(status)) << status;
  EXPECT_EQ(GetFieldViolation(status)->field(), "token 2");
  EXPECT_EQ(GetFieldViolation(status)->value(), "99");
  EXPECT_THAT(status.message(), testing::HasSubstr("text.txt"));
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
