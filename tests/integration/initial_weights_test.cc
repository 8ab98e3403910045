// Fine-tuning begins with the weights of a Hugging Face folder in whatever layout: the first loss is the one that the logits
// which transformers recorded for that folder give, and the next ones are those of one process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/tensor_layout.h"
#include "core/model/hf_config.h"
#include "core/recipe/recipe.h"
#include "tests/integration/train_in_processes.h"
#include "worker/model/hf_weights.h"
#include "worker/parallel/context_parallel.h"

namespace legoai::integration {
namespace {

constexpr int64_t kSequence = 12, kSequences = 2, kSteps = 4;

std::string Folder(const std::string& name) { return "worker/model/testdata/" + name; }

struct Recorded {
  std::vector<int64_t> tokens;  // [kSequences, length]
  std::vector<float> logits;    // [kSequences, length, vocab]
  int64_t length = 0, vocab = 0;
};

Recorded ReadRecorded(const std::string& name) {
  const auto reader = Must(checkpoint::SafetensorsReader::Open(Folder(name) + "/reference.safetensors"));
  const std::vector<int64_t> shape = Must(reader.Find("logits"))->shape;
  Recorded recorded;
  recorded.length = shape.at(1);
  recorded.vocab = shape.at(2);
  recorded.tokens.resize(kSequences * recorded.length);
  recorded.logits.resize(kSequences * recorded.length * recorded.vocab);
  Must(reader.Read("tokens", checkpoint::WholeOf({kSequences, recorded.length}), recorded.tokens.data()));
  Must(reader.Read("logits", checkpoint::WholeOf(shape), recorded.logits.data()));
  return recorded;
}

// Mean over the first kSequence positions of -log softmax(logits)[next token].
double LossOf(const Recorded& recorded) {
  double sum = 0;
  for (int64_t row = 0; row < kSequences; ++row) {
    for (int64_t at = 0; at < kSequence; ++at) {
      const float* logits = recorded.logits.data() + (row * recorded.length + at) * recorded.vocab;
      const double largest = *std::max_element(logits, logits + recorded.vocab);
      double total = 0;
      for (int64_t token = 0; token < recorded.vocab; ++token) total += std::exp(logits[token] - largest);
      sum += std::log(total) + largest - logits[recorded.tokens[row * recorded.length + at + 1]];
    }
  }
  return sum / (kSequences * kSequence);
}

Case Make(const std::string& name, int64_t shard, int64_t cp, int64_t tp, int64_t pp) {
  Case result;
  result.name = name;
  result.model = Must(model::ReadHfConfig(Folder(name)));
  result.model.set_embd_pdrop(0);
  result.model.set_attn_pdrop(0);
  result.model.set_resid_pdrop(0);
  result.world_size = shard * cp * tp * pp;
  v1::Recipe& recipe = result.recipe;
  recipe = parallel::DefaultRecipe();
  recipe.mutable_training()->set_global_batch_size(kSequences);
  recipe.mutable_training()->set_local_batch_size(kSequences / shard);
  recipe.mutable_training()->set_seq_len(kSequence);
  recipe.mutable_training()->set_mixed_precision_param(v1::FLOAT32);
  recipe.mutable_parallelism()->set_data_parallel_shard_degree(shard);
  recipe.mutable_parallelism()->set_context_parallel_degree(cp);
  recipe.mutable_parallelism()->set_tensor_parallel_degree(tp);
  recipe.mutable_parallelism()->set_pipeline_parallel_degree(pp);
  return result;
}

void FillTokens(train::StepInputs& inputs, const Recorded& recorded, const parallel::ResolvedRecipe& resolved, int64_t rank) {
  const int64_t rows = inputs.tokens.size(0), first = resolved.mesh().IndexOf(mesh::Dim::kDp, rank) * rows;
  auto* tokens = inputs.tokens.mutable_data_ptr<int64_t>();
  auto* targets = inputs.targets.mutable_data_ptr<int64_t>();
  for (int64_t row = first; row < first + rows; ++row) {
    inputs.samples.mutable_data_ptr<int64_t>()[row - first] = row;
    for (const model::TokenRun& run : parallel::TokensOfRank(resolved, rank)) {
      const int64_t* from = recorded.tokens.data() + row * recorded.length + run.first;
      tokens = std::copy(from, from + run.length, tokens);
      targets = std::copy(from + 1, from + 1 + run.length, targets);
    }
  }
  *inputs.learning_rate.mutable_data_ptr<float>() = 1e-3f;
}

std::vector<float> FineTune(const std::string& name, const Case& test_case, const Recorded& recorded) {
  const auto results = RunCase(test_case, [&](int64_t rank, comm::Runtime&, const parallel::ResolvedRecipe& resolved) {
    auto step = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
    const auto weights = Must(model::HfWeights::Open(Folder(name), test_case.model));
    for (const model::Parameter* parameter : step->optimizer().parameters())
      Must(weights.Load(parameter->spec, parameter->master.mutable_data_ptr<float>()));
    FillTokens(step->inputs(), recorded, resolved, rank);
    std::string losses;
    for (int64_t i = 0; i < kSteps; ++i) {
      const float loss = *Must(step->Run()).loss.const_data_ptr<float>();
      losses.append(reinterpret_cast<const char*>(&loss), sizeof loss);
    }
    return losses;
  });
  std::vector<float> losses(kSteps);
  for (const std::string& bytes : results) {
    EXPECT_EQ(bytes, results[0]) << "ranks tell different losses";
    if (bytes.size() == kSteps * sizeof(float)) std::memcpy(losses.data(), bytes.data(), bytes.size());
  }
  return losses;
}

class InitialWeights : public testing::TestWithParam<const char*> {};

TEST_P(InitialWeights, GiveTheSameLossesInEveryLayout) {
  const std::string name = GetParam();
  const Recorded recorded = ReadRecorded(name);
  const std::vector<float> alone = FineTune(name, Make(name, 1, 1, 1, 1), recorded);
  EXPECT_NEAR(alone[0], LossOf(recorded), 1e-4);
  EXPECT_LT(alone.back(), alone[0]);
  struct Layout {
    const char* name;
    int64_t shard, cp, tp, pp;
  };
  for (const Layout& layout : {Layout{"fsdp2", 2, 1, 1, 1}, Layout{"tp2", 1, 1, 2, 1}, Layout{"pp2", 1, 1, 1, 2},
                               Layout{"cp2", 1, 2, 1, 1}, Layout{"fsdp2_tp2", 2, 1, 2, 1}, Layout{"tp2_pp2", 1, 1, 2, 2}}) {
    SCOPED_TRACE(layout.name);
    const Case test_case = Make(name, layout.shard, layout.cp, layout.tp, layout.pp);
    // A layout that this model does not allow is refused, and not trained.
    if (!parallel::ResolvedRecipe::Create(test_case.recipe, test_case.model, test_case.world_size).ok()) {
      const v1::Model& model = test_case.model;
      EXPECT_TRUE(layout.cp > 1 && model.sliding_window() > 0 && model.attn_logit_softcapping() == 0) << "refused";
      continue;
    }
    const std::vector<float> losses = FineTune(name, test_case, recorded);
    for (int64_t i = 0; i < kSteps; ++i) EXPECT_NEAR(losses[i], alone[i], 1e-4 * alone[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, InitialWeights,
                         testing::Values("llama-gqa", "mistral", "qwen2", "qwen3", "qwen3-window", "gemma", "gemma2", "gpt2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace legoai::integration
