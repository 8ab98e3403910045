#include "worker/model/language_model.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>

#include "core/model/catalog.h"
#include "proto/errors.h"
#include "worker/model/hf_weights.h"
#include "worker/model/init.h"
#include "worker/model/llama_family.h"

namespace legoai::model {
namespace {

v1::Model Tiny(v1::Architecture architecture) {
  v1::Model config = Llama({.vocab = 61,
                            .hidden = 32,
                            .intermediate = 44,
                            .layers = 2,
                            .heads = 4,
                            .kv_heads = architecture == v1::LLAMA ? 2 : 4,
                            .positions = 32,
                            .initializer_range = 0.2});
  config.set_architecture(architecture);
  config.set_tie_word_embeddings(architecture == v1::GPT2);
  config.set_qkv_bias(architecture == v1::QWEN2);
  config.set_qk_norm(architecture == v1::QWEN3);
  config.set_sliding_window(architecture == v1::MISTRAL ? 3 : 0);
  if (architecture == v1::GEMMA2) {
    config.set_sliding_window(3);
    config.set_sliding_window_alternates(true);
    config.set_attn_logit_softcapping(2);
    config.set_final_logit_softcapping(3);
    config.set_query_pre_attn_scalar(6);
  }
  return config;
}

// Of a pipeline rank with these chunks; of none, the whole.
std::unique_ptr<LanguageModel> Build(const v1::Model& config, const std::vector<ChunkLayers>& chunks = {}) {
  auto model = BuildModel(config);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!chunks.empty()) (*model)->KeepLayers(chunks);
  for (Parameter* p : (*model)->Parameters()) {
    p->value = at::empty(p->local_shape, at::kFloat);
    FillParameter(p->spec, p->init, 1, p->value);
    p->value.set_requires_grad(true);
  }
  (*model)->CreateBuffers(at::kCPU, at::kFloat, 16);
  (*model)->context().rng = at::full({2}, 3, at::kLong);
  return *std::move(model);
}

at::Tensor Tokens(int64_t batch, int64_t seq) {
  at::manual_seed(5);
  return at::randint(61, {batch, seq}, at::kLong);
}

at::Tensor LogitsOf(LanguageModel& model, const at::Tensor& tokens, int64_t first_sample = 0) {
  model.context().samples = at::arange(first_sample, first_sample + tokens.size(0), at::kLong);
  return model(tokens);
}

class LanguageModelTest : public testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

// As printed by transformers' num_parameters() for the released models.
TEST_F(LanguageModelTest, ParameterCountsAreTheReleasedOnes) {
  const std::map<std::string, int64_t> released = {
      {"llama3-1b", 1235814400},       {"llama3-3b", 3212749824},       {"llama3-8b", 8030261248},
      {"llama3-70b", 70553706496},     {"llama3-405b", 405853388800},   {"gpt2", 124439808},
      {"gpt2-medium", 354823168},      {"gpt2-large", 774030080},       {"gpt2-xl", 1557611200},
      {"mistral-7b-v0.1", 7241732096}, {"mistral-7b-v0.3", 7248023552}, {"qwen2.5-0.5b", 494032768},
      {"qwen2.5-7b", 7615616512},      {"qwen3-0.6b", 596049920},       {"qwen3-8b", 8190735360},
      {"gemma-2b", 2506172416},        {"gemma-7b", 8537680896},        {"gemma2-2b", 2614341888},
      {"gemma2-9b", 9241705984},       {"gemma2-27b", 27227128320}};
  for (const auto& [name, count] : released) {
    auto config = ResolveModel(name);
    ASSERT_TRUE(config.ok()) << config.status();
    auto model = BuildModel(*config);
    ASSERT_TRUE(model.ok()) << model.status();
    int64_t total = 0;
    for (Parameter* p : (*model)->Parameters()) total += p->spec.GlobalElements();
    EXPECT_EQ(total, count) << name;
  }
}

TEST_F(LanguageModelTest, ParametersAreThoseOfTheHfFolder) {
  std::vector<v1::Model> configs = Catalog();
  configs.push_back(Tiny(v1::LLAMA));
  configs.push_back(Tiny(v1::GPT2));
  configs.back().set_tie_word_embeddings(false);
  configs.push_back(configs.back());
  configs.back().set_num_key_value_heads(2);
  configs.back().set_parallel_block(true);
  for (const v1::Model& config : configs) {
    std::map<std::string, std::vector<int64_t>> expected, got;
    for (const HfTensor& tensor : HfTensors(config)) {
      for (const std::string& name : tensor.parameters) expected[name] = tensor.parameter_shape;
    }
    auto model = BuildModel(config);
    ASSERT_TRUE(model.ok()) << model.status();
    for (Parameter* p : (*model)->Parameters()) {
      EXPECT_TRUE(got.emplace(p->name(), p->spec.global_shape).second) << p->name() << " twice";
    }
    EXPECT_EQ(got, expected) << config.name();
  }
}

TEST_F(LanguageModelTest, RopeTurnsPairsByTheAngleOfThePosition) {
  v1::Model config = Tiny(v1::LLAMA);
  StepContext context;
  MakeRopeTables(config, at::kCPU, at::kFloat, 16, &context);
  at::Tensor x = at::randn({1, 16, 1, 8});
  at::Tensor y = ApplyRope(x, context.rope_cos, context.rope_sin, /*first=*/0);
  const float *xs = x.const_data_ptr<float>(), *ys = y.const_data_ptr<float>();
  for (int t = 0; t < 16; ++t) {
    for (int i = 0; i < 4; ++i) {
      const double angle = t * std::pow(10000.0, -i / 4.0), a = xs[8 * t + i], b = xs[8 * t + i + 4];
      EXPECT_NEAR(ys[8 * t + i], a * std::cos(angle) - b * std::sin(angle), 1e-5);
      EXPECT_NEAR(ys[8 * t + i + 4], b * std::cos(angle) + a * std::sin(angle), 1e-5);
    }
  }
}

TEST_F(LanguageModelTest, LaterTokensDoNotChangeEarlierLogits) {
  for (v1::Architecture architecture : {v1::LLAMA, v1::GPT2, v1::MISTRAL, v1::QWEN2, v1::QWEN3, v1::GEMMA, v1::GEMMA2}) {
    for (double dropout : {0.0, 0.2}) {
      v1::Model config = Tiny(architecture);
      config.set_attn_pdrop(dropout);
      auto model = Build(config);
      at::Tensor tokens = Tokens(2, 12), other = tokens.clone();
      other.narrow(1, 7, 5).add_(1).remainder_(61);
      at::Tensor a = LogitsOf(*model, tokens), b = LogitsOf(*model, other);
      EXPECT_TRUE(at::allclose(a.narrow(1, 0, 7), b.narrow(1, 0, 7), 1e-5, 1e-6));
      EXPECT_FALSE(at::allclose(a.narrow(1, 7, 5), b.narrow(1, 7, 5), 1e-5, 1e-6));
    }
  }
}

// Two layers of a window of three see four tokens before a position; a window as long as the sequence is none, bit by bit.
TEST_F(LanguageModelTest, AWindowForgetsWhatIsBeforeIt) {
  v1::Model config = Tiny(v1::MISTRAL);
  auto model = Build(config);
  at::Tensor tokens = Tokens(2, 12), other = tokens.clone();
  other.narrow(1, 0, 4).add_(1).remainder_(61);
  at::Tensor a = LogitsOf(*model, tokens), b = LogitsOf(*model, other);
  EXPECT_TRUE(at::allclose(a.narrow(1, 8, 4), b.narrow(1, 8, 4), 1e-5, 1e-6));
  EXPECT_FALSE(at::allclose(a.narrow(1, 7, 1), b.narrow(1, 7, 1), 1e-5, 1e-6));
  config.set_sliding_window(12);
  const at::Tensor wide = LogitsOf(*Build(config), tokens);
  config.set_sliding_window(0);
  EXPECT_TRUE(at::equal(wide, LogitsOf(*Build(config), tokens)));
  EXPECT_FALSE(at::allclose(wide, a, 1e-3, 1e-3));
}

std::vector<at::Tensor> Gradients(LanguageModel& model, const at::Tensor& loss) {
  std::vector<at::Tensor> values;
  for (Parameter* p : model.Parameters()) values.push_back(p->value);
  return torch::autograd::grad({loss}, values);
}

// With a probability too small to drop anything, attention that materializes its probabilities must equal lego::attention.
TEST_F(LanguageModelTest, Gpt2sTwoAttentionsAgree) {
  v1::Model config = Tiny(v1::GPT2);
  auto fused = Build(config);
  config.set_attn_pdrop(1e-11);
  auto materialized = Build(config);
  EXPECT_EQ(fused->Buffers().size(), 0);
  ASSERT_EQ(materialized->Buffers().size(), 1);
  at::Tensor tokens = Tokens(3, 11), a = LogitsOf(*fused, tokens), b = LogitsOf(*materialized, tokens);
  EXPECT_TRUE(at::allclose(a, b, 1e-4, 1e-5));
  auto ga = Gradients(*fused, a.square().sum()), gb = Gradients(*materialized, b.square().sum());
  for (size_t i = 0; i < ga.size(); ++i)
    EXPECT_LT((ga[i] - gb[i]).norm().item<double>(), 1e-4 * ga[i].norm().item<double>() + 1e-3);
}

// By plain operators: x + attn(ln_1(x)) + mlp(ln_1(x)), two query heads to a head of keys and values.
at::Tensor ParallelBlock(const std::map<std::string, at::Tensor>& p, const at::Tensor& x) {
  const auto linear = [&](const at::Tensor& in, const std::string& name) {
    return at::linear(in, p.at(name + ".weight"), p.at(name + ".bias"));
  };
  const int64_t batch = x.size(0), seq = x.size(1), head_dim = 8;
  const at::Tensor normed = at::layer_norm(x, {x.size(2)}, p.at("ln_1.weight"), p.at("ln_1.bias"), 1e-5);
  const auto heads = [&](const std::string& name, int64_t copies) {
    const at::Tensor projected = linear(normed, name).view({batch, seq, -1, head_dim}).transpose(1, 2);
    return projected.repeat_interleave(copies, 1);
  };
  const at::Tensor scores = at::matmul(heads("attn.q_proj", 1), heads("attn.k_proj", 2).transpose(2, 3)) / std::sqrt(8.0);
  const at::Tensor later = at::ones({seq, seq}, at::kBool).triu(1);
  const at::Tensor seen = at::matmul(at::softmax(scores.masked_fill(later, -1e30), -1), heads("attn.v_proj", 2));
  const at::Tensor mixed = linear(seen.transpose(1, 2).reshape({batch, seq, -1}), "attn.c_proj");
  return x + mixed + linear(at::gelu(linear(normed, "mlp.c_fc"), "tanh"), "mlp.c_proj");
}

TEST_F(LanguageModelTest, AParallelBlockOfSharedKeysIsItsFormula) {
  v1::Model config = Tiny(v1::GPT2);
  config.set_num_key_value_heads(2);
  config.set_parallel_block(true);
  config.set_norm_eps(1e-5);
  auto model = Build(config);
  EXPECT_EQ(model->Attentions().size(), 2);
  Module& block = *model->layers()[1].module;
  std::map<std::string, at::Tensor> parameters;
  for (Parameter* p : block.Parameters()) parameters[p->name().substr(std::string("transformer.h.0.").size())] = p->value;
  EXPECT_EQ(parameters.size(), 14) << "one norm and six projections";
  const at::Tensor x = at::randn({2, 9, 32}), got = block(x), due = ParallelBlock(parameters, x);
  EXPECT_TRUE(at::allclose(got, due, 1e-4, 1e-5));
  for (const auto& [name, value] : parameters) {
    const at::Tensor a = torch::autograd::grad({block(x).square().sum()}, {value})[0];
    const at::Tensor b = torch::autograd::grad({ParallelBlock(parameters, x).square().sum()}, {value})[0];
    EXPECT_LT((a - b).norm().item<double>(), 1e-4 * b.norm().item<double>() + 1e-3) << name;
  }
}

TEST_F(LanguageModelTest, DropoutIsEqualForEverySplitIntoMicrobatches) {
  v1::Model config = Tiny(v1::GPT2);
  config.set_embd_pdrop(0.1);
  config.set_attn_pdrop(0.2);
  config.set_resid_pdrop(0.3);
  auto model = Build(config);
  at::Tensor tokens = Tokens(4, 9), whole = LogitsOf(*model, tokens, 20);
  at::Tensor second = LogitsOf(*model, tokens.narrow(0, 2, 2), 22);
  EXPECT_TRUE(at::allclose(second, whole.narrow(0, 2, 2), 1e-5, 1e-6));
  model->context().rng = at::full({2}, 4, at::kLong);
  EXPECT_FALSE(at::allclose(LogitsOf(*model, tokens, 20), whole, 1e-2, 1e-2));
  model->context().training = false;
  v1::Model plain = Tiny(v1::GPT2);
  EXPECT_TRUE(at::allclose(LogitsOf(*model, tokens), LogitsOf(*Build(plain), tokens), 1e-5, 1e-5));
}

TEST_F(LanguageModelTest, StagesInARowAreTheModel) {
  for (const bool tied : {false, true}) {
    v1::Model config = Tiny(v1::LLAMA);
    config.set_tie_word_embeddings(tied);
    auto whole = Build(config), first = Build(config, {{true, 0, 1, false}}), second = Build(config, {{false, 1, 2, true}});
    EXPECT_EQ(first->layers().size(), 2);
    ASSERT_EQ(second->layers().size(), 2);
    EXPECT_EQ(second->layers()[0].module->path(), "model.layers.1");
    EXPECT_EQ(first->Parameters().size() + second->Parameters().size(), whole->Parameters().size() + tied);
    at::Tensor tokens = Tokens(2, 8);
    EXPECT_TRUE(at::equal((*second)((*first)(tokens)), (*whole)(tokens)));
  }
}

// Each end of a pipeline has the tied weight under its one name; where both stay, it is there once.
TEST_F(LanguageModelTest, EndsOfATiedModelHaveTheWeightEach) {
  for (const v1::Architecture architecture : {v1::LLAMA, v1::GPT2}) {
    v1::Model config = Tiny(architecture);
    config.set_tie_word_embeddings(true);
    const std::string name = architecture == v1::LLAMA ? "model.embed_tokens.weight" : "transformer.wte.weight";
    const auto shared = [&](const std::vector<ChunkLayers>& chunks) {
      auto model = BuildModel(config).value();
      model->KeepLayers(chunks);
      std::vector<std::pair<bool, std::vector<int64_t>>> found;
      for (const Parameter* p : model->Parameters()) {
        EXPECT_NE(p->name(), "lm_head.weight");
        if (p->name() == name) found.emplace_back(p->spec.on_both_ends, p->local_shape);
      }
      return found;
    };
    using Found = std::vector<std::pair<bool, std::vector<int64_t>>>;
    const std::vector<int64_t> shape = {config.vocab_size(), config.hidden_size()};
    EXPECT_EQ(shared({{true, 0, 1, false}}), (Found{{true, shape}}));
    EXPECT_EQ(shared({{false, 1, 2, true}}), (Found{{true, shape}}));
    EXPECT_EQ(shared({{false, 1, 2, false}}), Found{});
    EXPECT_EQ(shared({{true, 0, 1, false}, {false, 1, 2, true}}), (Found{{false, shape}}));
  }
}

TEST_F(LanguageModelTest, RefusesConfigsThatDoNotFit) {
  const auto field = [](v1::Model config) {
    auto model = BuildModel(config);
    auto violation = GetFieldViolation(model.status());
    return violation ? violation->field() : "";
  };
  v1::Model config = Tiny(v1::LLAMA);
  config.set_architecture(v1::ARCHITECTURE_UNSPECIFIED);
  EXPECT_EQ(field(config), "model.architecture");
  config = Tiny(v1::LLAMA);
  config.set_num_key_value_heads(3);
  EXPECT_EQ(field(config), "model.num_key_value_heads");
  config = Tiny(v1::LLAMA);
  config.set_vocab_size(0);
  EXPECT_EQ(field(config), "model.vocab_size");
  config = Tiny(v1::LLAMA);
  config.set_head_dim(7);
  EXPECT_EQ(field(config), "model.head_dim");
  config = Tiny(v1::MISTRAL);
  config.set_sliding_window(-1);
  EXPECT_EQ(field(config), "model.sliding_window");
  config = Tiny(v1::GPT2);
  config.set_hidden_size(36);
  EXPECT_EQ(field(config), "model.num_attention_heads");
}

TEST_F(LanguageModelTest, RefusesSequencesBeyondItsTables) {
  auto model = Build(Tiny(v1::LLAMA));
  EXPECT_THROW(LogitsOf(*model, Tokens(1, 17)), c10::Error);
}

}  // namespace
}  // namespace legoai::model
