// Saving and loading a checkpoint of 200 MB, of two files, one after the other from one process: in a folder of the disk under
// TMPDIR, and in an S3 store on this machine (versitygw) whose objects are on the same disk.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/checkpoint/chunks.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/manifest.h"
#include "core/objectstore/testing/versitygw.h"
#include "proto/status.h"
#include "tests/bench/bench_main.h"

namespace legoai::integration {
namespace {

constexpr int64_t kRanks = 2, kTensors = 5, kElements = 5'000'000;  // float32: 20 MB each
constexpr int kRounds = 5;

void Must(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}

absl::Status Save(const std::string& root, int64_t step, const std::vector<float>& values) {
  RETURN_IF_ERROR(checkpoint::BeginCheckpoint(root, step, 0));
  const std::string directory = checkpoint::StepDirectory(root, step);
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    ASSIGN_OR_RETURN(auto writer, checkpoint::ChunkWriter::Create(directory, rank));
    for (int64_t i = 0; i < kTensors; ++i) {
      const checkpoint::Rectangle part = {{rank * kElements}, {kElements}};
      RETURN_IF_ERROR(writer.Append(absl::StrCat("t", i), v1::FLOAT32, {kRanks * kElements}, part, values.data()));
    }
    RETURN_IF_ERROR(writer.Finish());
  }
  v1::CheckpointManifest manifest;
  manifest.set_step(step);
  RETURN_IF_ERROR(checkpoint::CollectChunks(directory, kRanks, manifest));
  RETURN_IF_ERROR(checkpoint::PrepareManifest(root, manifest).status());
  return checkpoint::CommitManifest(root, step);
}

absl::Status Load(const std::string& root, int64_t step, std::vector<float>* values) {
  ASSIGN_OR_RETURN(auto reader, checkpoint::CheckpointReader::Open(root, step, ""));
  for (const std::string& name : reader.Names())
    RETURN_IF_ERROR(reader.ReadRectangle(name, v1::FLOAT32, {kRanks * kElements}, checkpoint::WholeOf({kRanks * kElements}),
                                         values->data()));
  return absl::OkStatus();
}

double Seconds(const std::function<absl::Status()>& work) {
  const auto start = std::chrono::steady_clock::now();
  Must(work());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Measure(Rows& rows, const std::string& what, const std::string& root) {
  std::vector<float> values(kRanks * kElements, 0.1f);
  std::vector<double> save, load;
  for (int64_t step = 1; step <= kRounds; ++step) {
    save.push_back(Seconds([&] { return Save(root, step, values); }));
    load.push_back(Seconds([&] { return Load(root, step, &values); }));
    Must(checkpoint::KeepLatest(root, 1));
  }
  rows.Add(absl::StrFormat("\"what\": \"%s\", \"save_seconds\": %.3f, \"load_seconds\": %.3f", what, Median(save), Median(load)),
           absl::StrFormat("%-8s %12.3f %12.3f", what, Median(save), Median(load)));
}

void Run(Rows& rows, const std::string&) {
  namespace fs = std::filesystem;
  const char* const given = std::getenv("TMPDIR");
  std::string folder = absl::StrCat(given != nullptr ? given : "/tmp", "/legoai-checkpoints-XXXXXX");
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error(folder + " cannot be made");
  rows.Note(absl::StrFormat("%-8s %12s %12s", "what", "save, s", "load, s"));
  Measure(rows, "folder", folder + "/checkpoints");
  auto gateway = objectstore::Versitygw::Start(folder);
  Must(gateway.status());
  Measure(rows, "s3", "s3://bucket/checkpoints");
  gateway->reset();
  fs::remove_all(folder);
}

}  // namespace
}  // namespace legoai::integration

int main(int argc, char** argv) { return legoai::integration::BenchMain(argc, argv, legoai::integration::Run); }
