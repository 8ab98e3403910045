#include "worker/agent/slots.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"

namespace legoai::agent {

Slots::Slots(int64_t count, std::vector<int> processors, std::vector<std::string> gpus)
    : count_(count), processors_(std::move(processors)), gpus_(std::move(gpus)), taken_(count, false) {}

absl::StatusOr<std::vector<int64_t>> Slots::Take(int64_t count, const std::function<bool()>& given_up) {
  if (count < 1 || count > this->count()) {
    return FieldError("placement.slots", absl::StrCat(count), absl::StrCat("this worker has ", this->count(), " slots"));
  }
  MutexLock lock(mutex_);
  while (!(given_up() || FreeLocked() >= count)) changed_.Wait(lock);
  if (given_up()) return absl::CancelledError("given up while it waited for slots");
  std::vector<int64_t> slots;
  for (int64_t slot = 0; static_cast<int64_t>(slots.size()) < count; ++slot) {
    if (taken_[slot]) continue;
    taken_[slot] = true;
    slots.push_back(slot);
  }
  return slots;
}

void Slots::Give(const std::vector<int64_t>& slots) {
  {
    const MutexLock lock(mutex_);
    for (const int64_t slot : slots) taken_[slot] = false;
  }
  changed_.NotifyAll();
}

void Slots::AskWaiting() {
  { const MutexLock lock(mutex_); }  // nobody is between asking and waiting
  changed_.NotifyAll();
}

std::vector<int> Slots::ProcessorsOf(const std::vector<int64_t>& slots) const {
  std::vector<int> processors;
  for (const int64_t slot : slots) processors.push_back(processors_[slot % processors_.size()]);
  return processors;
}

std::vector<std::string> Slots::GpusOf(const std::vector<int64_t>& slots) const {
  std::vector<std::string> gpus;
  if (gpus_.empty()) return gpus;
  for (const int64_t slot : slots) gpus.push_back(gpus_[slot]);
  return gpus;
}

int64_t Slots::free() const {
  const MutexLock lock(mutex_);
  return FreeLocked();
}

int64_t Slots::FreeLocked() const { return std::count(taken_.begin(), taken_.end(), false); }

}  // namespace legoai::agent
