// Decoding with the cache is held against computing the whole sequence anew with the untouched model, for models that
// transformers made (worker/model/testdata), whose logits hf_truth_test holds against transformers.
#include "worker/generate/generate.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "core/model/hf_config.h"

namespace legoai::generate {
namespace {

class CachedModelTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    config_ = model::ReadHfConfig(Folder()).value();
  }
  std::string Folder() const { return std::string("worker/model/testdata/") + GetParam(); }

  std::unique_ptr<model::LanguageModel> Load(at::ScalarType dtype) const {
    auto built = model::BuildModel(config_).value();
    const auto weights = model::HfWeights::Open(Folder(), config_);
    EXPECT_TRUE(weights.ok()) << weights.status();
    for (model::Parameter* p : built->Parameters()) {
      const at::Tensor value = at::empty(p->local_shape, at::kFloat);
      EXPECT_TRUE(weights->Load(p->spec, value.mutable_data_ptr<float>()).ok());
      p->value = value.to(dtype);
    }
    return built;
  }

  // Logits of every position, [seq, vocab], fp32, by a model without a cache.
  at::Tensor Recompute(model::LanguageModel& whole, const std::vector<int64_t>& tokens) const {
    const at::Tensor input = at::tensor(tokens, at::kLong).unsqueeze(0);
    return whole(input).squeeze(0).to(at::kFloat);
  }

  std::unique_ptr<model::LanguageModel> Whole(at::ScalarType dtype) const {
    auto whole = Load(dtype);
    whole->context().training = false;
    whole->CreateBuffers(at::kCPU, dtype, config_.max_position_embeddings());
    return whole;
  }

  std::vector<int64_t> RandomTokens(int64_t count) const {
    const at::Tensor drawn = at::randint(config_.vocab_size(), {count}, at::kLong);
    return {drawn.data_ptr<int64_t>(), drawn.data_ptr<int64_t>() + count};
  }

  v1::Model config_;
};

TEST_P(CachedModelTest, LogitsAreThoseOfTheWholeSequence) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  at::manual_seed(seed);
  const auto whole = Whole(at::kFloat);
  const int64_t context = config_.max_position_embeddings();
  // A window of 4 or 5 ends within, with and after a prompt, and goes round many times.
  for (const int64_t prompt : {int64_t{1}, int64_t{4}, int64_t{5}, int64_t{6}, int64_t{9}, context - 3, context}) {
    const std::vector<int64_t> tokens = RandomTokens(context);
    const at::Tensor expected = Recompute(*whole, tokens);
    // Sums of the same numbers in another order, in fp32: one draw in thousands is above a tenth of this.
    const double most = 1e-4 * (1 + expected.abs().max().item<double>());
    CachedModel cached(Load(at::kFloat), at::kFloat, context);
    at::Tensor logits = cached.Feed(std::span(tokens).first(static_cast<size_t>(prompt)));
    for (int64_t at = prompt;; ++at) {
      ASSERT_EQ(logits.sizes(), at::IntArrayRef{config_.vocab_size()});
      EXPECT_LT((logits - expected[at - 1]).abs().max().item<double>(), most) << "after " << at << " of " << prompt;
      EXPECT_EQ(cached.length(), at);
      if (at == context) break;
      logits = cached.Feed(std::span(tokens).subspan(static_cast<size_t>(at), 1));
    }
    EXPECT_GT(expected.abs().max().item<double>(), 0.5);  // or the comparison would say little
  }
}

// In bf16 too: what the cache rounds is what attention reads without it.
TEST_P(CachedModelTest, GreedyTokensAreThoseOfRecomputation) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const uint64_t seed = std::random_device()();
    SCOPED_TRACE(testing::Message() << "seed " << seed << " " << dtype);
    at::manual_seed(seed);
    const auto whole = Whole(dtype);
    const int64_t context = config_.max_position_embeddings();
    std::vector<int64_t> tokens = RandomTokens(4);
    CachedModel cached(Load(dtype), dtype, context);
    at::Tensor logits = cached.Feed(tokens);
    while (static_cast<int64_t>(tokens.size()) < context) {
      const at::Tensor expected = Recompute(*whole, tokens)[-1];
      const int64_t next = logits.argmax().item<int64_t>(), most_likely = expected.argmax().item<int64_t>();
      // Kernels of other sizes round in another order; a token whose logit is as large within that may be taken as well.
      const double noise = dtype == at::kFloat ? 1e-4 : 0.1;
      EXPECT_LT((expected[most_likely] - expected[next]).item<double>(), noise) << tokens.size();
      tokens.push_back(next);
      logits = cached.Feed(std::span(tokens).last(1));
    }
  }
}

TEST_P(CachedModelTest, OfASlidingWindowTheCacheHasItsTokensAlone) {
  const int64_t of_one = CacheBytes(config_, 1, 4), window = config_.sliding_window();
  const int64_t context = config_.max_position_embeddings();
  EXPECT_EQ(of_one, 2 * config_.num_hidden_layers() * config_.num_key_value_heads() * config_.head_dim() * 4);
  EXPECT_EQ(CacheBytes(config_, 3, 4), 3 * of_one);
  int64_t positions = 0;
  for (int64_t block = 0; block < config_.num_hidden_layers(); ++block) {
    const bool has_window = window > 0 && (block % 2 == 0 || !config_.sliding_window_alternates());
    positions += has_window ? window : context;
  }
  EXPECT_EQ(CacheBytes(config_, context, 4), positions * of_one / config_.num_hidden_layers());
}

TEST_P(CachedModelTest, MoreThanTheContextIsRefused) {
  EXPECT_THROW(CachedModel(Load(at::kFloat), at::kFloat, config_.max_position_embeddings() + 1), c10::Error);
  CachedModel cached(Load(at::kFloat), at::kFloat, 4);
  cached.Feed(RandomTokens(3));
  EXPECT_THROW(cached.Feed(RandomTokens(2)), c10::Error);  // several at once only at first
  cached.Feed(RandomTokens(1));
  EXPECT_THROW(cached.Feed(RandomTokens(1)), c10::Error);
}

INSTANTIATE_TEST_SUITE_P(Models, CachedModelTest,
                         testing::Values("gemma", "gemma2", "gpt2", "gpt2-untied", "llama-gqa", "llama-narrow-heads",
                                         "llama-rope-scaled", "llama-tied", "llama-wide-heads", "mistral", "qwen2", "qwen3",
                                         "qwen3-window"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace legoai::generate
