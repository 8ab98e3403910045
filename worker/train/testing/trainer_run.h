// A tiny Llama that real trainer processes train on words that repeat, and what can be read of its run afterwards. Thread-safety:
// none.
#pragma once

#include <signal.h>

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/checkpoint/chunks.h"
#include "core/checkpoint/tensor_layout.h"
#include "core/process/build_version.h"
#include "core/process/run_directory.h"
#include "worker/launch/run_training.h"
#include "worker/launch/testing/tiny_run.h"

namespace legoai::train::testing {

class TrainerRun : public launch::testing::TinyRun {
 protected:
  TrainerRun() : TinyRun("worker/train/legoai-trainer") {
    WriteText(Words());
    recipe().mutable_training()->set_global_batch_size(4);
    recipe().mutable_training()->set_steps(6);
    recipe().mutable_training()->set_mixed_precision_param(v1::FLOAT32);
    recipe().mutable_optimizer()->set_lr(5e-3);
    recipe().mutable_lr_scheduler()->set_warmup_steps(2);
    recipe().mutable_checkpoint()->set_enable_checkpoint(true);
    recipe().mutable_metrics()->set_log_freq(1);
  }

  // Words that repeat, so that there is something to learn.
  static std::string Words() {
    std::mt19937 random(1);
    std::string text;
    const char* const words[] = {"the ", "lord ", "said ", "unto ", "moses ", "and "};
    for (int i = 0; i < 2000; ++i) text += words[random() % 6];
    return text;
  }

  absl::StatusOr<launch::TrainOutcome> Train(const std::string& name, int64_t nproc) {
    request_.nproc = nproc;
    recipe().mutable_job()->set_dump_folder(folder() + "/" + name);
    return TinyRun::Train();
  }
  // "pieces" of two ranks: stopped when step `stop_at` is done, then on to its end from the checkpoint that left.
  absl::StatusOr<launch::TrainOutcome> TrainInPieces(int64_t stop_at) {
    stop_at_ = stop_at;
    const auto first = Train("pieces", 2);
    stop_at_ = -1;
    if (!first.ok()) return first.status();
    EXPECT_EQ(first->cause, v1::Exit::STOPPED);
    auto second = Train("pieces", 2);
    if (second.ok()) {
      EXPECT_EQ(second->resumed_from, first->step);
    }
    return second;
  }
  // When the first step of at least this number is reported.
  void SignalRank1(int signal_number, int64_t step) {
    callbacks_.metrics = [this, signal_number, step, sent = false](const v1::StepMetrics& metrics) mutable {
      if (metrics.step() >= step && !std::exchange(sent, true)) kill(pids_.at(1), signal_number);
    };
  }
  std::string Checkpoints(const std::string& name) const { return launch::CheckpointsPath(folder() + "/" + name); }

  // Loss of each step, over all attempts.
  std::map<int64_t, double> Losses(const std::string& name) const {
    std::map<int64_t, double> losses;
    for (const auto& entry : launch::LatestOfEachStep(*launch::ReadMetrics(folder() + "/" + name))) {
      losses[entry.step()] = entry.loss();
    }
    return losses;
  }

  // A whole tensor of a checkpoint, in fp32.
  std::vector<float> Tensor(const std::string& name, int64_t step, const std::string& tensor, std::vector<int64_t> shape) const {
    auto reader = checkpoint::CheckpointReader::Open(Checkpoints(name), step, launch::BuildVersion());
    EXPECT_TRUE(reader.ok()) << reader.status();
    std::vector<float> values(checkpoint::Volume(shape));
    EXPECT_EQ(reader->ReadFloats(tensor, shape, values.data()), absl::OkStatus());
    return values;
  }
};

// Of tests that pass whether the step's own code trains, or its program (compile.enable): each has both.
class TrainerRunInBothModes : public TrainerRun, public ::testing::WithParamInterface<bool> {
 protected:
  TrainerRunInBothModes() { recipe().mutable_compile()->set_enable(GetParam()); }
};

inline auto BothModes() { return ::testing::Bool(); }
inline std::string ModeName(const ::testing::TestParamInfo<bool>& info) { return info.param ? "compiled" : "eager"; }

}  // namespace legoai::train::testing
