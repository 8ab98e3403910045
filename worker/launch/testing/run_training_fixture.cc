#include "worker/launch/testing/run_training_fixture.h"

#include <filesystem>
#include <fstream>

#include "core/checkpoint/chunks.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/manifest.h"
#include "core/process/build_version.h"
#include "core/process/run_directory.h"
#include "worker/launch/prepare_training.h"
#include "worker/launch/resume.h"

namespace legoai::launch {

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

}  // namespace legoai::launch
