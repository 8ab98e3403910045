#include "worker/generate/utf8_stream.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "proto/text.h"

namespace legoai::generate {
namespace {

std::string InPieces(const std::string& bytes, size_t most, std::mt19937_64* random) {
  Utf8Stream stream;
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = 1 + (*random)() % most;
    const std::string piece = stream.Add(bytes.substr(at, size));
    EXPECT_TRUE(IsUtf8(piece)) << "a piece is shown at once";
    text += piece;
    at += size;
  }
  return text + stream.Finish();
}

// Python 3: bytes.decode(errors="replace").
TEST(Utf8StreamTest, WhatIsNoUtf8IsReplacedAsPythonDoes) {
  const std::pair<const char*, const char*> recorded[] = {
      {"a\xc3\xa9z", "aéz"},
      {"\xf0\x9f\x98\x80", "😀"},
      {"\x80", "\ufffd"},
      {"\xff\xfe", "\ufffd\ufffd"},
      {"\xe2\x82", "\ufffd"},
      {"\xe2\x82z", "\ufffdz"},
      {"\xf0\x9f\x98", "\ufffd"},
      {"\xf0\x9fz\x98", "\ufffdz\ufffd"},
      {"\xc0\xaf", "\ufffd\ufffd"},
      {"\xe0\x80\x80", "\ufffd\ufffd\ufffd"},
      {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
      {"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},
      {"\xf5\x80", "\ufffd\ufffd"},
      {"\xc3\xc3\xa9", "\ufffdé"},
  };
  std::mt19937_64 random(1);
  for (const auto& [bytes, text] : recorded) {
    for (size_t most : {1, 2, 100}) EXPECT_EQ(InPieces(bytes, most, &random), text);
  }
}

TEST(Utf8StreamTest, AnyBytesGiveTheSameTextHoweverTheyAreCut) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const std::string parts[] = {"a", "é", "€", "😀", "\xff", "\xe2", "\x82", "\xf0\x9f", "\n", "\xed\xa0"};
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (size_t i = random() % 12; i > 0; --i) bytes += parts[random() % std::size(parts)];
    const std::string whole = InPieces(bytes, 1000, &random);
    EXPECT_EQ(InPieces(bytes, 1, &random), whole);
    EXPECT_EQ(InPieces(bytes, 3, &random), whole);
    if (IsUtf8(bytes)) {
      EXPECT_EQ(whole, bytes);
    }
  }
}

}  // namespace
}  // namespace legoai::generate
