#include "proto/nearest.h"

#include <gtest/gtest.h>

namespace legoai {
namespace {

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("seq_len", "seq_len"), 0);
  EXPECT_EQ(EditDistance("seq_lne", "seq_len"), 1);
  EXPECT_EQ(EditDistance("step", "steps"), 1);
}

TEST(EditDistance, IsSymmetric) { EXPECT_EQ(EditDistance("sunday", "saturday"), EditDistance("saturday", "sunday")); }

TEST(Nearest, TakesTheSmallestAndTheFirstOfEquals) {
  EXPECT_EQ(Nearest("batchsize", {"seq_len", "local_batch_size", "batch"}), "batch");
  EXPECT_EQ(Nearest("ab", {"ax", "xb"}), "ax");
  EXPECT_EQ(Nearest("ab", {}), "");
  EXPECT_EQ(Nearest("ab" + std::string(16 << 20, 'x'), {"cd", "ab"}), "ab") << "in no time and memory to speak of";
}

}  // namespace
}  // namespace legoai
