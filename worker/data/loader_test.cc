#include "worker/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"

namespace legoai::data {
namespace {

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
