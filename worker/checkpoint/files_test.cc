#include "worker/checkpoint/files.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace legoai::checkpoint {
namespace {

std::string Path(const std::string& name) { return testing::TempDir() + "/files_test_" + name; }

TEST(FilesTest, WrittenInAnyOrderAndReadBack) {
  auto file = OutputFile::Create(Path("order"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->WriteAt(3, "def", 3).ok());
  EXPECT_TRUE(file->WriteAt(0, "abc", 3).ok());
  EXPECT_TRUE(file->Close().ok());
  EXPECT_EQ(ReadFile(Path("order")).value(), "abcdef");
}

TEST(FilesTest, MappingOutlivesTheNameAndMoves) {
  ASSERT_TRUE(WriteFile(Path("map"), "hello").ok());
  auto mapped = MappedFile::Open(Path("map"));
  ASSERT_TRUE(mapped.ok());
  MappedFile other = std::move(*mapped);
  std::filesystem::remove(Path("map"));
  EXPECT_EQ(other.bytes(), "hello");
}

TEST(FilesTest, EmptyFile) {
  ASSERT_TRUE(WriteFile(Path("empty"), "").ok());
  EXPECT_EQ(ReadFile(Path("empty")).value(), "");
}

TEST(FilesTest, RenameReplaces) {
  ASSERT_TRUE(WriteFile(Path("old"), "old").ok());
  ASSERT_TRUE(WriteFile(Path("new"), "new").ok());
  ASSERT_TRUE(RenameFile(Path("new"), Path("old")).ok());
  EXPECT_EQ(ReadFile(Path("old")).value(), "new");
  EXPECT_FALSE(std::filesystem::exists(Path("new")));
}

TEST(FilesTest, ErrorsNameThePathAndTheCause) {
  const absl::Status missing = MappedFile::Open("/no/such/file").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("/no/such/file"), std::string::npos) << missing;
  EXPECT_EQ(MappedFile::Open(testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RenameFile(Path("gone"), Path("x")).code(), absl::StatusCode::kNotFound);

  auto full = OutputFile::Create("/dev/full");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->WriteAt(0, "x", 1).code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace legoai::checkpoint
