// What the ranks are given, checked on a text in which every sequence says its own number: "0000", "0001", …
#include "worker/train/batch_source.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/data/dataset_facts.h"
#include "core/recipe/recipe.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::train {
namespace {

constexpr int64_t kSeq = 4, kSequences = 200, kHeldOut = 20;

// A row as the step gets it.
struct Row {
  int64_t sample;
  std::string tokens, targets;
  bool operator==(const Row&) const = default;
};

class BatchSourceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    for (int64_t i = 0; i < kSequences; ++i) text_ += absl::StrFormat("%04d", i);
    text_ += "!";  // a sequence's last target is the token after it
    std::ofstream(folder_ + "/text.txt") << text_;
    model_.set_architecture(v1::LLAMA);
    model_.set_vocab_size(256);
    model_.set_hidden_size(16);
    model_.set_intermediate_size(32);
    model_.set_num_hidden_layers(2);
    model_.set_num_attention_heads(4);
    model_.set_num_key_value_heads(4);
    model_.set_head_dim(4);
    recipe_ = parallel::DefaultRecipe();
    recipe_.mutable_training()->set_dataset_path(folder_ + "/text.txt");
    recipe_.mutable_training()->set_seq_len(kSeq);
    recipe_.mutable_training()->set_global_batch_size(12);
    recipe_.mutable_training()->set_local_batch_size(3);
    recipe_.mutable_training()->set_validation_fraction(0.1);
    recipe_.mutable_training()->set_seed(5);
  }

  absl::StatusOr<std::unique_ptr<BatchSource>> Create(int64_t rank, int64_t world, int64_t next_sample = 0) {
    ASSIGN_OR_RETURN(const auto resolved, parallel::ResolvedRecipe::Create(recipe_, model_, world));
    rows_ = resolved.local_batch() * resolved.accumulation();
    ASSIGN_OR_RETURN(const auto dataset, data::DatasetFacts(recipe_.training().dataset_path()));
    return BatchSource::Create(resolved, dataset, rank, folder_, next_sample);
  }
  // Of a recipe that is known to be good.
  std::unique_ptr<BatchSource> Source(int64_t rank, int64_t world, int64_t next_sample = 0) {
    auto source = Create(rank, world, next_sample);
    EXPECT_TRUE(source.ok()) << source.status();
    return *std::move(source);
  }

  StepInputs Inputs() const {
    const auto options = at::TensorOptions(at::kLong);
    return {at::empty({rows_, kSeq}, options), at::empty({rows_, kSeq}, options), at::empty({rows_}, options), {}, {}};
  }
  static std::vector<Row> RowsOf(const StepInputs& inputs) {
    const auto text = [](const at::Tensor& ids, int64_t row) {
      const int64_t* first = ids.const_data_ptr<int64_t>() + row * kSeq;
      return std::string(first, first + kSeq);
    };
    std::vector<Row> rows;
    for (int64_t row = 0; row < inputs.samples.size(0); ++row) {
      rows.push_back({inputs.samples.const_data_ptr<int64_t>()[row], text(inputs.tokens, row), text(inputs.targets, row)});
    }
    return rows;
  }
  std::vector<Row> Next(BatchSource& source) const {
    StepInputs inputs = Inputs();
    EXPECT_EQ(source.Next(inputs), absl::OkStatus());
    return RowsOf(inputs);
  }
  std::vector<Row> Validation(BatchSource& source, int64_t batch) const {
    StepInputs inputs = Inputs();
    EXPECT_EQ(source.Validation(batch, inputs), absl::OkStatus());
    return RowsOf(inputs);
  }
  // By sample, of all ranks over some steps.
  std::map<int64_t, Row> Dealt(int64_t world, int64_t steps) {
    std::map<int64_t, Row> dealt;
    for (int64_t rank = 0; rank < world; ++rank) {
      auto source = Source(rank, world);
      for (int64_t step = 0; step < steps; ++step) {
        for (const Row& row : Next(*source)) EXPECT_TRUE(dealt.emplace(row.sample, row).second) << "sample twice: " << row.sample;
      }
    }
    return dealt;
  }

  std::string folder_, text_;
  v1::Model model_;
  v1::Recipe recipe_;
  int64_t rows_ = 0;
};

TEST_F(BatchSourceTest, AnEpochHasEverySequenceOnceAndItsTargetsAreTheNextTokens) {
  // 180 sequences to train on are 15 steps of 12.
  const auto dealt = Dealt(/*world=*/2, /*steps=*/15);
  ASSERT_EQ(dealt.size(), static_cast<size_t>(kSequences - kHeldOut));
  std::set<std::string> seen;
  for (const auto& [sample, row] : dealt) {
    const int64_t sequence = std::stoi(row.tokens);
    EXPECT_LT(sequence, kSequences - kHeldOut) << "held out";
    EXPECT_EQ(row.tokens, text_.substr(sequence * kSeq, kSeq));
    EXPECT_EQ(row.targets, text_.substr(sequence * kSeq + 1, kSeq));
    EXPECT_TRUE(seen.insert(row.tokens).second);
  }
  EXPECT_EQ(dealt.begin()->first, 0);
  EXPECT_EQ(dealt.rbegin()->first, kSequences - kHeldOut - 1);
}

TEST_F(BatchSourceTest, AStepHasTheSameSamplesInEveryLayout) {
  const auto one = Dealt(1, 3);
  EXPECT_EQ(one.size(), 36u);
  EXPECT_EQ(Dealt(2, 3), one);
  EXPECT_EQ(Dealt(4, 3), one);
  recipe_.mutable_training()->set_local_batch_size(1);
  EXPECT_EQ(Dealt(3, 3), one);
}

TEST_F(BatchSourceTest, RanksOfOneReplicaGetTheSame) {
  recipe_.mutable_parallelism()->set_tensor_parallel_degree(2);
  recipe_.mutable_parallelism()->set_pipeline_parallel_degree(2);
  std::map<std::string, int> ranks_of;
  for (int64_t rank = 0; rank < 8; ++rank) {
    auto source = Source(rank, 8);
    std::string all;
    for (const Row& row : Next(*source)) all += row.tokens;
    ++ranks_of[all];
  }
  ASSERT_EQ(ranks_of.size(), 2u) << "data-parallel ranks";
  for (const auto& [rows, ranks] : ranks_of) EXPECT_EQ(ranks, 4);
}

TEST_F(BatchSourceTest, RanksOfContextParallelHavePartsOfTheSameSequences) {
  const std::vector<Row> whole = Next(*Source(0, 1));
  recipe_.mutable_parallelism()->set_context_parallel_degree(2);
  const int64_t length = kSeq / 4;
  for (int64_t rank = 0; rank < 2; ++rank) {
    auto source = Source(rank, 2);
    const auto options = at::TensorOptions(at::kLong);
    StepInputs inputs;
    inputs.tokens = at::empty({rows_, kSeq / 2}, options);
    inputs.targets = at::empty({rows_, kSeq / 2}, options);
    inputs.samples = at::empty({rows_}, options);
    ASSERT_EQ(source->Next(inputs), absl::OkStatus());
    // Of four quarters the middle ones, or the first and the last.
    const int64_t head = (1 - rank) * length, tail = (2 + rank) * length;
    for (int64_t row = 0; row < rows_; ++row) {
      const auto text = [&](const at::Tensor& ids) {
        const int64_t* first = ids.const_data_ptr<int64_t>() + row * kSeq / 2;
        return std::string(first, first + kSeq / 2);
      };
      EXPECT_EQ(inputs.samples.const_data_ptr<int64_t>()[row], whole[row].sample);
      EXPECT_EQ(text(inputs.tokens), whole[row].tokens.substr(head, length) + whole[row].tokens.substr(tail, length));
      EXPECT_EQ(text(inputs.targets), whole[row].targets.substr(head, length) + whole[row].targets.substr(tail, length));
    }
  }
}

TEST_F(BatchSourceTest, GoesOnWhereItWas) {
  auto whole = Source(1, 2);
  for (int step = 0; step < 4; ++step) Next(*whole);
  EXPECT_EQ(whole->next_sample(), 48);
  auto resumed = Source(1, 2, whole->next_sample());
  for (int step = 0; step < 20; ++step) EXPECT_EQ(Next(*resumed), Next(*whole)) << "into the second epoch, step " << step;
}

TEST_F(BatchSourceTest, TheSeedIsTheOrder) {
  const auto first = Dealt(1, 15);
  EXPECT_EQ(Dealt(1, 15), first);
  recipe_.mutable_training()->set_seed(6);
  const auto second = Dealt(1, 15);
  int same = 0;
  for (const auto& [sample, row] : first) same += second.at(sample).tokens == row.tokens;
  EXPECT_LT(same, 20) << "of 180, where one is due by chance";
}

TEST_F(BatchSourceTest, HeldOutSequencesComeOnceInTheOrderOfTheText) {
  std::map<int64_t, Row> seen;
  auto first = Source(0, 2), second = Source(1, 2);
  ASSERT_EQ(first->validation_batches(), 2) << "19 sequences are a batch of 12 and one of 7";
  EXPECT_EQ(first->ValidationTokens(1), 12 * kSeq);
  EXPECT_EQ(first->ValidationTokens(2), 19 * kSeq);
  for (auto* source : {first.get(), second.get()}) {
    for (int64_t batch = 0; batch < 2; ++batch) {
      for (const Row& row : Validation(*source, batch)) EXPECT_TRUE(seen.emplace(row.sample, row).second) << row.sample;
    }
  }
  ASSERT_EQ(seen.size(), 24u);
  for (const auto& [sample, row] : seen) {
    const size_t at = text_.size() - text_.size() / 10 + sample * kSeq;  // the last tenth is held out
    const bool padding = sample >= 19;
    EXPECT_EQ(row.targets, padding ? std::string(kSeq, static_cast<char>(-100)) : text_.substr(at + 1, kSeq)) << sample;
    EXPECT_TRUE(padding || row.tokens == text_.substr(at, kSeq)) << sample;
  }
  EXPECT_EQ(first->next_sample(), 0) << "evaluation takes no samples of the training";
}

// The mapped file is the same for whoever changes it: the ids are looked at again as they are used.
TEST_F(BatchSourceTest, AnIdThatNoTokenizerHasIsRefusedByItsPlace) {
  auto source = Source(0, 1);
  std::string cache;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().filename().string().rfind("tokens-", 0) == 0) cache = entry.path();
  }
  ASSERT_FALSE(cache.empty());
  const int64_t bytes = static_cast<int64_t>(std::filesystem::file_size(cache));
  std::fstream file(cache, std::ios::in | std::ios::out | std::ios::binary);
  const int64_t held_out = static_cast<int64_t>(text_.size()) / 10;
  const int32_t wrong = 256;
  file.seekp(bytes - 4 * (held_out - 6)).write(reinterpret_cast<const char*>(&wrong), 4);  // token 2 of the second sequence
  file.close();
  StepInputs inputs = Inputs();
  const absl::Status status = source->Validation(0, inputs);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  const auto fault = GetFieldViolation(status);
  ASSERT_TRUE(fault) << status;
  EXPECT_EQ(fault->field(), "token 2 of sample 1");
  EXPECT_EQ(fault->value(), "256");
  EXPECT_NE(fault->remedy().find(folder_), std::string::npos) << status;
}

TEST_F(BatchSourceTest, RefusesByName) {
  const auto refused = [&](int64_t world) {
    const auto source = Create(0, world);
    const auto violation = GetFieldViolation(source.status());
    return violation ? violation->field() : "accepted, or another error: " + source.status().ToString();
  };
  const v1::Recipe good = recipe_;
  model_.set_vocab_size(200);
  EXPECT_EQ(refused(1), "model.tokenizer_path");
  model_.set_vocab_size(256);
  recipe_.mutable_training()->set_seq_len(1000);
  EXPECT_EQ(refused(1), "training.dataset_path");
  recipe_ = good;
  recipe_.mutable_training()->set_validation_fraction(0.001);
  EXPECT_EQ(refused(1), "training.validation_fraction");
  recipe_ = good;
  recipe_.mutable_training()->set_dataset_path(folder_ + "/none");
  EXPECT_EQ(refused(1), "training.dataset_path");
}

}  // namespace
}  // namespace legoai::train
