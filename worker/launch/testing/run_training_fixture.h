// Trainings of two ranks by the test trainer (test_trainer.cc), which takes five steps and trains nothing; text, recipe,
// directory and checkpoints are real.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "worker/launch/testing/tiny_run.h"

namespace legoai::launch {

class RunTrainingTest : public testing::TinyRun {
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

}  // namespace legoai::launch
