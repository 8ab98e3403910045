#include "core/checkpoint/sha256.h"

#include <gtest/gtest.h>

#include <fstream>

namespace legoai::checkpoint {
namespace {

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
