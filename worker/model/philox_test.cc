#include "worker/model/philox.h"

#include <gtest/gtest.h>

#include <vector>

namespace legoai::model {
namespace {

// Known answers published with the algorithm (Random123, kat_vectors, philox4x32 with 10 rounds).
TEST(PhiloxTest, GivesPublishedAnswers) {
  struct Case {
    uint32_t counter[4];
    uint64_t key;
    uint32_t expected[4];
  };
  const Case cases[] = {
      {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  PhiloxLanes<1> one;
  for (const Case& c : cases) {
    for (int word = 0; word < 4; ++word) one.word[word][0] = c.counter[word];
    Philox(&one, c.key);
    for (int word = 0; word < 4; ++word) EXPECT_EQ(one.word[word][0], c.expected[word]) << "word " << word;
  }
}

TEST(PhiloxTest, LanesDoNotMix) {
  PhiloxLanes<16> many;
  for (int lane = 0; lane < 16; ++lane) {
    for (int word = 0; word < 4; ++word) many.word[word][lane] = 1000 * lane + word;
  }
  PhiloxLanes<16> result = many;
  Philox(&result, 77);
  for (int lane = 0; lane < 16; ++lane) {
    PhiloxLanes<1> one;
    for (int word = 0; word < 4; ++word) one.word[word][0] = many.word[word][lane];
    Philox(&one, 77);
    for (int word = 0; word < 4; ++word) EXPECT_EQ(one.word[word][0], result.word[word][lane]);
  }
}

uint32_t DrawAt(const DropoutDraw& draw, int64_t position) {
  PhiloxLanes<1> words;
  DrawBlocks(draw, position / 4, &words);
  return words.word[position % 4][0];
}

// Runs that are resumed on another device, and checkpoints of today that are resumed by a later version, count on these.
TEST(DropoutDraw, StaysWhatItIs) {
  const DropoutDraw draw = DrawOf(/*seed=*/0x123456789a, /*step=*/77, /*sample=*/0x300000005, /*site=*/9);
  // By the definition: Philox of counter (position / 4, sample low, step, site << 16 | sample high) under key seed.
  EXPECT_EQ(draw.sample_low, 5u);
  EXPECT_EQ(draw.site_and_sample_high, 9u << 16 | 3u);
  for (const int64_t position : {0, 1, 2, 3, 4, 1003}) {
    PhiloxLanes<1> words{{{static_cast<uint32_t>(position / 4)}, {5}, {77}, {9u << 16 | 3u}}};
    Philox(&words, 0x123456789a);
    EXPECT_EQ(DrawAt(draw, position), words.word[position % 4][0]) << position;
  }
  EXPECT_EQ(DrawAt(DrawOf(0, 0, 0, 0), 0), 0x6627e8d5u);  // Random123's known answer for zeros
  EXPECT_EQ(DrawAt(DrawOf(0, 0, 0, 0), 3), 0x9b00dbd8u);
}

TEST(DropoutDraw, FactorsAreThoseOfTheProbability) {
  EXPECT_EQ(FactorOf(0).Of(0), 1.0f);
  const DropoutFactor quarter = FactorOf(0.25);
  EXPECT_EQ(quarter.Of((1u << 30) - 1), 0.0f);
  EXPECT_EQ(quarter.Of(1u << 30), static_cast<float>(1 / 0.75));
  EXPECT_EQ(FactorOf(0.9999999999).Of(4294967294u), 0.0f);
}

// A GPU's threads, one after another: each element is written once, as the draws say, and nothing beside them.
TEST(DropoutDraw, BlocksCoverEveryElementOnce) {
  for (const int64_t batch : {1, 3}) {
    for (const int64_t size : {1, 3, 4, 5, 64, 66, 259}) {
      std::vector<float> x(batch * size), out(batch * size + 4, -1);
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
      const std::vector<int64_t> rng = {11, 12}, samples = {5, int64_t{1} << 33, 7};
      const DropoutCall<float> call{x.data(), out.data(), rng.data(), samples.data(), batch, size, 4, FactorOf(0.5), {}};
      ASSERT_EQ(call.Blocks(), batch * ((size + 3) / 4));
      for (int64_t block = call.Blocks() - 1; block >= 0; --block) DropBlock(call, block);
      for (int64_t row = 0; row < batch; ++row) {
        const DropoutDraw draw = DrawOf(11, 12, samples[row], 4);
        for (int64_t i = 0; i < size; ++i) {
          ASSERT_EQ(out[row * size + i], x[row * size + i] * (DrawAt(draw, i) < 1u << 31 ? 0.0f : 2.0f)) << size << " " << i;
        }
      }
      for (size_t i = x.size(); i < out.size(); ++i) EXPECT_EQ(out[i], -1);
    }
  }
}

}  // namespace
}  // namespace legoai::model
