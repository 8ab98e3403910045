#include "worker/launch/testing/tiny_run.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/chunks.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/manifest.h"
#include "core/model/catalog.h"
#include "core/process/build_version.h"
#include "core/process/run_directory.h"
#include "core/recipe/recipe.h"
#include "worker/launch/prepare_training.h"
#include "worker/launch/resume.h"

namespace legoai::launch::testing {

v1::Model TinyLlama() {
  v1::Model model =
      model::Llama({.vocab = 256, .hidden = 16, .intermediate = 32, .layers = 2, .heads = 4, .kv_heads = 2, .positions = 64});
  model.set_name("tiny");
  return model;
}

TinyRun::TinyRun(const std::string& trainer)
    : folder_(absl::StrCat(::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  request_.trainer = trainer;
  request_.nproc = 2;
  request_.model = TinyLlama();
  request_.recipe = parallel::DefaultRecipe();
  recipe().mutable_job()->set_dump_folder(folder_ + "/run");
  recipe().mutable_training()->set_dataset_path(folder_ + "/text.txt");
  recipe().mutable_training()->set_seq_len(16);
  recipe().mutable_training()->set_local_batch_size(2);
  recipe().mutable_comm()->set_init_timeout_seconds(600);
  recipe().mutable_comm()->set_train_timeout_seconds(600);
  callbacks_.started = [this](int64_t rank, int64_t pid) { pids_[rank] = static_cast<pid_t>(pid); };
  callbacks_.metrics = [this](const v1::StepMetrics& metrics) {
    if (metrics.step() == stop_at_) stop_.Request(/*save=*/true);
  };
  callbacks_.log = [this](const std::string& level, const std::string& text) {
    std::fprintf(stderr, "%s: %s\n", level.c_str(), text.c_str());
    logs_.push_back(text);
  };
}

void TinyRun::WriteText(const std::string& text) const { std::ofstream(folder_ + "/text.txt") << text; }

absl::StatusOr<TrainOutcome> TinyRun::Train() { return RunTraining(request_, callbacks_, &stop_); }

RunTrainingTest::RunTrainingTest() : TinyRun("worker/launch/test_trainer") {
  WriteText(std::string(1000, 'a') + std::string(1000, 'b'));
  recipe().mutable_training()->set_steps(5);
}

void RunTrainingTest::UseTrainer(const std::string& arguments) {
  request_.trainer = folder() + "/trainer";
  std::ofstream(request_.trainer) << "#!/bin/sh\nexec worker/launch/test_trainer " << arguments << " \"$@\"\n";
  std::filesystem::permissions(request_.trainer, std::filesystem::perms::owner_all);
}

void RunTrainingTest::MakeCheckpoint(int64_t step, const std::string& build_version) {
  const auto prepared = PrepareTraining(request_, "");
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const std::string root = CheckpointsPath(path());
  ASSERT_EQ(checkpoint::BeginCheckpoint(root, step, 100), absl::OkStatus());
  const std::string directory = checkpoint::StepDirectory(root, step);
  auto writer = checkpoint::ChunkWriter::Create(directory, 0);
  const float value = 1;
  ASSERT_EQ(writer->Append("w", v1::FLOAT32, {1}, checkpoint::WholeOf({1}), &value), absl::OkStatus());
  ASSERT_EQ(writer->Finish(), absl::OkStatus());
  v1::CheckpointManifest manifest;
  manifest.set_step(step);
  manifest.set_build_version(build_version);
  *manifest.mutable_recipe() = prepared->start.recipe();
  manifest.set_dataset_sha256(prepared->start.dataset().sha256());
  manifest.set_tokenizer_identity(prepared->start.tokenizer_identity());
  *manifest.mutable_model() = CanonicalModel(prepared->start.model());
  ASSERT_EQ(checkpoint::CollectChunks(directory, 1, manifest), absl::OkStatus());
  ASSERT_TRUE(checkpoint::PrepareManifest(root, manifest).ok());
  ASSERT_EQ(checkpoint::CommitManifest(root, step), absl::OkStatus());
}

void RunTrainingTest::MakeExport(int64_t step, const std::string& contents) {
  std::string folder;
  ASSERT_EQ(BeginExport(path(), &folder), absl::OkStatus());
  ASSERT_EQ(checkpoint::WriteFile(folder + "/config.json", contents), absl::OkStatus());
  ASSERT_EQ(FinishExport(path(), CheckpointsPath(path()), step, BuildVersion()), absl::OkStatus());
}

void FlipBit(const std::string& path) {
  std::string contents = *checkpoint::ReadFile(path);
  contents[contents.size() / 2] ^= 4;
  ASSERT_TRUE(checkpoint::WriteFile(path, contents).ok());
}

}  // namespace legoai::launch::testing
