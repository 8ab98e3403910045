#include "tests/fuzz/mutate.h"

#include <gtest/gtest.h>

#include <set>

namespace legoai::fuzz {
namespace {

const std::vector<std::string> kCorpus = {"[training]\nsteps = 10\n", std::string(300, '\0'), ""};
const std::vector<std::string> kTokens = {"[", "steps", "\""};

TEST(Mutate, TheSeedAloneDecides) {
  for (uint64_t seed = 0; seed < 200; ++seed) EXPECT_EQ(Mutate(seed, kCorpus, kTokens), Mutate(seed, kCorpus, kTokens));
}

TEST(Mutate, GivesManyOfBoundedSize) {
  std::set<std::string> different;
  size_t largest = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const std::string mutant = Mutate(seed, kCorpus, kTokens);
    largest = std::max(largest, mutant.size());
    different.insert(mutant);
  }
  EXPECT_GT(different.size(), 1000u);
  EXPECT_LE(largest, kMostBytes);
  EXPECT_GT(largest, 1000u) << "nothing is repeated often";
}

// Each kind of damage happens.
TEST(Mutate, PutsNumbersTokensAndWords) {
  bool number = false, token = false, word = false, cut = false;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const std::string mutant = Mutate(seed, {"a = 10\n"}, {"token"});
    number = number || mutant.find("9223372036854775808") != std::string::npos;
    token = token || mutant.find("token") != std::string::npos;
    word = word || mutant.find(std::string(4, '\xff')) != std::string::npos;
    cut = cut || mutant == "a = ";
  }
  EXPECT_TRUE(number && token && word && cut) << number << token << word << cut;
}

}  // namespace
}  // namespace legoai::fuzz
