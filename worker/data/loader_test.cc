#include "worker/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

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

TEST_F(LoaderTest, HeldOutBatchesCoverTheHeldOutTextOnce) {
  ASSERT_EQ(dataset_->validation_sequences(), 49);  // 200 tokens
  for (int64_t dp_degree : {1, 2, 4}) {
    std::vector<int64_t> samples;
    for (int64_t rank = 0; rank < dp_degree; ++rank) {
      const Layout layout = MakeLayout(rank, dp_degree, 2, 8).value();
      const Loader loader(&*dataset_, layout, 0);
      ASSERT_EQ(loader.validation_batches(), 6);
      for (int64_t batch = 0; batch < 6; ++batch)
        for (const Row& row : Rows(layout, [&](auto*... out) { loader.Validation(batch, out...); })) {
          samples.push_back(row[0]);
          EXPECT_EQ(row[1], 1801 + row[0] * 4);
        }
    }
    std::sort(samples.begin(), samples.end());
    for (int64_t i = 0; i < 48; ++i) ASSERT_EQ(samples[i], i);
  }
  EXPECT_EQ(Loader(&*dataset_, MakeLayout(0, 1, 64, 64).value(), 0).validation_batches(), 1);
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
