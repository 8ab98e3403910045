#include "worker/data/text_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "proto/errors.h"

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

std::vector<int32_t> Count(int64_t size) {
  std::vector<int32_t> tokens(size);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

std::vector<int64_t> Range(int64_t first, int64_t last) {
  std::vector<int64_t> range(last - first);
  std::iota(range.begin(), range.end(), first);
  return range;
}

// The token that each row begins with; checks that rows are runs of the text and targets its continuation.
std::vector<int64_t> Starts(const TextDataset& dataset, const std::vector<int64_t>& samples, bool validation = false) {
  const int64_t length = dataset.seq_len();
  std::vector<int64_t> tokens(samples.size() * length, -1), targets(samples.size() * length, -1), starts;
  if (validation) dataset.ValidationBatch(samples, /*padding=*/-100, tokens.data(), targets.data());
  if (!validation) dataset.Batch(samples, tokens.data(), targets.data());
  for (size_t row = 0; row < samples.size(); ++row) {
    starts.push_back(tokens[row * length]);
    for (int64_t i = 0; i < length; ++i) {
      EXPECT_EQ(tokens[row * length + i], starts.back() + i);
      EXPECT_EQ(targets[row * length + i], starts.back() + i + 1);
    }
  }
  return starts;
}

TEST(TextDatasetTest, SplitsAndPacks) {
  const auto tokens = Count(1000);
  const auto dataset = TextDataset::Create(tokens, {.seq_len = 8, .validation_fraction = 0.1, .seed = 1}).value();
  EXPECT_EQ(dataset.training_tokens().size(), 900u);
  EXPECT_EQ(dataset.validation_tokens().front(), 900);
  EXPECT_EQ(dataset.training_sequences(), 112);   // 899 / 8
  EXPECT_EQ(dataset.validation_sequences(), 12);  // 99 / 8
  EXPECT_EQ(Starts(dataset, {0, 1, 11}, true), (std::vector<int64_t>{900, 908, 988}));
}

TEST(TextDatasetTest, BeyondTheLastHeldOutSequenceIsPadding) {
  const auto tokens = Count(1000);
  const auto dataset = TextDataset::Create(tokens, {.seq_len = 4, .validation_fraction = 0.01, .seed = 1}).value();
  ASSERT_EQ(dataset.validation_sequences(), 2);  // 9 / 4
  const std::vector<int64_t> samples = {1, 2, 3};
  std::vector<int64_t> rows(12), targets(12);
  dataset.ValidationBatch(samples, /*padding=*/-7, rows.data(), targets.data());
  EXPECT_EQ(rows, (std::vector<int64_t>{994, 995, 996, 997, 994, 995, 996, 997, 994, 995, 996, 997}));
  EXPECT_EQ(targets, (std::vector<int64_t>{995, 996, 997, 998, -7, -7, -7, -7, -7, -7, -7, -7}));
}

TEST(TextDatasetTest, EveryEpochIsAPermutationOfItsOwn) {
  const auto tokens = Count(801);
  const auto dataset = TextDataset::Create(tokens, {.seq_len = 8, .validation_fraction = 0, .seed = 5}).value();
  ASSERT_EQ(dataset.training_sequences(), 100);
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> order = Starts(dataset, Range(epoch * 100, epoch * 100 + 100));
    orders.insert(order);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < 100; ++i) ASSERT_EQ(order[i], i * 8);
  }
  EXPECT_EQ(orders.size(), 3u);
  const auto other = TextDataset::Create(tokens, {.seq_len = 8, .validation_fraction = 0, .seed = 6});
  EXPECT_FALSE(orders.contains(Starts(*other, Range(0, 100))));
}

TEST(TextDatasetTest, ASampleDoesNotDependOnItsBatch) {
  const auto tokens = Count(500);
  const auto dataset = TextDataset::Create(tokens, {.seq_len = 4, .validation_fraction = 0.2, .seed = 5}).value();
  const std::vector<int64_t> together = Starts(dataset, Range(0, 300));
  for (int64_t i = 299; i >= 0; --i) EXPECT_EQ(Starts(dataset, {i}), std::vector<int64_t>{together[i]});
}

void ExpectError(int64_t count, const TextDataset::Options& options, const std::string& field, const std::string& word) {
  const auto tokens = Count(count);
  const absl::Status status = TextDataset::Create(tokens, options).status();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(GetFieldViolation(status)->field(), field) << status;
  EXPECT_NE(status.message().find(word), std::string::npos) << status;
}

TEST(TextDatasetTest, TooShortAndOutOfRange) {
  ExpectError(100, {.seq_len = 0}, "training.seq_len", "at least 1");
  ExpectError(100, {.seq_len = 8, .validation_fraction = 1}, "training.validation_fraction", "below 1");
  ExpectError(100, {.seq_len = 8, .validation_fraction = -0.1}, "training.validation_fraction", "at least 0");
  ExpectError(100, {.seq_len = 8, .validation_fraction = std::nan("")}, "training.validation_fraction", "below 1");
  ExpectError(8, {.seq_len = 8}, "training.dataset_path", "shorter than one sequence; one sequence needs 9");
  ExpectError(0, {.seq_len = 8}, "training.dataset_path", "shorter than one sequence");
  ExpectError(100, {.seq_len = 8, .validation_fraction = 0.05}, "training.validation_fraction", "holds out 5 tokens");
  const auto tokens = Count(9);
  EXPECT_TRUE(TextDataset::Create(tokens, {.seq_len = 8}).ok());
}

TEST(TextDatasetTest, UnigramEntropyOfKnownDistributions) {
  EXPECT_EQ(UnigramEntropy({}).value(), 0);
  EXPECT_EQ(UnigramEntropy(std::vector<int32_t>{7, 7, 7}).value(), 0);
  EXPECT_NEAR(UnigramEntropy(Count(256)).value(), std::log(256), 1e-12);
  EXPECT_NEAR(UnigramEntropy(std::vector<int32_t>{1, 1, 1, 2}).value(), 0.75 * std::log(4.0 / 3) + 0.25 * std::log(4.0), 1e-12);
}

}  // namespace
}  // namespace legoai::data
