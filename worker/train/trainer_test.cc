// Trains a tiny Llama with real trainer processes, from Start to Exit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/launch/build_version.h"
#include "worker/launch/run_directory.h"
#include "worker/launch/run_training.h"
#include "worker/parallel/recipe.h"

namespace legoai::train {
namespace {

using launch::RunTraining;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TrainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    WriteText();
    request_.model = TinyLlama();
    request_.trainer = "worker/train/legoai-trainer";
    v1::Recipe& recipe = request_.recipe;
    recipe = parallel::DefaultRecipe();
    recipe.mutable_training()->set_dataset_path(folder_ + "/text.txt");
    recipe.mutable_training()->set_seq_len(16);
    recipe.mutable_training()->set_local_batch_size(2);
    recipe.mutable_training()->set_global_batch_size(4);
    recipe.mutable_training()->set_steps(6);
    recipe.mutable_training()->set_mixed_precision_param(v1::FLOAT32);
    recipe.mutable_optimizer()->set_lr(5e-3);
    recipe.mutable_lr_scheduler()->set_warmup_steps(2);
    recipe.mutable_checkpoint()->set_enable_checkpoint(true);
    recipe.mutable_metrics()->set_log_freq(1);
    recipe.mutable_comm()->set_train_timeout_seconds(20);
    callbacks_.metrics = [this](const v1::StepMetrics& metrics) {
      if (metrics.step() == stop_at_) stop_.Request(/*save=*/true);
    };
    callbacks_.log = [](const std::string& level, const std::string& text) {
      fprintf(stderr, "%s: %s\n", level.c_str(), text.c_str());
    };
  }

  // Words that repeat, so that there is something to learn.
  void WriteText() {
    std::mt19937 random(1);
    std::ofstream text(folder_ + "/text.txt");
    const char* const words[] = {"the ", "lord ", "said ", "unto ", "moses ", "and "};
    for (int i = 0; i < 2000; ++i) text << words[random() % 6];
  }

  static v1::Model TinyLlama() {
    v1::Model model;
    model.set_name("tiny");
    model.set_architecture(v1::LLAMA);
    model.set_vocab_size(256);
    model.set_hidden_size(16);
    model.set_intermediate_size(32);
    model.set_num_hidden_layers(2);
    model.set_num_attention_heads(4);
    model.set_num_key_value_heads(2);
    model.set_head_dim(4);
    model.set_max_position_embeddings(64);
    model.set_norm_eps(1e-5);
    model.set_rope_theta(10000);
    model.set_initializer_range(0.02);
    return model;
  }

  absl::StatusOr<launch::TrainOutcome> Train(const std::string& name, int64_t nproc) {
    request_.nproc = nproc;
    request_.recipe.mutable_job()->set_dump_folder(folder_ + "/" + name);
    return RunTraining(request_, callbacks_, &stop_);
  }
  // When the step is reported. Rank 1 is the last of two children of this thread.
  void SignalRank1(int signal_number, int64_t step) {
    callbacks_.metrics = [signal_number, step](const v1::StepMetrics& metrics) {
      if (metrics.step() != step) return;
      std::ifstream children(absl::StrCat("/proc/self/task/", gettid(), "/children"));
      pid_t pid = 0, last = 0;
      while (children >> pid) last = std::max(last, pid);
      kill(last, signal_number);
    };
  }
  std::string Checkpoints(const std::string& name) const { return launch::CheckpointsPath(folder_ + "/" + name); }

  // Loss of each step, over all attempts.
  std::map<int64_t, double> Losses(const std::string& name) const {
    std::map<int64_t, double> losses;
    for (const auto& entry : launch::LatestOfEachStep(*launch::ReadMetrics(folder_ + "/" + name))) {
      losses[entry.step()] = entry.loss();
    }
    return losses;
  }

  // A whole fp32 tensor of a checkpoint.
  std::vector<float> Tensor(const std::string& name, int64_t step, const std::string& tensor, std::vector<int64_t> shape) const {
    auto reader = checkpoint::CheckpointReader::Open(Checkpoints(name), step, launch::BuildVersion());
    EXPECT_TRUE(reader.ok()) << reader.status();
    std::vector<float> values(checkpoint::Volume(shape));
    EXPECT_EQ(reader->ReadRectangle(tensor, v1::FLOAT32, shape, checkpoint::WholeOf(shape), values.data()), absl::OkStatus());
    return values;
  }

  std::string folder_;
  launch::TrainRequest request_;
  launch::TrainCallbacks callbacks_;
  launch::StopPipe stop_;
  int64_t stop_at_ = -1;
};

TEST_F(TrainerTest, LearnsSavesEvaluatesAndExports) {
  v1::Recipe& recipe = request_.recipe;
  recipe.mutable_training()->set_steps(60);
  recipe.mutable_optimizer()->set_lr(2e-2);
  recipe.mutable_checkpoint()->set_interval(20);
  recipe.mutable_checkpoint()->set_keep_latest_k(2);
  recipe.mutable_checkpoint()->set_last_save_in_hf(true);
  recipe.mutable_metrics()->set_enable_tensorboard(true);
  recipe.mutable_metrics()->set_log_freq(10);
  recipe.mutable_validation()->set_enable(true);
  recipe.mutable_validation()->set_freq(30);
  request_.peak_flops_per_second = 1e11;
  const auto outcome = Train("run", 2);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->cause, v1::Exit::FINISHED);
  EXPECT_EQ(outcome->step, 60);
  std::vector<int64_t> steps;
  for (const auto& entry : outcome->metrics) steps.push_back(entry.step());
  EXPECT_THAT(steps, ElementsAre(1, 10, 20, 30, 40, 50, 60));
  const v1::StepMetrics &first = outcome->metrics.front(), &last = outcome->metrics.back();
  EXPECT_NEAR(first.loss(), std::log(256), 0.3) << "as good as guessing";
  EXPECT_LT(last.loss(), 0.8 * outcome->prepared.unigram_entropy);
  EXPECT_TRUE(outcome->metrics[3].has_validation_loss());
  EXPECT_LT(*outcome->validation_loss, outcome->metrics[3].validation_loss());
  EXPECT_GT(last.mfu(), 0);
  EXPECT_GT(last.peak_memory_bytes(), 4 * 4 * outcome->prepared.parameters / 2) << "weights, gradients, moments of one shard";
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints("run")), ElementsAre(40, 60));
  EXPECT_FALSE(std::filesystem::is_empty(launch::TensorboardPath(outcome->run_directory)));

  const auto exported = checkpoint::SafetensorsReader::Open(outcome->hf_directory);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_TRUE(std::filesystem::exists(outcome->hf_directory + "/config.json"));
  std::vector<float> norm(16);
  ASSERT_EQ(exported->Read("model.norm.weight", checkpoint::WholeOf({16}), norm.data()), absl::OkStatus());
  EXPECT_EQ(norm, Tensor("run", 60, "model.norm.weight", {16}));
}

// Stopped, gone on in another layout, stopped, gone on in a third: the losses are those of a run in one piece.
TEST_F(TrainerTest, GoesOnInAnyLayout) {
  request_.recipe.mutable_training()->set_steps(30);
  ASSERT_TRUE(Train("whole", 1).ok());
  const auto whole = Losses("whole");
  ASSERT_EQ(whole.size(), 30u);

  stop_at_ = 1;
  const auto first = Train("pieces", 2);  // FSDP 2
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->cause, v1::Exit::STOPPED);
  SignalRank1(SIGTERM, first->step + 1);  // one rank told to end stops all, after saving
  request_.recipe.mutable_parallelism()->set_tensor_parallel_degree(2);
  const auto second = Train("pieces", 2);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->resumed_from, first->step);
  EXPECT_EQ(second->cause, v1::Exit::STOPPED);
  callbacks_.metrics = nullptr;
  request_.recipe.mutable_parallelism()->set_tensor_parallel_degree(1);
  request_.recipe.mutable_parallelism()->set_pipeline_parallel_degree(2);
  const auto third = Train("pieces", 2);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->resumed_from, second->step);
  const auto pieces = Losses("pieces");
  ASSERT_EQ(pieces.size(), whole.size());
  for (const auto& [step, loss] : whole) EXPECT_NEAR(pieces.at(step), loss, 1e-4 * loss) << "step " << step;

  const std::vector<float> a = Tensor("whole", 30, "model.layers.1.mlp.up_proj.weight", {32, 16});
  const std::vector<float> b = Tensor("pieces", 30, "model.layers.1.mlp.up_proj.weight", {32, 16});
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-3) << i;
}

TEST_F(TrainerTest, StopsWithTheReasonWhenTheLossIsNotFinite) {
  request_.recipe.mutable_optimizer()->set_lr(1e30);
  request_.recipe.mutable_checkpoint()->set_interval(1);
  request_.recipe.mutable_training()->set_steps(50);
  const auto outcome = Train("run", 2);
  ASSERT_TRUE(GetFieldViolation(outcome.status()).has_value()) << outcome.status();
  EXPECT_EQ(GetFieldViolation(outcome.status())->field(), "optimizer.lr");
  EXPECT_THAT(outcome.status().message(), HasSubstr("the loss is"));
  EXPECT_FALSE(checkpoint::ListCheckpoints(Checkpoints("run"))->empty()) << "those from before are kept";
}

TEST_F(TrainerTest, ARankThatIsKilledEndsAllAndIsNamed) {
  request_.recipe.mutable_training()->set_steps(100000);
  request_.recipe.mutable_checkpoint()->set_enable_checkpoint(false);
  SignalRank1(SIGKILL, /*step=*/3);
  const auto outcome = Train("run", 2);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(outcome.status().message(), HasSubstr("rank 1"));
  EXPECT_THAT(outcome.status().message(), HasSubstr("was killed by signal 9"));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(std::filesystem::exists(launch::FlightRingPath(folder_ + "/run", rank) + ".json")) << rank;
  }
}

TEST_F(TrainerTest, AStoppedRankIsFound) {
  request_.recipe.mutable_training()->set_steps(100000);
  request_.recipe.mutable_comm()->set_train_timeout_seconds(2);
  request_.recipe.mutable_checkpoint()->set_enable_checkpoint(false);
  SignalRank1(SIGSTOP, /*step=*/3);
  const auto outcome = Train("run", 2);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(outcome.status().message(), HasSubstr("rank 1"));
  EXPECT_THAT(outcome.status().message(), HasSubstr("does not answer"));
}

// The disk is full, as far as the trainers can see: no file may grow beyond a few KiB.
TEST_F(TrainerTest, AFullDiskFailsAndKeepsWhatWasSaved) {
  request_.recipe.mutable_checkpoint()->set_interval(3);
  ASSERT_TRUE(Train("run", 2).ok());
  request_.recipe.mutable_training()->set_steps(9);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {50'000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  request_.recipe.mutable_comm()->set_trace_buf_size(10);
  const auto outcome = Train("run", 2);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kResourceExhausted) << outcome.status();
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints("run")), ElementsAre(3, 6));
  const auto again = Train("run", 2);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->resumed_from, 6);
  EXPECT_EQ(again->step, 9);
}

TEST_F(TrainerTest, ATornCheckpointIsRefusedByName) {
  ASSERT_TRUE(Train("run", 1).ok());
  const std::string file = checkpoint::StepDirectory(Checkpoints("run"), 6) + "/rank-00000.bin";
  ASSERT_TRUE(std::filesystem::exists(file));
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(100).put('x');
  request_.recipe.mutable_training()->set_steps(9);
  const auto outcome = Train("run", 1);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kDataLoss) << outcome.status();
  EXPECT_THAT(outcome.status().message(), HasSubstr("rank-00000.bin"));
}

TEST_F(TrainerTest, CudaTrainsOrAMissingGpuIsAFieldError) {
  request_.device = "cuda";
  const auto outcome = Train("run", 1);
  if (outcome.ok()) {  // there is a GPU, and the plugin has found it
    EXPECT_EQ(outcome->step, 6);
    return;
  }
  ASSERT_TRUE(GetFieldViolation(outcome.status()).has_value()) << outcome.status();
  EXPECT_EQ(GetFieldViolation(outcome.status())->field(), "device");
}

}  // namespace
}  // namespace legoai::train
