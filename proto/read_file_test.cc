#include "proto/read_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "proto/errors.h"

namespace legoai {
namespace {

namespace fs = std::filesystem;

class ReadFileTest : public testing::Test {
 protected:
  ReadFileTest() { fs::create_directories(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
    return Path(name);
  }
  const fs::path folder_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
};

void ExpectRefused(const std::string& path, absl::StatusCode code, const std::string& part) {
  const auto plain = ReadFile(path);
  const auto named = ReadFileOf("--recipe", path, kMostTextBytes, "give a file");
  EXPECT_EQ(plain.status().code(), code) << path << ": " << plain.status();
  EXPECT_EQ(named.status().code(), code) << path << ": " << named.status();
  EXPECT_EQ(GetFieldViolation(plain.status())->field(), path);
  EXPECT_EQ(GetFieldViolation(named.status())->field(), "--recipe");
  EXPECT_EQ(GetFieldViolation(named.status())->value(), path);
  for (const absl::Status& status : {plain.status(), named.status()})
    EXPECT_NE(status.message().find(part), std::string::npos) << status;
  EXPECT_NE(named.status().message().find("; give a file"), std::string::npos) << named.status();
}

TEST_F(ReadFileTest, GivesTheWholeContents) {
  for (const size_t size : {0, 1, 65535, 65536, 1 << 20}) {
    std::string text(size, 'x');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7);
    const auto read = ReadFile(Write("file", text));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(*read == text) << size;
  }
}

TEST_F(ReadFileTest, AFileThatSaysNoSizeIsReadToItsEnd) {
  const auto read = ReadFile("/proc/self/status");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_NE(read->find("VmPeak"), std::string::npos);
}

TEST_F(ReadFileTest, WhatIsNoRegularFileIsNamed) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  fs::create_directories("/tmp/read-file-test");
  std::strcpy(address.sun_path, "/tmp/read-file-test/socket");
  unlink(address.sun_path);
  const int listening = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ExpectRefused(Path(""), absl::StatusCode::kInvalidArgument, "is a folder, not a regular file");
  ExpectRefused("/dev/zero", absl::StatusCode::kInvalidArgument, "is a device, not a regular file");
  ExpectRefused("/dev/full", absl::StatusCode::kInvalidArgument, "is a device, not a regular file");
  ExpectRefused(Path("pipe"), absl::StatusCode::kInvalidArgument, "is a pipe, not a regular file");
  EXPECT_FALSE(ReadFile(address.sun_path).ok()) << "a socket";
  EXPECT_FALSE(OpenRegularFile(Path("pipe")).ok());
  close(listening);
  fs::remove_all("/tmp/read-file-test");
}

TEST_F(ReadFileTest, PathsThatLeadNowhere) {
  ExpectRefused(Path("none"), absl::StatusCode::kNotFound, "No such file or directory");
  ExpectRefused(Path(std::string(300, 'x')), absl::StatusCode::kInvalidArgument, "File name too long");
  ExpectRefused(Write("file", "") + "/below", absl::StatusCode::kInvalidArgument, "Not a directory");
  fs::create_symlink("circle", Path("circle"));
  ExpectRefused(Path("circle"), absl::StatusCode::kInvalidArgument, "Too many levels of symbolic links");
}

// A regular file by its mode, whose first page is mapped by nobody.
TEST_F(ReadFileTest, AnErrorWhileReadingIsTold) {
  ExpectRefused("/proc/self/mem", absl::StatusCode::kDataLoss, "cannot read: Input/output error");
}

TEST_F(ReadFileTest, NoMoreIsReadThanAllowed) {
  const std::string path = Write("file", "12345");
  EXPECT_EQ(ReadFile(path, 5).value(), "12345");
  const auto larger = ReadFile(path, 4);
  EXPECT_TRUE(absl::IsInvalidArgument(larger.status()));
  EXPECT_NE(larger.status().message().find("is too large: more than 4 bytes"), std::string::npos) << larger.status();
  EXPECT_FALSE(ReadFile("/proc/self/status", 10).ok()) << "grows beyond what it said";
  // Four terabytes without a block on the disk; nothing of it is taken.
  ASSERT_EQ(truncate(path.c_str(), int64_t{4} << 40), 0);
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  EXPECT_FALSE(ReadFile(path).ok());
  EXPECT_FALSE(ReadFileOf("a", path, kMostTextBytes, "b").ok());
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 1024) << "KiB";
}

TEST_F(ReadFileTest, AFolderIsListedInOrder) {
  Write("b", "");
  Write("a", "");
  EXPECT_EQ(ReadFolder(Path("")).value(), (std::vector<std::string>{Path("a"), Path("b")}));
  EXPECT_TRUE(absl::IsNotFound(ReadFolder(Path("none")).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFolder(Path("a")).status()));
}

}  // namespace
}  // namespace legoai
