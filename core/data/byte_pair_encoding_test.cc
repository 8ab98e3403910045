#include "core/data/byte_pair_encoding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace legoai::data {
namespace {

std::vector<std::string> Bytes() {
  std::vector<std::string> tokens;
  for (int i = 0; i < 256; ++i) tokens.emplace_back(1, static_cast<char>(i));
  return tokens;
}

// The definition, word by word: look at all neighbours, join the first of the lowest rank, again.
std::vector<int32_t> BruteForce(const std::vector<std::string>& tokens, const std::string& piece) {
  const auto rank = [&](const std::string& bytes) { return std::find(tokens.begin(), tokens.end(), bytes) - tokens.begin(); };
  std::vector<std::string> parts;
  for (char c : piece) parts.emplace_back(1, c);
  while (true) {
    size_t best = tokens.size(), at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const size_t r = rank(parts[i] + parts[i + 1]);
      if (r < best) best = r, at = i;
    }
    if (best == tokens.size()) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + at + 1);
  }
  std::vector<int32_t> ids;
  for (const std::string& part : parts) ids.push_back(rank(part));
  return ids;
}

TEST(BytePairEncodingTest, AgreesWithTheDefinition) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    // Tokens are joined from earlier ones, as training makes them: a token that is whole pieces is then also reached by joining.
    std::vector<std::string> tokens = Bytes();
    std::vector<std::string> made = {"a", "b", "c"};
    for (int i = 0; i < 12; ++i) {
      const std::string token = made[random() % made.size()] + made[random() % made.size()];
      if (std::find(tokens.begin(), tokens.end(), token) != tokens.end()) continue;
      tokens.push_back(token);
      made.push_back(token);
    }
    const BytePairEncoding encoding(tokens);
    std::string piece(1 + random() % 40, ' ');
    for (char& c : piece) c = "abcx"[random() % 4];
    if (std::find(tokens.begin(), tokens.end(), piece) != tokens.end()) continue;
    std::vector<int32_t> ids;
    encoding.Encode(piece, ids);
    ASSERT_EQ(ids, BruteForce(tokens, piece)) << piece;
  }
}

TEST(BytePairEncodingTest, WholeTokensAndNothing) {
  std::vector<std::string> tokens = Bytes();
  tokens.push_back("word");  // no joins lead to it
  const BytePairEncoding encoding(tokens);
  std::vector<int32_t> ids;
  encoding.Encode("", ids);
  EXPECT_TRUE(ids.empty());
  encoding.Encode("word", ids);
  EXPECT_EQ(ids, std::vector<int32_t>{256});
}

// A piece of a million bytes: quadratic work would not end in time.
TEST(BytePairEncodingTest, LongPiece) {
  std::vector<std::string> tokens = Bytes();
  for (int length = 2; length <= 64; length *= 2) tokens.emplace_back(length, 'a');
  const BytePairEncoding encoding(tokens);
  std::vector<int32_t> ids;
  encoding.Encode(std::string(1 << 20, 'a'), ids);
  EXPECT_EQ(ids, std::vector<int32_t>((1 << 20) / 64, 256 + 5));
}

}  // namespace
}  // namespace legoai::data
