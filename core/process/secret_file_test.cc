#include "core/process/secret_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/testing/small_file_system.h"
#include "proto/errors.h"

namespace legoai::launch {
namespace {

namespace fs = std::filesystem;

class SecretFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/secret-", getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string Put(const std::string& text, mode_t mode = 0600) {
    const std::string path = folder_ + "/secret";
    fs::remove(path);
    std::ofstream(path) << text;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  void ExpectRefused(const std::string& path, absl::StatusCode code, const std::string& part) {
    const absl::Status status = ReadSecretFile("--token-file", path).status();
    EXPECT_EQ(status.code(), code) << status;
    const auto violation = GetFieldViolation(status);
    ASSERT_TRUE(violation) << status;
    EXPECT_EQ(violation->field(), "--token-file");
    EXPECT_EQ(violation->value(), path);
    EXPECT_TRUE(absl::StrContains(violation->remedy(), part)) << status;
    EXPECT_FALSE(absl::StrContains(status.ToString(), "hidden")) << status;
  }

  std::string folder_;
};

TEST_F(SecretFile, WhatIsWrittenIsReadAndItsOwnersAlone) {
  const mode_t before = umask(0);
  const std::string path = Put("older", 0666);
  ASSERT_TRUE(WriteSecretFile("--out", path, "lego_hidden").ok());
  umask(before);
  struct stat facts {};
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);
  EXPECT_EQ(ReadSecretFile("--token-file", path).value(), "lego_hidden");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(SecretFile, ALinkIsReplacedAndNotFollowed) {
  const std::string other = folder_ + "/other", path = folder_ + "/link";
  std::ofstream(other) << "mine";
  fs::create_symlink(other, path);
  fs::create_symlink(other, path + ".new");
  ASSERT_TRUE(WriteSecretFile("--out", path, "lego_hidden").ok());
  EXPECT_FALSE(fs::is_symlink(path));
  std::string text;
  std::ifstream(other) >> text;
  EXPECT_EQ(text, "mine");
}

TEST_F(SecretFile, SpaceAroundItIsNotOfIt) {
  EXPECT_EQ(ReadSecretFile("--token-file", Put("  lego_x\r\n\n")).value(), "lego_x");
  EXPECT_EQ(ReadSecretFile("--token-file", Put("lego_x", 0640)).value(), "lego_x");
  // An identity provider's is longer.
  const std::string longest(16 << 10, 'x');
  EXPECT_EQ(ReadSecretFile("--token-file", Put(longest + "\n")).value(), longest);
}

TEST_F(SecretFile, WhatIsNoSecretIsRefusedWithoutBeingShown) {
  ExpectRefused(Put("lego_hidden", 0644), absl::StatusCode::kPermissionDenied, "chmod 600");
  ExpectRefused(Put("lego_hidden", 0602), absl::StatusCode::kPermissionDenied, "chmod 600");
  for (const std::string& text : {std::string(), std::string(" \n"), std::string("hidden hidden"), std::string("hidden\nhidden"),
                                  std::string((17 << 10) + 1, 'h')})
    ExpectRefused(Put(text), absl::StatusCode::kInvalidArgument, "must hold a token and nothing else");
  ExpectRefused(folder_ + "/none", absl::StatusCode::kNotFound, "cannot be read");
  ExpectRefused(folder_, absl::StatusCode::kInvalidArgument, "is not a file");
}

TEST_F(SecretFile, AFullDiskIsAskedToBeMadeRoomOn) {
  const std::string disk = folder_ + "/disk";
  fs::create_directories(disk);
  EXPECT_TRUE(checkpoint::PassesInChild([&] {
    const absl::Status mounted = checkpoint::MountSmallFileSystem(disk, 64 << 10);
    ASSERT_TRUE(mounted.ok()) << mounted;
    ASSERT_TRUE(WriteSecretFile("--out", disk + "/secret", "lego_hidden").ok());
    std::ofstream(disk + "/filler") << std::string(1 << 20, 'x');
    const absl::Status status = WriteSecretFile("--out", disk + "/second", "lego_hidden");
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    ASSERT_TRUE(GetFieldViolation(status)) << status;
    EXPECT_TRUE(absl::StrContains(GetFieldViolation(status)->remedy(), "make room on its disk")) << status;
    EXPECT_FALSE(fs::exists(disk + "/second.new"));
    EXPECT_EQ(ReadSecretFile("--token-file", disk + "/secret").value(), "lego_hidden");
  }));
}

// A server that may lead, and cannot write its first token's file, must not wait for that to pass.
TEST_F(SecretFile, WhatCannotBeWrittenIsNoMatterOfTryingAgainAndLeavesNothingBehind) {
  const std::string file = Put("older"), folder = folder_ + "/folder";
  fs::create_directories(folder);
  const std::pair<std::string, absl::StatusCode> cases[] = {
      {folder_ + "/no/such/place", absl::StatusCode::kNotFound},
      {file + "/secret", absl::StatusCode::kFailedPrecondition},                         // ENOTDIR
      {folder, absl::StatusCode::kFailedPrecondition},                                   // EISDIR
      {folder_ + "/" + std::string(300, 'n'), absl::StatusCode::kFailedPrecondition}};  // ENAMETOOLONG
  for (const auto& [path, code] : cases) {
    const absl::Status status = WriteSecretFile("--out", path, "lego_hidden");
    EXPECT_EQ(status.code(), code) << status;
    const auto violation = GetFieldViolation(status);
    ASSERT_TRUE(violation) << status;
    EXPECT_EQ(violation->field(), "--out");
    EXPECT_TRUE(absl::StrContains(violation->remedy(), "cannot be written (")) << status;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2);
  EXPECT_EQ(ReadSecretFile("--token-file", file).value(), "older");
  ExpectRefused(file + "/secret", absl::StatusCode::kFailedPrecondition, "cannot be read");
}

}  // namespace
}  // namespace legoai::launch
