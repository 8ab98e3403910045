#include "worker/train/trainer_state.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/chunks.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/storage.h"
#include "core/data/tokenizer.h"
#include "core/model/hf_config.h"
#include "core/model/model_facts.h"
#include "core/process/run_directory.h"
#include "proto/status.h"
#include "worker/model/hf_weights.h"

namespace legoai::train {
namespace {

absl::StatusOr<checkpoint::CheckpointReader> OpenCheckpoint(const v1::Start& start, int64_t step) {
  return checkpoint::CheckpointReader::Open(launch::CheckpointsHolding(start, step), step,
                                            start.accept_other_build() ? "" : start.build_version());
}

absl::Status NoteDamage(const absl::Status& status, const v1::Start& start, int64_t step) {
  return checkpoint::NoteDamage(status, launch::CheckpointsHolding(start, step), step);
}

}  // namespace

PendingSaves::PendingSaves(launch::TrainerLink& link, int64_t keep)
    : link_(link), keep_(keep), root_(launch::CheckpointsOf(link.start())) {
  if (link_.start().rank() != 0) return;
  thread_ = std::thread([this] { Work(); });
  link_.SetHearVerdict([this](int64_t step, const absl::Status& verdict) {
    const MutexLock lock(mutex_);
    verdicts_.emplace_back(step, verdict);
    changed_.NotifyAll();
  });
}

PendingSaves::~PendingSaves() {
  if (!thread_.joinable()) return;
  link_.SetHearVerdict(nullptr);
  {
    const MutexLock lock(mutex_);
    ends_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void PendingSaves::Work() {
  const checkpoint::AliveDuring alive([this](int64_t) { ReportAlive(); });
  MutexLock lock(mutex_);
  while (true) {
    while (!ends_ && verdicts_.empty()) changed_.Wait(lock);
    if (verdicts_.empty()) return;
    const auto [step, verdict] = verdicts_.front();
    lock.Unlock();
    const absl::Status applied = Apply(step, verdict);
    lock.Lock();
    failure_.Update(applied);
    committed_ = committed_ || (verdict.ok() && applied.ok());
    verdicts_.pop_front();
    changed_.NotifyAll();
    lock.Unlock();
    ReportAlive();
    lock.Lock();
  }
}

absl::Status PendingSaves::Apply(int64_t step, const absl::Status& verdict) {
  if (verdict.ok()) return checkpoint::CommitManifest(root_, step);
  const absl::Status told =
      link_.SendLog("warning", absl::StrCat("the checkpoint of step ", step, " was denied: ", verdict.ToString()));
  const absl::Status removed = checkpoint::AbandonCheckpoint(root_, step, [this](int64_t) { ReportAlive(); });
  return removed.ok() ? told : removed;
}

// That this thread works says nothing of a rank that is in the midst of a step.
void PendingSaves::ReportAlive() {
  if (awaited_) link_.Advance(0);
}

absl::Status PendingSaves::Settle() {
  if (!thread_.joinable()) return absl::OkStatus();
  awaited_ = true;
  {
    MutexLock lock(mutex_);
    while (!verdicts_.empty()) changed_.Wait(lock);
    awaited_ = false;
    if (!failure_.ok()) return failure_;
    if (!std::exchange(committed_, false)) return absl::OkStatus();
  }
  const checkpoint::AliveDuring alive([this](int64_t) { link_.Advance(0); });
  const absl::Status removed = checkpoint::KeepLatest(root_, keep_, [this](int64_t bytes) { link_.Advance(bytes); });
  if (removed.ok()) return removed;
  return link_.SendLog("warning", absl::StrCat("an old checkpoint cannot be removed: ", removed.ToString()));
}

std::vector<checkpoint::ShardedTensor> CheckpointTensors(Optimizer& optimizer) {
  std::vector<checkpoint::ShardedTensor> tensors;
  for (const HeldTensor& master : optimizer.masters()) {
    tensors.push_back({master.parameter->name(), master.tensor, master.parameter->spec});
  }
  for (const HeldTensor& state : optimizer.state()) {
    const parallel::ShardSpec& spec = state.parameter->spec;
    tensors.push_back({absl::StrCat("optimizer.", state.name, ".", spec.name), state.tensor, spec});
  }
  for (auto& [name, tensor] : optimizer.Counters()) {
    tensors.push_back({name, tensor, parallel::Unsharded(name, {}), /*on_all_stages=*/true});
  }
  return tensors;
}

absl::Status LoadTensors(checkpoint::CheckpointReader& reader, Optimizer& optimizer) {
  RETURN_IF_ERROR(checkpoint::LoadSharded(reader, CheckpointTensors(optimizer)));
  c10::NoGradGuard no_grad;
  optimizer.RoundMasters();
  return absl::OkStatus();
}

absl::StatusOr<bool> SaveCheckpoint(launch::TrainerLink& link, const v1::CheckpointManifest& facts, Optimizer& optimizer,
                                    comm::Runtime& runtime, PendingSaves& pending, const MaxOfRanks& max) {
  // What was committed since the last save makes older ones needless, and them room.
  RETURN_IF_ERROR(SettleSaves(link, pending));
  const v1::Start& start = link.start();
  const std::string root = launch::CheckpointsOf(start);
  const auto tensors = CheckpointTensors(optimizer);
  ASSIGN_OR_RETURN(const int64_t bytes, checkpoint::BytesOfAllRanks(tensors, runtime));
  checkpoint::SaveCallbacks callbacks;
  callbacks.written = [&](int64_t bytes) { link.Advance(bytes); };
  callbacks.meet = [&] { return link.Meet(); };
  std::string digest;
  const absl::StatusOr<bool> done =
      DoWhenThereIsRoom(link, {"a checkpoint", root, bytes, [&] { return pending.Settle(); }}, max, [&] {
        RETURN_IF_ERROR(link.SendProgress("checkpoint", facts.step(), start.recipe().training().steps(),
                                          checkpoint::BytesToWrite(tensors, runtime)));
        auto saved = checkpoint::SaveSharded(root, facts, tensors, runtime, callbacks);
        if (saved.ok()) digest = *std::move(saved);
        return saved.status();
      });
  if (!done.ok() || !*done) return done;
  RETURN_IF_ERROR(link.Offer(facts.step(), digest));
  RETURN_IF_ERROR(SettleSaves(link, pending));
  return true;
}

absl::Status SettleSaves(launch::TrainerLink& link, PendingSaves& pending) {
  RETURN_IF_ERROR(pending.Settle());
  return link.Meet();
}

absl::Status LoadInitialWeights(launch::TrainerLink& link, const std::string& path, Optimizer& optimizer) {
  ASSIGN_OR_RETURN(const auto weights, model::HfWeights::Open(path, link.start().model()));
  c10::NoGradGuard no_grad;
  for (const HeldTensor& master : optimizer.masters()) {
    const at::Tensor host = at::empty(master.tensor.sizes(), at::TensorOptions().dtype(at::kFloat));
    RETURN_IF_ERROR(weights.Load(master.parameter->spec, host.data_ptr<float>()));
    master.tensor.detach().copy_(host);
    link.Advance(static_cast<int64_t>(host.nbytes()));
  }
  optimizer.RoundMasters();
  return absl::OkStatus();
}

absl::Status ExportCheckpoint(launch::TrainerLink& link, int64_t step) {
  const v1::Start& start = link.start();
  const int64_t bytes = model::ParameterCount(start.model()) * static_cast<int64_t>(sizeof(float));
  RETURN_IF_ERROR(link.SendProgress("export", step, start.recipe().training().steps(), bytes));
  const checkpoint::AliveDuring alive([&](int64_t) { link.Advance(0); });
  auto reader = OpenCheckpoint(start, step);
  if (!reader.ok()) return NoteDamage(reader.status(), start, step);
  reader->SetProgress([&](int64_t) { link.Advance(0); });  // what is written counts; that there is reading is told too
  const auto source = [&](const std::string& name, const std::vector<int64_t>& shape, float* out) {
    return reader->ReadFloats(name, shape, out);
  };
  ASSIGN_OR_RETURN(const auto tokenizer, data::LoadTokenizer(start.recipe().model().tokenizer_path()));
  v1::Model model = start.model();
  model.set_config_json(model::WriteHfConfigOfExport(model, tokenizer->BeginOfText(), tokenizer->EndOfText()));
  std::string folder;
  RETURN_IF_ERROR(launch::BeginExport(start.run_directory(), &folder));
  absl::Status status = checkpoint::CheckFreeSpace("the Hugging Face folder", start.run_directory(), bytes);
  if (status.ok()) status = data::ExportTokenizer(*tokenizer, model.max_position_embeddings(), folder);
  if (status.ok()) status = model::ExportHfFolder(model, folder, source, [&](int64_t done) { link.Advance(done); });
  if (status.ok())
    status = launch::FinishExport(start.run_directory(), launch::CheckpointsHolding(start, step), step, start.build_version(),
                                  [&](int64_t done) { link.Advance(done); });
  if (!status.ok()) checkpoint::RemoveAll(folder).IgnoreError();  // a disk that is full gets its space back
  return NoteDamage(status, start, step);
}

absl::StatusOr<v1::CheckpointManifest> LoadCheckpoint(launch::TrainerLink& link, Optimizer& optimizer) {
  const int64_t step = link.start().resume_step();
  const checkpoint::AliveDuring alive([&](int64_t) { link.Advance(0); });
  auto reader = OpenCheckpoint(link.start(), step);
  if (!reader.ok()) return NoteDamage(reader.status(), link.start(), step);
  reader->SetProgress([&](int64_t bytes) { link.Advance(bytes); });
  const absl::Status loaded = LoadTensors(*reader, optimizer);
  if (!loaded.ok()) return NoteDamage(loaded, link.start(), step);
  v1::CheckpointManifest manifest = reader->manifest();
  manifest.clear_chunks();
  return manifest;
}

}  // namespace legoai::train
