#include "worker/data/text_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
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

class LoaderTest : public testing::Test {
 protected:
  LoaderTest() : tokens_(2001) {
    std::iota(tokens_.begin(), tokens_.end(), 0);
    dataset_ = TextDataset::Create(tokens_, {.seq_len = 4, .validation_fraction = 0.1, .seed = 3}).value();
  }

  using Row = std::vector<int64_t>;  // sample, tokens, targets

  std::vector<Row> Rows(const Layout& layout, const std::function<void(int64_t*, int64_t*, int64_t*)>& fill) {
    std::vector<int64_t> tokens(layout.Rows() * 4), targets(layout.Rows() * 4), samples(layout.Rows());
    fill(tokens.data(), targets.data(), samples.data());
    std::vector<Row> rows;
    for (int64_t i = 0; i < layout.Rows(); ++i) {
      Row row = {samples[i]};
      row.insert(row.end(), tokens.begin() + i * 4, tokens.begin() + i * 4 + 4);
      row.insert(row.end(), targets.begin() + i * 4, targets.begin() + i * 4 + 4);
      rows.push_back(row);
    }
    return rows;
  }

  // All rows of the next steps over all ranks of a layout, each step sorted.
  std::vector<std::vector<Row>> Steps(int64_t dp_degree, int64_t local_batch, int64_t global_batch, int64_t first,
                                      int64_t steps) {
    std::vector<std::vector<Row>> all(steps);
    for (int64_t rank = 0; rank < dp_degree; ++rank) {
      const Layout layout = MakeLayout(rank, dp_degree, local_batch, global_batch).value();
      Loader loader(&*dataset_, layout, first);
      for (auto& step : all) {
        const auto rows = Rows(layout, [&](auto*... out) { loader.Next(out...); });
        step.insert(step.end(), rows.begin(), rows.end());
      }
      EXPECT_EQ(loader.next_sample(), first + steps * global_batch);
    }
    for (auto& step : all) std::sort(step.begin(), step.end());
    return all;
  }

  std::vector<int32_t> tokens_;
  std::optional<TextDataset> dataset_;
};

TEST_F(LoaderTest, AStepTrainsOnTheSameSamplesInEveryLayout) {
  const auto expected = Steps(1, 24, 24, 0, 30);  // 450 sequences: into the second epoch
  for (size_t step = 0; step < expected.size(); ++step)
    for (size_t i = 0; i < expected[step].size(); ++i) ASSERT_EQ(expected[step][i][0], static_cast<int64_t>(step * 24 + i));
  for (int64_t dp_degree : {1, 2, 3, 4, 6, 8, 12, 24})
    for (int64_t local_batch = 1; local_batch <= 24 / dp_degree; ++local_batch)
      if (24 % (dp_degree * local_batch) == 0) {
        EXPECT_EQ(Steps(dp_degree, local_batch, 24, 0, 30), expected) << dp_degree << " " << local_batch;
      }
}

TEST_F(LoaderTest, ResumesInAnotherLayout) {
  const auto expected = Steps(2, 3, 12, 0, 10);
  const auto rest = Steps(4, 1, 12, 4 * 12, 6);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), expected.begin() + 4));
}

// Whatever the batch, the layout and the length of the text: each held-out sequence in one row, and nothing else has targets.
TEST_F(LoaderTest, EveryHeldOutSequenceIsSeenOnceInEveryLayout) {
  constexpr int64_t kPadding = -100;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const auto draw = [&](int64_t most) { return static_cast<int64_t>(1 + random() % most); };
  for (int round = 0; round < 200; ++round) {
    const int64_t held_out = draw(60), dp = draw(4), local_batch = draw(4), global_batch = dp * local_batch * draw(3);
    SCOPED_TRACE(absl::StrCat(held_out, " sequences, dp ", dp, ", batches ", local_batch, " and ", global_batch));
    const int64_t held_out_tokens = held_out * 4 + draw(4);
    const double fraction = (static_cast<double>(held_out_tokens) + 0.5) / 2001;
    const auto dataset = TextDataset::Create(tokens_, {.seq_len = 4, .validation_fraction = fraction, .seed = 3}).value();
    ASSERT_EQ(dataset.validation_sequences(), held_out);
    std::map<int64_t, int> seen;  // by the token that a sequence begins with
    int64_t batches = 0, padded = 0;
    for (int64_t rank = 0; rank < dp; ++rank) {
      const Loader loader(&dataset, MakeLayout(rank, dp, local_batch, global_batch).value(), 0);
      batches = loader.validation_batches();
      for (int64_t batch = 0; batch < batches; ++batch) {
        for (const Row& row : Rows(MakeLayout(rank, dp, local_batch, global_batch).value(),
                                   [&](auto*... out) { loader.Validation(batch, kPadding, out...); })) {
          const bool padding = row[0] >= held_out;
          padded += padding;
          if (!padding) ++seen[row[1]];
          for (int i = 0; i < 4; ++i) {
            EXPECT_EQ(row[5 + i], padding ? kPadding : row[1] + i + 1);
            EXPECT_LT(row[1 + i], 2001) << "legal ids in padding, too";
          }
        }
        EXPECT_EQ(loader.ValidationSequences(batch + 1), std::min((batch + 1) * global_batch, held_out));
      }
    }
    EXPECT_EQ(batches, (held_out + global_batch - 1) / global_batch);
    EXPECT_EQ(padded, batches * global_batch - held_out);
    ASSERT_EQ(static_cast<int64_t>(seen.size()), held_out);
    for (int64_t i = 0; i < held_out; ++i) EXPECT_EQ(seen[2001 - held_out_tokens + i * 4], 1) << i;
  }
}

TEST_F(LoaderTest, ImpossibleLayouts) {
  EXPECT_FALSE(MakeLayout(0, 2, 0, 8).ok());
  EXPECT_FALSE(MakeLayout(2, 2, 1, 8).ok());
  EXPECT_FALSE(MakeLayout(0, 2, 1, 0).ok());
  const absl::Status status = MakeLayout(0, 2, 3, 8).status();
  EXPECT_NE(status.message().find("training.global_batch_size = 8"), std::string::npos) << status;
  EXPECT_NE(status.message().find("2 x 3 = 6"), std::string::npos) << status;
}

}  // namespace
}  // namespace legoai::data
