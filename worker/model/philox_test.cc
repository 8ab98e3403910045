#include "worker/model/philox.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace legoai::model
