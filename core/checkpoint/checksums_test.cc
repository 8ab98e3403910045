#include "core/checkpoint/checksums.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <string>

namespace legoai::checkpoint {
namespace {

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
