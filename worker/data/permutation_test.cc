#include "worker/data/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace legoai::data {
namespace {

TEST(PermutationTest, EveryIndexOnce) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  for (int64_t size : {1, 2, 3, 4, 5, 15, 16, 17, 255, 256, 257, 1000, 65537}) {
    const Permutation permutation(size, seed, 7);
    std::vector<bool> seen(size, false);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t image = permutation(i);
      ASSERT_GE(image, 0);
      ASSERT_LT(image, size);
      ASSERT_FALSE(seen[image]) << size << " " << i;
      seen[image] = true;
    }
  }
}

TEST(PermutationTest, SeedAndEpochChooseIt) {
  const auto differ = [](const Permutation& a, const Permutation& b) {
    int different = 0;
    for (int64_t i = 0; i < 1000; ++i) different += a(i) != b(i);
    return different;
  };
  const Permutation base(1000, 1, 1);
  EXPECT_EQ(differ(base, Permutation(1000, 1, 1)), 0);
  EXPECT_GT(differ(base, Permutation(1000, 1, 2)), 900);
  EXPECT_GT(differ(base, Permutation(1000, 2, 1)), 900);
}

// Where index 0..9 of 10 go over 20000 epochs: chi-square with 9 degrees of freedom, far beyond the 1e-6 quantile if biased.
TEST(PermutationTest, EveryPlaceIsAsLikely) {
  for (int64_t index = 0; index < 10; ++index) {
    std::vector<double> counts(10, 0);
    for (uint64_t epoch = 0; epoch < 20000; ++epoch) ++counts[Permutation(10, 42, epoch)(index)];
    double chi_square = 0;
    for (double count : counts) chi_square += (count - 2000) * (count - 2000) / 2000;
    EXPECT_LT(chi_square, 45) << index;
  }
}

TEST(PermutationTest, NeighboursDoNotStayTogether) {
  const Permutation permutation(100000, 3, 0);
  double sum = 0;
  for (int64_t i = 0; i + 1 < 100000; ++i) sum += std::abs(permutation(i) - permutation(i + 1));
  EXPECT_NEAR(sum / 99999 / 100000, 1.0 / 3, 0.01);  // the mean distance of two random places
}

TEST(PermutationTest, LargeSizes) {
  const int64_t size = (int64_t{1} << 45) + 12345;
  const Permutation permutation(size, 5, 0);
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_GE(permutation(i), 0);
    EXPECT_LT(permutation(i), size);
  }
}

}  // namespace
}  // namespace legoai::data
