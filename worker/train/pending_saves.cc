#include "worker/train/pending_saves.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/manifest.h"
#include "core/process/run_directory.h"

namespace legoai::train {

PendingSaves::PendingSaves(launch::TrainerLink& link, int64_t keep)
    : link_(link), keep_(keep), root_(launch::CheckpointsPath(link.start().run_directory())) {
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
  const absl::Status removed = checkpoint::KeepLatest(root_, keep_, [this](int64_t bytes) { link_.Advance(bytes); });
  if (removed.ok()) return removed;
  return link_.SendLog("warning", absl::StrCat("an old checkpoint cannot be removed: ", removed.ToString()));
}

}  // namespace legoai::train
