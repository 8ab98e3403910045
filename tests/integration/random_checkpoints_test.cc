// Checkpoints from any layout to any other, drawn at random: what one layout saved after two steps, another loads and saves again
// bit by bit, parameters and optimizer's state, and its next step has the loss that the first layout's next step has. Whether
// parameters are held in 16 bits beside masters is the layout's, too.
//   TEST_RANDOM_SEED=7 draws others; a test's name has its seed.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/checkpoint/chunks.h"
#include "core/checkpoint/manifest.h"
#include "core/recipe/resolved_recipe.h"
#include "tests/integration/random_cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/checkpoint/sharded_checkpoint.h"
#include "worker/train/trainer_state.h"

namespace legoai::integration {
namespace {

constexpr uint64_t kPairs = 24;
constexpr int64_t kSteps = 2;
constexpr char kBuild[] = "test";

// In the type that is computed with, if that has 16 bits.
void HoldBesideMasters(v1::Recipe* recipe) {
  const bool float16 = recipe->training().mixed_precision_param() == v1::FLOAT16;
  recipe->mutable_training()->set_dtype(float16 ? v1::FLOAT16 : v1::BFLOAT16);
  recipe->mutable_optimizer()->set_master_weights(true);
}

// A scale of float16 is a part of the state, too.
void ComputeIn(v1::DType precision, v1::Training* training) {
  training->set_mixed_precision_param(precision);
  training->clear_initial_loss_scale();
  if (precision != v1::FLOAT16 && training->dtype() == v1::FLOAT16) training->set_dtype(v1::BFLOAT16);  // beside masters, still
  if (precision != v1::FLOAT16) return;
  training->set_dtype(v1::FLOAT32);
  training->set_initial_loss_scale(256);
}

// Another legal layout of the same training.
Case OtherLayout(const Case& first, uint64_t seed) {
  while (true) {
    Case other = DrawCase(seed++);
    other.model = first.model;
    *other.recipe.mutable_optimizer() = first.recipe.optimizer();
    auto* training = other.recipe.mutable_training();
    training->set_global_batch_size(first.recipe.training().global_batch_size());
    training->set_seq_len(first.recipe.training().seq_len());
    training->set_max_norm(first.recipe.training().max_norm());
    training->set_seed(first.recipe.training().seed());
    training->set_dtype(first.recipe.training().dtype());
    ComputeIn(first.recipe.training().mixed_precision_param(), training);
    if (parallel::ResolvedRecipe::Create(other.recipe, other.model, other.world_size).ok()) return other;
  }
}

void Save(const std::string& root, train::TrainStep& step, comm::Runtime& runtime) {
  v1::CheckpointManifest facts;
  facts.set_step(kSteps);
  facts.set_build_version(kBuild);
  Must(checkpoint::SaveSharded(root, facts, train::CheckpointTensors(step.optimizer()), runtime, {}));
  if (runtime.rank() == 0) Must(checkpoint::CommitManifest(root, kSteps));
}

float LossOfStep(train::TrainStep& step, const Case& test_case, const parallel::ResolvedRecipe& resolved, int64_t rank,
                 int64_t i) {
  FillInputs(step.inputs(), test_case, resolved, rank, i);
  return *Must(step.Run()).loss.const_data_ptr<float>();
}

// Gives the loss of the step after the save.
float TrainAndSave(const Case& test_case, const std::string& root) {
  const auto losses = RunCase(test_case, [&](int64_t rank, comm::Runtime& runtime, const parallel::ResolvedRecipe& resolved) {
    auto step = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
    for (int64_t i = 0; i < kSteps; ++i) LossOfStep(*step, test_case, resolved, rank, i);
    Save(root, *step, runtime);
    return std::to_string(LossOfStep(*step, test_case, resolved, rank, kSteps));
  });
  return std::stof(losses.at(0));
}

float LoadAndSave(const Case& test_case, const std::string& from, const std::string& to) {
  const auto losses = RunCase(test_case, [&](int64_t rank, comm::Runtime& runtime, const parallel::ResolvedRecipe& resolved) {
    auto step = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/false));
    auto reader = Must(checkpoint::CheckpointReader::Open(from, kSteps, kBuild));
    Must(train::LoadTensors(reader, step->optimizer()));
    Save(to, *step, runtime);
    return std::to_string(LossOfStep(*step, test_case, resolved, rank, kSteps));
  });
  return std::stof(losses.at(0));
}

// All tensors of a checkpoint, whole.
std::map<std::string, std::string> Contents(const std::string& root) {
  auto reader = Must(checkpoint::CheckpointReader::Open(root, kSteps, kBuild));
  std::map<std::string, std::string> contents;
  for (const v1::CheckpointChunk& chunk : reader.manifest().chunks()) {
    const std::vector<int64_t> shape(chunk.global_shape().begin(), chunk.global_shape().end());
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    std::string& bytes = contents[chunk.name()];
    if (!bytes.empty()) continue;
    bytes.resize(elements * 4);
    Must(reader.ReadRectangle(chunk.name(), chunk.dtype(), shape, checkpoint::WholeOf(shape), bytes.data()));
  }
  return contents;
}

class RandomPair : public testing::TestWithParam<uint64_t> {};

TEST_P(RandomPair, GoesOnBitByBit) {
  Case saver = DrawLegalCases(1000 * GetParam(), 1)[0];
  const bool float16 = GetParam() % 4 == 0;
  ComputeIn(float16 ? v1::FLOAT16 : v1::FLOAT32, saver.recipe.mutable_training());
  if (float16) {
    saver.recipe.mutable_optimizer()->set_stochastic_rounding(false);
    saver.recipe.mutable_optimizer()->set_master_weights(false);
  }
  Case loader = OtherLayout(saver, 1000 * GetParam() + 500);
  const bool of_float32 = saver.recipe.training().dtype() == v1::FLOAT32;
  if (of_float32 && GetParam() % 3 != 0) HoldBesideMasters(&(GetParam() % 3 == 1 ? saver : loader).recipe);
  SCOPED_TRACE(testing::Message() << saver.model.ShortDebugString() << "\nsaved by " << saver.world_size << " ranks, "
                                  << saver.recipe.ShortDebugString() << "\nloaded by " << loader.world_size << " ranks, "
                                  << loader.recipe.ShortDebugString());
  const std::string root = testing::TempDir() + "/pair-" + std::to_string(GetParam());
  std::filesystem::remove_all(root);
  const float expected = TrainAndSave(saver, root + "/saved");
  const float actual = LoadAndSave(loader, root + "/saved", root + "/again");
  const bool rounded = float16 || saver.recipe.training().dtype() != loader.recipe.training().dtype();
  EXPECT_NEAR(actual, expected, (rounded ? 2e-2 : 1e-5) * expected) << "the loss is of the parameters that were loaded";
  const auto saved = Contents(root + "/saved"), again = Contents(root + "/again");
  EXPECT_GT(saved.size(), 5u);
  EXPECT_EQ(saved.count("optimizer.loss_scale"), float16 ? 1 : 0);
  ASSERT_EQ(again.size(), saved.size());
  for (const auto& [name, bytes] : saved) {
    ASSERT_TRUE(again.count(name)) << name;
    EXPECT_TRUE(again.at(name) == bytes) << name;
  }
}

// Parameters beside masters are what is computed with anyway, so that nothing of the training is another.
TEST(MasterWeights, TrainTheBitsOfMastersAlone) {
  const std::string root = testing::TempDir() + "/masters";
  int tried = 0;
  for (const Case& test_case : ParityCases()) {
    const bool wide = test_case.recipe.training().mixed_precision_param() == v1::FLOAT32;
    if (wide || !test_case.recipe.optimizer().master_weights()) continue;
    SCOPED_TRACE(test_case.name);
    std::filesystem::remove_all(root);
    Case alone = test_case;
    alone.recipe.mutable_training()->set_dtype(v1::FLOAT32);
    alone.recipe.mutable_optimizer()->set_master_weights(false);
    EXPECT_EQ(TrainAndSave(test_case, root + "/beside"), TrainAndSave(alone, root + "/alone"));
    EXPECT_TRUE(Contents(root + "/beside") == Contents(root + "/alone"));
    ++tried;
  }
  EXPECT_GT(tried, 8);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPair, testing::Range(FirstSeed(), FirstSeed() + kPairs),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace legoai::integration
