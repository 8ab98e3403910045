#include "worker/train/trainer_state.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "absl/strings/str_cat.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/directory.h"
#include "worker/launch/run_directory.h"
#include "worker/model/hf_weights.h"

namespace legoai::train {

std::vector<checkpoint::ShardedTensor> CheckpointTensors(AdamW& optimizer) {
  std::vector<checkpoint::ShardedTensor> tensors;
  for (OptimizerState& state : optimizer.state()) {
    const parallel::ShardSpec& spec = state.parameter->spec;
    tensors.push_back({spec.name, state.parameter->master, spec});
    tensors.push_back({"optimizer.exp_avg." + spec.name, state.exp_avg, spec});
    tensors.push_back({"optimizer.exp_avg_sq." + spec.name, state.exp_avg_sq, spec});
  }
  tensors.push_back({"optimizer.step", optimizer.step(), parallel::Unsharded("optimizer.step", {}), /*on_all_stages=*/true});
  return tensors;
}

absl::StatusOr<bool> SaveCheckpoint(launch::TrainerLink& link, const v1::CheckpointManifest& facts, AdamW& optimizer,
                                    comm::Runtime& runtime, int64_t keep) {
  const v1::Start& start = link.start();
  const std::string root = launch::CheckpointsPath(start.run_directory());
  const absl::Duration patience = absl::Seconds(start.recipe().comm().train_timeout_seconds());
  absl::Status vote;
  const auto ask = [&](const std::string& digest) { return vote = link.AwaitCommit(facts.step(), digest, patience); };
  absl::Status saved = checkpoint::SaveSharded(root, facts, CheckpointTensors(optimizer), runtime, ask);
  if (absl::IsAborted(vote)) {
    if (start.rank() != 0) return false;
    saved = link.SendLog("warning", absl::StrCat("the checkpoint of step ", facts.step(), " was denied: ", vote.ToString()));
    return saved.ok() ? absl::StatusOr<bool>(false) : saved;
  }
  if (saved.ok() && start.rank() == 0) saved = checkpoint::KeepLatest(root, keep);
  return saved.ok() ? absl::StatusOr<bool>(true) : saved;
}

absl::Status LoadInitialWeights(const std::string& path, const v1::Model& model, AdamW& optimizer) {
  const auto weights = model::HfWeights::Open(path, model);
  if (!weights.ok()) return weights.status();
  c10::NoGradGuard no_grad;
  for (OptimizerState& state : optimizer.state()) {
    const at::Tensor& master = state.parameter->master;
    const at::Tensor host = at::empty(master.sizes(), at::TensorOptions().dtype(at::kFloat));
    if (absl::Status status = weights->Load(state.parameter->spec, host.data_ptr<float>()); !status.ok()) return status;
    master.detach().copy_(host);
  }
  return absl::OkStatus();
}

absl::Status ExportCheckpoint(launch::TrainerLink& link, int64_t step) {
  const v1::Start& start = link.start();
  auto reader = checkpoint::CheckpointReader::Open(launch::CheckpointsPath(start.run_directory()), step,
                                                   start.accept_other_build() ? "" : start.build_version());
  if (!reader.ok()) return reader.status();
  const auto source = [&](const std::string& name, const std::vector<int64_t>& shape, float* out) {
    if (absl::Status told = link.SendProgress("export", step, step); !told.ok()) return told;
    return reader->ReadRectangle(name, v1::FLOAT32, shape, checkpoint::WholeOf(shape), out);
  };
  return model::ExportHfFolder(start.model(), launch::HuggingFacePath(start.run_directory()), source);
}

absl::StatusOr<v1::CheckpointManifest> LoadCheckpoint(const v1::Start& start, AdamW& optimizer) {
  const std::string root = launch::CheckpointsPath(start.run_directory());
  auto reader =
      checkpoint::CheckpointReader::Open(root, start.resume_step(), start.accept_other_build() ? "" : start.build_version());
  if (!reader.ok()) return reader.status();
  absl::Status loaded = checkpoint::LoadSharded(*reader, CheckpointTensors(optimizer));
  if (!loaded.ok()) return loaded;
  v1::CheckpointManifest manifest = reader->manifest();
  manifest.clear_chunks();
  return manifest;
}

}  // namespace legoai::train
