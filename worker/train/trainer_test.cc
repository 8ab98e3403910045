// Trains a tiny Llama with real trainer processes, from Start to Exit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/tensor_layout.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "worker/train/testing/trainer_run.h"

namespace legoai::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TrainerTest : public testing::TrainerRun {};
class TrainerInBothModes : public testing::TrainerRunInBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, TrainerInBothModes, testing::BothModes(), testing::ModeName);

TEST_P(TrainerInBothModes, LearnsSavesEvaluatesAndExports) {
  recipe().mutable_training()->set_steps(60);
  recipe().mutable_optimizer()->set_lr(2e-2);
  recipe().mutable_checkpoint()->set_interval(20);
  recipe().mutable_checkpoint()->set_keep_latest_k(2);
  recipe().mutable_checkpoint()->set_last_save_in_hf(true);
  recipe().mutable_metrics()->set_enable_tensorboard(true);
  recipe().mutable_metrics()->set_log_freq(10);
  recipe().mutable_validation()->set_enable(true);
  recipe().mutable_validation()->set_freq(30);
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

// The phases are the step but for what the loop does between them; and nothing is exposed that does not communicate.
TEST_P(TrainerInBothModes, EachRankSaysWhereItsStepWent) {
  recipe().mutable_training()->set_steps(20);
  recipe().mutable_checkpoint()->set_enable_checkpoint(false);
  recipe().mutable_metrics()->set_log_freq(5);
  recipe().mutable_parallelism()->set_data_parallel_shard_degree(2);
  request_.peak_flops_per_second = 1e11;
  const auto outcome = Train("run", 2);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_FALSE(outcome->metrics.empty());
  for (const v1::StepMetrics& metrics : outcome->metrics) {
    ASSERT_EQ(metrics.ranks_size(), 2) << metrics.DebugString();
    EXPECT_EQ(metrics.hfu(), metrics.mfu()) << "nothing is recomputed";
    for (const v1::RankMetrics& row : metrics.ranks()) {
      const double sum = row.data_seconds() + row.forward_seconds() + row.backward_seconds() + row.optimizer_seconds();
      EXPECT_GT(row.forward_seconds(), 0);
      EXPECT_GT(row.backward_seconds(), row.forward_seconds() / 10);
      EXPECT_GT(row.optimizer_seconds(), 0);
      EXPECT_LE(sum, row.step_seconds() * (1 + 1e-9));
      EXPECT_GE(row.exposed_communication_seconds(), 0);
      EXPECT_LE(row.exposed_communication_seconds(), row.step_seconds());
      EXPECT_GT(row.peak_memory_bytes(), 0);
      std::set<std::string> kinds;
      for (const v1::CollectiveTime& collective : row.collectives()) {
        kinds.insert(absl::StrCat(collective.collective(), " of ", collective.group()));
        EXPECT_GT(collective.count(), 0);
        EXPECT_GE(collective.exposed_seconds(), 0);
        EXPECT_LE(collective.exposed_seconds(), collective.seconds() * (1 + 1e-9));
      }
      EXPECT_TRUE(kinds.count("all_gather of dp_shard")) << row.DebugString();
      EXPECT_TRUE(kinds.count("reduce_scatter of dp_shard")) << row.DebugString();
    }
  }
}

TEST_P(TrainerInBothModes, TracedStepsAreFilesAndTrainTheSame) {
  recipe().mutable_training()->set_steps(4);
  recipe().mutable_checkpoint()->set_enable_checkpoint(false);
  recipe().mutable_parallelism()->set_data_parallel_shard_degree(2);
  ASSERT_TRUE(Train("plain", 2).ok());
  recipe().mutable_metrics()->add_trace_steps(1);
  recipe().mutable_metrics()->add_trace_steps(3);
  recipe().mutable_metrics()->add_trace_ranks(1);
  std::vector<std::string> told;
  callbacks_.step_trace = [&](int64_t rank, const v1::StepTraceWritten& written) {
    told.push_back(absl::StrCat(rank, ": ", written.step()));
    EXPECT_TRUE(std::filesystem::exists(written.path())) << written.path();
  };
  const auto outcome = Train("traced", 2);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(told, ElementsAre("1: 1", "1: 3"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder() + "/traced/traces"), {}), 2);
  EXPECT_EQ(Losses("traced"), Losses("plain")) << "bit by bit";
}

// Whole parameters are gathered before the first step, by the ranks that record it and by those that do not.
TEST_P(TrainerInBothModes, OneRankTracesAFirstStepWithWholeParameters) {
  recipe().mutable_training()->set_steps(2);
  recipe().mutable_checkpoint()->set_enable_checkpoint(false);
  recipe().mutable_comm()->set_train_timeout_seconds(20);
  v1::Parallelism& parallelism = *recipe().mutable_parallelism();
  parallelism.set_data_parallel_shard_degree(2);
  parallelism.set_tensor_parallel_degree(2);
  parallelism.set_zero_stage(2);
  parallelism.set_fsdp_prefetch_depth(0);
  ASSERT_TRUE(Train("plain", 4).ok());
  recipe().mutable_metrics()->add_trace_steps(1);
  const auto outcome = Train("traced", 4);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(Losses("traced"), Losses("plain")) << "bit by bit";
}

// Nothing has been learned by the first evaluation, so each of 256 bytes is as likely; and every layout finds the same.
TEST_P(TrainerInBothModes, EveryLayoutFindsTheSameHeldOutLoss) {
  recipe().mutable_training()->set_steps(3);
  recipe().mutable_checkpoint()->set_enable_checkpoint(false);
  recipe().mutable_validation()->set_enable(true);
  recipe().mutable_validation()->set_freq(1);
  struct Layout {
    const char* name;
    int64_t shard, tp, pp;
  };
  std::vector<double> expected;
  for (const Layout& l : {Layout{"one", 1, 1, 1}, {"fsdp2", 2, 1, 1}, {"tp2", 1, 2, 1}, {"pp2", 1, 1, 2}}) {
    SCOPED_TRACE(l.name);
    recipe().mutable_parallelism()->set_data_parallel_shard_degree(l.shard);
    recipe().mutable_parallelism()->set_tensor_parallel_degree(l.tp);
    recipe().mutable_parallelism()->set_pipeline_parallel_degree(l.pp);
    const auto outcome = Train(l.name, l.shard * l.tp * l.pp);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    std::vector<double> losses;
    for (const auto& entry : outcome->metrics) losses.push_back(entry.validation_loss());
    ASSERT_EQ(losses.size(), 3u);
    if (expected.empty()) expected = losses;
    EXPECT_NEAR(losses[0], std::log(256), 0.1);
    EXPECT_LT(losses[2], losses[0] - 1e-3);
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5 * expected[i]) << i;
  }
}

// The mean over all held-out sequences, one at a time in one process, is what every batch and every layout finds: 29 of them,
// which no batch here divides and the largest exceeds, of very different losses. The weights are trained, and a step of this
// learning rate leaves them as they are.
TEST_P(TrainerInBothModes, TheHeldOutLossDependsOnNeitherBatchNorLayout) {
  std::string text = Words();
  text.resize(6000);
  for (int i = 0; i < 29 * 16 + 5; ++i) text += i % 48 < 16 ? 'm' : i % 48 < 32 ? text[i] : static_cast<char>('A' + i * i % 57);
  WriteText(text);
  recipe().mutable_training()->set_validation_fraction((29 * 16 + 5 + 0.5) / static_cast<double>(text.size()));
  recipe().mutable_training()->set_steps(40);
  recipe().mutable_optimizer()->set_lr(2e-2);
  recipe().mutable_checkpoint()->set_last_save_in_hf(true);
  const auto trained = Train("trained", 1);
  ASSERT_TRUE(trained.ok()) << trained.status();
  recipe().mutable_model()->set_initial_load_path(trained->hf_directory);
  recipe().mutable_checkpoint()->set_last_save_in_hf(false);
  recipe().mutable_checkpoint()->set_enable_checkpoint(false);
  recipe().mutable_optimizer()->set_lr(1e-30);
  recipe().mutable_training()->set_steps(1);
  recipe().mutable_validation()->set_enable(true);
  const auto held_out = [&](const std::string& name, int64_t ranks, int64_t local_batch, int64_t global_batch) {
    recipe().mutable_training()->set_local_batch_size(local_batch);
    recipe().mutable_training()->set_global_batch_size(global_batch);
    const auto outcome = Train(name, ranks);
    EXPECT_TRUE(outcome.ok() && outcome->validation_loss) << outcome.status();
    return outcome.ok() ? outcome->validation_loss.value_or(0) : 0;
  };
  const double expected = held_out("alone", 1, 1, 1);
  for (const auto& [local_batch, global_batch] :
       std::vector<std::pair<int64_t, int64_t>>{{2, 2}, {1, 3}, {4, 4}, {2, 8}, {32, 32}}) {
    const std::string name = absl::StrCat("one-", local_batch, "-", global_batch);
    EXPECT_NEAR(held_out(name, 1, local_batch, global_batch), expected, 1e-5 * expected) << name;
  }
  struct Layout {
    const char* name;
    int64_t replicate, shard, cp, tp, pp, microbatch;
    bool loss_parallel;
  };
  for (const Layout& l : {Layout{"dp2", 2, 1, 1, 1, 1, 1, true},
                          {"fsdp2", 1, 2, 1, 1, 1, 1, true},
                          {"cp2", 1, 1, 2, 1, 1, 1, true},
                          {"tp2", 1, 1, 1, 2, 1, 1, true},
                          {"tp2-whole-loss", 1, 1, 1, 2, 1, 1, false},
                          {"pp2", 1, 1, 1, 1, 2, 1, true},
                          {"pp2-2", 1, 1, 1, 1, 2, 2, true}}) {
    recipe().mutable_parallelism()->set_data_parallel_replicate_degree(l.replicate);
    recipe().mutable_parallelism()->set_data_parallel_shard_degree(l.shard);
    recipe().mutable_parallelism()->set_context_parallel_degree(l.cp);
    recipe().mutable_parallelism()->set_tensor_parallel_degree(l.tp);
    recipe().mutable_parallelism()->set_pipeline_parallel_degree(l.pp);
    recipe().mutable_parallelism()->set_pipeline_parallel_microbatch_size(l.microbatch);
    recipe().mutable_parallelism()->set_disable_loss_parallel(!l.loss_parallel);
    for (const auto& [local_batch, global_batch] : std::vector<std::pair<int64_t, int64_t>>{{2, 8}, {4, 24}}) {
      const std::string name = absl::StrCat(l.name, "-", global_batch);
      EXPECT_NEAR(held_out(name, 2, local_batch, global_batch), expected, 1e-5 * expected) << name;
    }
  }
}

// Where all sequences are alike, the loss of a step, which is that before its update, is the held-out loss after the step before.
TEST_P(TrainerInBothModes, TheHeldOutLossIsThatOfTheUpdatedModel) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "abcdefghijklmnop";
  WriteText(text);
  recipe().mutable_checkpoint()->set_enable_checkpoint(false);
  recipe().mutable_validation()->set_enable(true);
  recipe().mutable_validation()->set_freq(1);
  const auto outcome = Train("run", 2);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const auto& steps = outcome->metrics;
  ASSERT_EQ(steps.size(), 6u);
  for (size_t i = 1; i < steps.size(); ++i) {
    EXPECT_NEAR(steps[i].loss(), steps[i - 1].validation_loss(), 1e-5 * steps[i].loss()) << i;
    EXPECT_LT(steps[i].loss(), steps[i - 1].loss() - 1e-3) << i;
  }
}

// Stopped, gone on in another layout, stopped, gone on in a third: the losses are those of a run in one piece.
// No stop comes too late: what is asked when a step is reported reaches the ranks before the second checkpoint after it, since
// they wait for the launcher at every one.
TEST_P(TrainerInBothModes, GoesOnInAnyLayout) {
  recipe().mutable_training()->set_steps(30);
  recipe().mutable_checkpoint()->set_interval(3);
  ASSERT_TRUE(Train("whole", 1).ok());
  const auto whole = Losses("whole");
  ASSERT_EQ(whole.size(), 30u);

  stop_at_ = 1;
  const auto first = Train("pieces", 2);  // FSDP 2
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->cause, v1::Exit::STOPPED);
  SignalRank1(SIGTERM, first->step + 1);  // one rank told to end stops all, after saving
  recipe().mutable_parallelism()->set_tensor_parallel_degree(2);
  const auto second = Train("pieces", 2);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->resumed_from, first->step);
  EXPECT_EQ(second->cause, v1::Exit::STOPPED);
  callbacks_.metrics = nullptr;
  recipe().mutable_parallelism()->set_tensor_parallel_degree(1);
  recipe().mutable_parallelism()->set_pipeline_parallel_degree(2);
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

// Ranks that share sequences hold shards, each written once, and another layout goes on from them.
TEST_P(TrainerInBothModes, GoesOnFromContextParallelAndIntoIt) {
  recipe().mutable_training()->set_steps(20);
  recipe().mutable_checkpoint()->set_interval(2);
  ASSERT_TRUE(Train("whole", 1).ok());
  const auto whole = Losses("whole");
  int64_t before = 0;
  for (const int64_t cp : {2, 1, 2}) {
    recipe().mutable_parallelism()->set_context_parallel_degree(cp);
    stop_at_ = before == 0 ? 1 : before + 4;
    const auto piece = Train("pieces", 2);
    ASSERT_TRUE(piece.ok()) << piece.status();
    EXPECT_EQ(piece->resumed_from.value_or(0), before);
    before = piece->step;
  }
  const auto pieces = Losses("pieces");
  for (const auto& [step, loss] : pieces) EXPECT_NEAR(loss, whole.at(step), 1e-4 * loss) << "step " << step;
  EXPECT_EQ(static_cast<int64_t>(pieces.size()), before);
}

// Two ranks hold each key-value head: the checkpoint has it once, in its place, and any layout goes on from it.
TEST_P(TrainerInBothModes, GoesOnFromKeyValueHeadsThatRanksShare) {
  recipe().mutable_training()->set_steps(20);
  recipe().mutable_checkpoint()->set_interval(2);
  ASSERT_TRUE(Train("whole", 1).ok());
  stop_at_ = 1;
  recipe().mutable_parallelism()->set_tensor_parallel_degree(4);
  const auto first = Train("pieces", 4);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->cause, v1::Exit::STOPPED);
  SignalRank1(SIGTERM, first->step + 1);
  recipe().mutable_parallelism()->set_tensor_parallel_degree(2);
  const auto second = Train("pieces", 4);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->resumed_from, first->step);
  callbacks_.metrics = nullptr;
  recipe().mutable_parallelism()->set_tensor_parallel_degree(4);
  const auto third = Train("pieces", 4);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->resumed_from, second->step);
  const auto whole = Losses("whole"), pieces = Losses("pieces");
  ASSERT_EQ(pieces.size(), 20u);
  for (const auto& [step, loss] : whole) EXPECT_NEAR(pieces.at(step), loss, 1e-4 * loss) << "step " << step;
  const std::vector<float> a = Tensor("whole", 20, "model.layers.1.self_attn.k_proj.weight", {8, 16});
  const std::vector<float> b = Tensor("pieces", 20, "model.layers.1.self_attn.k_proj.weight", {8, 16});
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-3) << i;
}

// Both ends of the pipeline hold the embedding: the checkpoint has it once, and any layout goes on from it.
TEST_P(TrainerInBothModes, GoesOnFromATiedEmbeddingOnBothEndsOfAPipeline) {
  request_.model.set_tie_word_embeddings(true);
  recipe().mutable_training()->set_steps(20);
  recipe().mutable_checkpoint()->set_interval(2);
  ASSERT_TRUE(Train("whole", 1).ok());
  stop_at_ = 1;
  recipe().mutable_parallelism()->set_pipeline_parallel_degree(2);
  const auto first = Train("pieces", 4);  // FSDP 2
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->cause, v1::Exit::STOPPED);
  SignalRank1(SIGTERM, first->step + 1);
  recipe().mutable_parallelism()->set_pipeline_parallel_degree(1);
  const auto second = Train("pieces", 2);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->resumed_from, first->step);
  callbacks_.metrics = nullptr;
  recipe().mutable_parallelism()->set_pipeline_parallel_degree(2);
  const auto third = Train("pieces", 2);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->resumed_from, second->step);
  const auto whole = Losses("whole"), pieces = Losses("pieces");
  ASSERT_EQ(pieces.size(), 20u);
  for (const auto& [step, loss] : whole) EXPECT_NEAR(pieces.at(step), loss, 1e-4 * loss) << "step " << step;
  const std::vector<int64_t> shape = {request_.model.vocab_size(), request_.model.hidden_size()};
  const std::vector<float> a = Tensor("whole", 20, "model.embed_tokens.weight", shape);
  const std::vector<float> b = Tensor("pieces", 20, "model.embed_tokens.weight", shape);
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-3) << i;
}

// Parameters and state in bf16, rounded at random: what is stopped and goes on is rounded as what runs on; the folder that is
// left holds the same numbers in fp32; and a run held in one type does not go on in another.
TEST_P(TrainerInBothModes, HeldInBf16GoesOnBitByBit) {
  recipe().mutable_training()->set_dtype(v1::BFLOAT16);
  recipe().mutable_training()->set_mixed_precision_param(v1::BFLOAT16);
  recipe().mutable_optimizer()->set_stochastic_rounding(true);
  recipe().mutable_training()->set_steps(12);
  recipe().mutable_checkpoint()->set_interval(2);
  recipe().mutable_checkpoint()->set_last_save_in_hf(true);
  const auto whole = Train("whole", 2);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_LT(whole->metrics.back().loss(), whole->metrics.front().loss());
  const auto second = TrainInPieces(1);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(Losses("pieces"), Losses("whole"));
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  const std::vector<float> values = Tensor("pieces", 12, name, {32, 16});
  EXPECT_EQ(values, Tensor("whole", 12, name, {32, 16}));
  const auto exported = checkpoint::SafetensorsReader::Open(second->hf_directory);
  ASSERT_TRUE(exported.ok()) << exported.status();
  std::vector<float> written(32 * 16);
  ASSERT_EQ(exported->Read(name, checkpoint::WholeOf({32, 16}), written.data()), absl::OkStatus());
  EXPECT_EQ(written, values);

  recipe().mutable_training()->set_steps(14);
  recipe().mutable_training()->set_dtype(v1::FLOAT32);
  recipe().mutable_optimizer()->set_stochastic_rounding(false);
  const absl::Status status = Train("pieces", 2).status();
  ASSERT_TRUE(GetFieldViolation(status).has_value()) << status;
  EXPECT_EQ(GetFieldViolation(status)->field(), "training.dtype");
}

// Masters are what a checkpoint and the folder that is left have: a run that began without parameters in bf16 beside them goes on
// with these, bit by bit, and not without masters.
TEST_P(TrainerInBothModes, ParametersBesideMastersMayComeLater) {
  recipe().mutable_training()->set_mixed_precision_param(v1::BFLOAT16);
  recipe().mutable_training()->set_steps(12);
  recipe().mutable_checkpoint()->set_interval(2);
  recipe().mutable_checkpoint()->set_last_save_in_hf(true);
  const auto whole = Train("whole", 2);
  ASSERT_TRUE(whole.ok()) << whole.status();
  stop_at_ = 3;
  const auto first = Train("pieces", 2);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->cause, v1::Exit::STOPPED);
  stop_at_ = -1;
  recipe().mutable_training()->set_dtype(v1::BFLOAT16);
  recipe().mutable_optimizer()->set_master_weights(true);
  const auto second = Train("pieces", 2);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->resumed_from, first->step);
  EXPECT_EQ(Losses("pieces"), Losses("whole"));
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  const std::vector<float> masters = Tensor("pieces", 12, name, {32, 16});
  EXPECT_EQ(masters, Tensor("whole", 12, name, {32, 16}));
  const auto exported = checkpoint::SafetensorsReader::Open(second->hf_directory);
  ASSERT_TRUE(exported.ok()) << exported.status();
  std::vector<float> written(32 * 16);
  ASSERT_EQ(exported->Read(name, checkpoint::WholeOf({32, 16}), written.data()), absl::OkStatus());
  EXPECT_EQ(written, masters);

  recipe().mutable_training()->set_steps(14);
  recipe().mutable_optimizer()->set_master_weights(false);
  const absl::Status status = Train("pieces", 2).status();
  ASSERT_TRUE(GetFieldViolation(status).has_value()) << status;
  EXPECT_EQ(GetFieldViolation(status)->field(), "optimizer.master_weights");
}

// The scale begins too high for float16: steps are skipped, and told, until it is not. What is stopped goes on as what runs on.
TEST_F(TrainerTest, Float16FindsItsScaleAndGoesOnBitByBit) {
  recipe().mutable_training()->set_mixed_precision_param(v1::FLOAT16);
  recipe().mutable_training()->set_initial_loss_scale(0x1p26);
  recipe().mutable_training()->set_loss_scale_growth_interval(4);
  recipe().mutable_training()->set_steps(30);
  recipe().mutable_checkpoint()->set_interval(2);
  std::string log;
  callbacks_.log = [&](const std::string&, const std::string& text) { log += text + "\n"; };
  const auto whole = Train("whole", 2);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_LT(whole->metrics.back().loss(), whole->metrics.front().loss());
  EXPECT_FALSE(whole->metrics.front().has_grad_norm());
  EXPECT_THAT(log, HasSubstr("the loss scale is halved to 3.35544e+07 (skipped so far: 1)"));
  const auto second = TrainInPieces(7);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(Losses("pieces"), Losses("whole"));
  EXPECT_EQ(Tensor("pieces", 30, "optimizer.loss_scale", {}), Tensor("whole", 30, "optimizer.loss_scale", {}));
}

// A folder of GPT-2 read into shards and stages and written from them has the same bytes: q, k and v are parted and joined again,
// and the head is the embedding.
TEST_F(TrainerTest, Gpt2GoesThroughLayoutsToTheByte) {
  v1::Model& model = request_.model;
  model.set_architecture(v1::GPT2);
  model.set_num_key_value_heads(model.num_attention_heads());
  model.set_vocab_size(257);
  model.set_tie_word_embeddings(true);
  model.set_resid_pdrop(0.1);
  recipe().mutable_checkpoint()->set_last_save_in_hf(true);
  const auto trained = Train("trained", 1);
  ASSERT_TRUE(trained.ok()) << trained.status();
  recipe().mutable_model()->set_initial_load_path(trained->hf_directory);
  recipe().mutable_optimizer()->set_lr(1e-30);  // a step that leaves the weights as they are
  recipe().mutable_training()->set_steps(1);
  const auto bytes = [](const std::string& folder) { return checkpoint::ReadFile(folder + "/model.safetensors").value(); };
  for (const auto& [name, tp, pp] : {std::tuple("shards", 2, 1), std::tuple("stages", 1, 2)}) {
    recipe().mutable_parallelism()->set_tensor_parallel_degree(tp);
    recipe().mutable_parallelism()->set_pipeline_parallel_degree(pp);
    const auto through = Train(name, 2);
    ASSERT_TRUE(through.ok()) << through.status();
    EXPECT_EQ(bytes(through->hf_directory), bytes(trained->hf_directory)) << name;
  }
}

TEST_P(TrainerInBothModes, StopsWithTheReasonWhenTheLossIsNotFinite) {
  recipe().mutable_optimizer()->set_lr(1e30);
  recipe().mutable_checkpoint()->set_interval(1);
  recipe().mutable_training()->set_steps(50);
  const auto outcome = Train("run", 2);
  ASSERT_TRUE(GetFieldViolation(outcome.status()).has_value()) << outcome.status();
  EXPECT_EQ(GetFieldViolation(outcome.status())->field(), "optimizer.lr");
  EXPECT_THAT(outcome.status().message(), HasSubstr("the loss is"));
  EXPECT_FALSE(checkpoint::ListCheckpoints(Checkpoints("run"))->empty()) << "those from before are kept";
}

// Weights that float16 cannot hold give a loss that no scale mends.
TEST_F(TrainerTest, StopsWithTheReasonWhereFloat16CannotHoldTheModel) {
  recipe().mutable_training()->set_mixed_precision_param(v1::FLOAT16);
  recipe().mutable_optimizer()->set_lr(1e30);
  const auto outcome = Train("run", 2);
  ASSERT_TRUE(GetFieldViolation(outcome.status()).has_value()) << outcome.status();
  EXPECT_EQ(GetFieldViolation(outcome.status())->field(), "training.mixed_precision_param");
  EXPECT_THAT(outcome.status().message(), HasSubstr("activations exceed float16's 65504"));
}

// hf/ is of the step that is done, whatever an earlier run left there.
TEST_F(TrainerTest, TheExportIsOfTheLastStep) {
  recipe().mutable_checkpoint()->set_last_save_in_hf(true);
  const auto norm = [this] {
    std::vector<float> values(16);
    const auto exported = checkpoint::SafetensorsReader::Open(launch::HuggingFacePath(folder() + "/run"));
    EXPECT_EQ(exported->Read("model.norm.weight", checkpoint::WholeOf({16}), values.data()), absl::OkStatus());
    return values;
  };
  ASSERT_TRUE(Train("run", 1).ok());
  EXPECT_EQ(norm(), Tensor("run", 6, "model.norm.weight", {16}));
  recipe().mutable_training()->set_steps(9);
  const auto longer = Train("run", 1);
  ASSERT_TRUE(longer.ok()) << longer.status();
  EXPECT_EQ(longer->resumed_from, 6);
  EXPECT_EQ(norm(), Tensor("run", 9, "model.norm.weight", {16}));
  EXPECT_FALSE(std::filesystem::exists(launch::PartialExportPath(longer->run_directory)));

  // Cut short, or of another step: what is missing is made up for, and only that.
  std::filesystem::remove(longer->hf_directory + "/legoai.json");
  std::filesystem::resize_file(longer->hf_directory + "/model.safetensors", 100);
  const auto again = Train("run", 1);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->resumed_from, 9);
  EXPECT_EQ(norm(), Tensor("run", 9, "model.norm.weight", {16}));
  EXPECT_EQ(Train("run", 1)->attempt, 0) << "nothing is left to do";
}

// From checkpoints of one mode the other goes on, and all is as if there had been one: to the last bit of the checkpoint.
TEST_F(TrainerTest, BothModesGoOnFromEachOther) {
  request_.model.set_architecture(v1::GPT2);
  request_.model.set_num_key_value_heads(request_.model.num_attention_heads());
  request_.model.set_resid_pdrop(0.1);
  recipe().mutable_training()->set_global_batch_size(8);
  recipe().mutable_training()->set_local_batch_size(2);  // two accumulated batches
  recipe().mutable_training()->set_max_norm(0.1);
  recipe().mutable_validation()->set_enable(true);
  recipe().mutable_validation()->set_freq(2);
  recipe().mutable_lr_scheduler()->set_decay_type("none");  // which ends with the piece
  recipe().mutable_training()->set_steps(12);
  ASSERT_TRUE(Train("whole", 2).ok());
  for (const int64_t steps : {3, 7, 9, 12}) {
    recipe().mutable_compile()->set_enable(!recipe().compile().enable());
    recipe().mutable_training()->set_steps(steps);
    const auto piece = Train("pieces", 2);
    ASSERT_TRUE(piece.ok()) << piece.status();
  }
  EXPECT_FALSE(recipe().compile().enable()) << "the last piece is eager";
  EXPECT_EQ(Losses("pieces"), Losses("whole"));
  for (const char* file : {"/rank-00000.bin", "/rank-00001.bin"}) {
    const auto a = checkpoint::ReadFile(checkpoint::StepDirectory(Checkpoints("pieces"), 12) + file);
    const auto b = checkpoint::ReadFile(checkpoint::StepDirectory(Checkpoints("whole"), 12) + file);
    ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
    EXPECT_TRUE(*a == *b) << file;
  }
}

TEST_F(TrainerTest, AnotherModelOfTheSameShapesIsRefused) {
  ASSERT_TRUE(Train("run", 1).ok());
  recipe().mutable_training()->set_steps(9);
  request_.model.set_rope_theta(500000);
  const absl::Status status = Train("run", 1).status();
  ASSERT_TRUE(GetFieldViolation(status).has_value()) << status;
  EXPECT_EQ(GetFieldViolation(status)->field(), "model tiny: rope_theta");
}

}  // namespace
}  // namespace legoai::train
