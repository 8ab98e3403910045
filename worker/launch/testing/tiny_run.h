// For tests of training from the outside: a recipe, a tiny Llama and a folder, and what a run of them says.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/process/child_process.h"
#include "proto/legoai/v1/model.pb.h"
#include "worker/launch/run_training.h"

namespace legoai::launch::testing {

// Two layers, 256 ids, every field set.
v1::Model TinyLlama();

// `request_` trains TinyLlama in two processes of `trainer`, with limits on time that no loaded machine reaches. Not a fixture's
// text: who trains writes one.
class TinyRun : public ::testing::Test {
 protected:
  explicit TinyRun(const std::string& trainer);

  void WriteText(const std::string& text) const;
  // Into path().
  absl::StatusOr<TrainOutcome> Train();

  v1::Recipe& recipe() { return request_.recipe; }
  const std::string& path() const { return request_.recipe.job().dump_folder(); }
  const std::string& folder() const { return folder_; }  // empty at first; the text and the run lie in it

  TrainRequest request_;
  TrainCallbacks callbacks_;
  StopPipe stop_;
  int64_t stop_at_ = -1;           // the step whose report makes the run save and stop
  std::vector<std::string> logs_;  // of callbacks_.log
  std::map<int64_t, pid_t> pids_;  // by rank, of the latest run

 private:
  std::string folder_;
};

// Trainings of two ranks by the test trainer (test_trainer.cc), which takes five steps and trains nothing; text, recipe,
// directory and checkpoints are real.
class RunTrainingTest : public TinyRun {
 protected:
  RunTrainingTest();

  // The trainer with other arguments.
  void UseTrainer(const std::string& arguments);

  // A committed checkpoint, made as the request's training would have made it.
  void MakeCheckpoint(int64_t step, const std::string& build_version);

  // An export of the step as the trainer leaves it, of one file.
  void MakeExport(int64_t step, const std::string& contents);
};

void FlipBit(const std::string& path);

}  // namespace legoai::launch::testing
