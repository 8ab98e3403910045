#include "core/checkpoint/files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

namespace legoai::checkpoint {
namespace {

std::string Path(const std::string& name) { return testing::TempDir() + "/files_test_" + name; }

TEST(FilesTest, WrittenInAnyOrderAndReadBack) {
  auto file = OutputFile::Create(Path("order")).value();
  EXPECT_TRUE(file.WriteAt(3, "def", 3).ok());
  EXPECT_TRUE(file.WriteAt(0, "abc", 3).ok());
  EXPECT_TRUE(file.Close().ok());
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

TEST(FilesTest, AFileIsReplacedWholeOrNotAtAll) {
  namespace fs = std::filesystem;
  ASSERT_TRUE(ReplaceFile(Path("replaced"), "one").ok());
  ASSERT_TRUE(ReplaceFile(Path("replaced"), "two").ok());
  EXPECT_EQ(ReadFile(Path("replaced")).value(), "two");
  fs::create_directories(Path("taken"));
  EXPECT_FALSE(ReplaceFile(Path("taken"), "three").ok()) << "a folder has the name";
  EXPECT_FALSE(fs::exists(Path("taken.tmp")));
  EXPECT_FALSE(fs::exists(Path("replaced.tmp")));
}

TEST(FilesTest, FoldersAreMadeWhereTheyAreNot) {
  ASSERT_TRUE(MakeFolders(Path("made/inner")).ok());
  ASSERT_TRUE(MakeFolders(Path("made/inner")).ok()) << "it is there";
  ASSERT_TRUE(WriteFile(Path("made/inner/file"), "").ok());
  const absl::Status in_a_file = MakeFolders(Path("made/inner/file/folder"));
  EXPECT_NE(in_a_file.message().find("cannot make the folder"), std::string::npos) << in_a_file;
}

// A folder takes the place of another at once: who has the old one open still reads it, and nothing else is left.
TEST(FilesTest, AFolderReplacesAnother) {
  namespace fs = std::filesystem;
  const std::string root = Path("folders");
  fs::remove_all(root);
  fs::create_directories(root + "/new");
  ASSERT_TRUE(WriteFile(root + "/new/a", "1").ok());
  ASSERT_TRUE(ReplaceFolder(root + "/new", root + "/place").ok()) << "nothing was there";
  fs::create_directories(root + "/new");
  ASSERT_TRUE(WriteFile(root + "/new/b", "2").ok());
  ASSERT_TRUE(ReplaceFolder(root + "/new", root + "/place").ok());
  EXPECT_EQ(ReadFile(root + "/place/b").value(), "2");
  EXPECT_FALSE(fs::exists(root + "/place/a"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root), fs::directory_iterator()), 1);
  EXPECT_EQ(ReplaceFolder(root + "/none", root + "/place").code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(fs::exists(root + "/place/b"));
}

// Where names cannot be exchanged, no error and no kill between the two renames loses the folder.
TEST(FilesTest, AFolderReplacesAnotherInTwoSteps) {
  namespace fs = std::filesystem;
  const std::string root = Path("two_steps");
  fs::remove_all(root);
  for (const char* name : {"place", "new"}) {
    fs::create_directories(root + "/" + name);
    ASSERT_TRUE(WriteFile(root + "/" + name + "/a", name).ok());
  }
  const auto entries = [&] { return std::distance(fs::directory_iterator(root), fs::directory_iterator()); };
  EXPECT_EQ(ReplaceFolderInTwoSteps(root + "/none", root + "/place").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadFile(root + "/place/a").value(), "place") << "put back";
  EXPECT_TRUE(RestoreFolder(root + "/place").ok());
  EXPECT_EQ(entries(), 2);

  fs::rename(root + "/place", root + "/place.replaced");  // killed after the first rename
  EXPECT_TRUE(RestoreFolder(root + "/place").ok());
  EXPECT_EQ(ReadFile(root + "/place/a").value(), "place");
  EXPECT_EQ(entries(), 2);

  EXPECT_TRUE(ReplaceFolderInTwoSteps(root + "/new", root + "/place").ok());
  EXPECT_EQ(ReadFile(root + "/place/a").value(), "new");
  EXPECT_EQ(entries(), 1);

  fs::create_directories(root + "/place.replaced/inside");  // killed before the removal
  EXPECT_TRUE(RestoreFolder(root + "/place").ok());
  EXPECT_EQ(ReadFile(root + "/place/a").value(), "new");
  EXPECT_EQ(entries(), 1);
  EXPECT_TRUE(RestoreFolder(root + "/never").ok());
}

TEST(FilesTest, RemovesEntryByEntryAndNoTargetsOfLinks) {
  namespace fs = std::filesystem;
  const std::string root = Path("removed");
  fs::remove_all(root);
  fs::create_directories(root + "/folder/inner");
  fs::create_directories(root + "/other");
  ASSERT_TRUE(WriteFile(root + "/folder/inner/a", "1").ok());
  ASSERT_TRUE(WriteFile(root + "/other/b", "2").ok());
  fs::create_symlink(root + "/other", root + "/folder/link");
  int64_t calls = 0;
  ASSERT_TRUE(RemoveAll(root + "/folder", [&](int64_t) { ++calls; }).ok());
  EXPECT_EQ(calls, 4) << "file, folder, link, folder";
  EXPECT_FALSE(fs::exists(root + "/folder"));
  EXPECT_TRUE(fs::exists(root + "/other/b"));
  EXPECT_TRUE(RemoveAll(root + "/folder").ok()) << "nothing there";
}

// However large the data, there is word of it every few MiB, and in the end of all of it.
TEST(FilesTest, TellsOfWhatIsWritten) {
  int64_t told = 0, largest = 0;
  auto file = OutputFile::Create(Path("told"), [&](int64_t bytes) { told += bytes, largest = std::max(largest, bytes); }).value();
  const std::string data(70 << 20, 'x');
  ASSERT_TRUE(file.WriteAt(5, data.data(), data.size()).ok());
  EXPECT_EQ(told, static_cast<int64_t>(data.size()));
  EXPECT_LE(largest, kPieceBytes);
  ASSERT_TRUE(file.Close().ok());
  EXPECT_EQ(std::filesystem::file_size(Path("told")), 5 + data.size());
  std::filesystem::remove(Path("told"));
}

TEST(FilesTest, ErrorsNameThePathAndTheCause) {
  const absl::Status missing = MappedFile::Open("/no/such/file").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("/no/such/file"), std::string::npos) << missing;
  EXPECT_EQ(MappedFile::Open(testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RenameFile(Path("gone"), Path("x")).code(), absl::StatusCode::kNotFound);

  auto full = OutputFile::Create("/dev/full").value();
  EXPECT_EQ(full.WriteAt(0, "x", 1).code(), absl::StatusCode::kResourceExhausted);
}

// Bit by bit from the polynomial, reflected: x^32 + x^28 + x^27 + x^26 + x^25 + x^23 + ... (0x1EDC6F41).
uint32_t BitByBit(const std::string& data) {
  uint32_t crc = 0xffffffff;
  for (unsigned char byte : data) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
  }
  return ~crc;
}

TEST(Crc32cTest, KnownValues) {  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(std::string(32, '\0').data(), 32), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff').data(), 32), 0x62a8ab43u);
  EXPECT_EQ(Crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(Crc32c(nullptr, 0), 0u);
}

TEST(Crc32cTest, AnyLengthAndAlignmentAndInPieces) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::string data(random() % 3000, '\0');
    for (char& c : data) c = static_cast<char>(random());
    const size_t start = data.empty() ? 0 : random() % data.size();
    EXPECT_EQ(Crc32c(data.data() + start, data.size() - start), BitByBit(data.substr(start)));
    EXPECT_EQ(Crc32c(data.data() + start, data.size() - start, Crc32c(data.data(), start)), BitByBit(data));
  }
}

TEST(Sha256Test, ExamplesOfTheStandard) {  // FIPS 180-4's example values
  EXPECT_EQ(Sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256Test, FileHasTheDigestOfItsContents) {
  const std::string path = testing::TempDir() + "/sha256_test", contents(100000, 'x');
  std::ofstream(path) << contents;
  EXPECT_EQ(Sha256OfFile(path).value(), Sha256(contents));
  EXPECT_EQ(Sha256OfFile(path + ".none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Sha256OfFile(testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument) << "a folder";
}

TEST(Sha256Test, GivesUpWhenAsked) {
  const std::string path = testing::TempDir() + "/sha256_test", contents(3 << 20, 'x');
  std::ofstream(path) << contents;
  int asked = 0;
  EXPECT_EQ(Sha256OfFile(path, [&] { return ++asked == 2; }).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(Sha256OfFile(path, [] { return false; }).value(), Sha256(contents));
}

}  // namespace
}  // namespace legoai::checkpoint
