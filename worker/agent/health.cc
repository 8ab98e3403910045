#include "worker/agent/health.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "core/hardware/check_text.h"
#include "proto/text.h"
#include "worker/agent/machine_checks.h"

namespace legoai::agent {
namespace {

constexpr size_t kLongestReason = 2000;

// As it is told to servers, which take no control characters: errors of CUDA and NCCL have several lines.
std::string Told(const std::string& text) { return CutText(Printable(text), kLongestReason); }

}  // namespace

Health::Health(const v1::Worker& worker, Slots& slots, const JsonLog& log, std::function<void()> changed)
    : worker_(worker), slots_(slots), log_(log), changed_(std::move(changed)) {}

void Health::BeginCheck() {
  {
    const MutexLock lock(mutex_);
    checking_ = true;
  }
  changed_();
}

void Health::EndCheck(const std::vector<int64_t>& slots, bool takes_back, std::optional<v1::MachineCheck> check) {
  {
    const MutexLock lock(mutex_);
    checking_ = false;
    if (check) TakeCheck(slots, takes_back, *std::move(check));
  }
  Tell();
}

void Health::TakeCheck(const std::vector<int64_t>& slots, bool takes_back, v1::MachineCheck check) {
  check.set_number(++checks_);
  for (v1::CheckResult& result : *check.mutable_results()) {
    result.set_text(Told(result.text()));
    log_.Write(result.passed() ? "info" : "error", absl::StrCat("check: ", sim::ResultText(result)));
  }
  const std::map<int64_t, std::string> faults = FaultsOf(check);
  const std::set<int64_t> passed = PassedSlots(check);
  for (const int64_t slot : slots) {
    const auto fault = faults.find(slot);
    if (fault == faults.end() && passed.count(slot) == 0) continue;  // the check did not come to it
    if (fault == faults.end() && takes_back) TakeBackXid(slot, check.start_time_us());
    SetLocked(slot, v1::CHECK_FAILED, fault == faults.end() ? "" : fault->second);
  }
  fault_ = Told(FaultOfDisk(check));
  if (!fault_.empty()) log_.Write("error", absl::StrCat("gets nothing new: ", fault_));
  log_.Write("info", absl::StrFormat("has checked the machine in %.1f s", check.seconds()));
  check_ = std::move(check);
}

// What cards say of themselves, a lost GPU and its memory, the watch takes back when they no longer say so. Of an Xid that came
// while the check ran nobody knows whether the check has seen what it was about.
void Health::TakeBackXid(int64_t slot, int64_t begin_us) {
  const auto known = faults_.find({slot, v1::GPU_XID});
  if (known != faults_.end() && known->second.time_us() < begin_us) SetLocked(slot, v1::GPU_XID, "");
}

void Health::Set(int64_t slot, v1::FaultCause cause, const std::string& reason) {
  {
    const MutexLock lock(mutex_);
    const auto known = faults_.find({slot, cause});
    // An Xid is an event: one that comes again, or another one, may say what a check that runs has not seen.
    if (cause == v1::GPU_XID && known != faults_.end()) known->second.set_time_us(absl::ToUnixMicros(absl::Now()));
    if (reason.empty() ? known == faults_.end() : known != faults_.end() && known->second.reason() == Told(reason)) return;
    SetLocked(slot, cause, reason);
  }
  Tell();
}

void Health::SetLocked(int64_t slot, v1::FaultCause cause, const std::string& reason) {
  if (reason.empty()) {
    const auto known = faults_.find({slot, cause});
    if (known == faults_.end()) return;
    log_.Write("info", absl::StrCat(NameOf(slot), " is no longer held to be faulty: ", known->second.reason()));
    faults_.erase(known);
    return;
  }
  v1::SlotFault& fault = faults_[{slot, cause}];
  if (fault.time_us() == 0) fault.set_time_us(absl::ToUnixMicros(absl::Now()));
  fault.set_slot(slot);
  fault.set_cause(cause);
  fault.set_reason(Told(reason));
  log_.Write("error", absl::StrCat(NameOf(slot), " gets nothing new: ", fault.reason()));
}

void Health::Tell() {
  {
    const MutexLock lock(mutex_);
    slots_.SetFaults(FaultySlots());  // under the lock: what was found last counts last
  }
  changed_();
}

std::map<int64_t, std::string> Health::FaultySlots() const {
  std::map<int64_t, std::string> faulty;
  for (const auto& [key, fault] : faults_) {
    std::string& text = faulty[key.first];
    absl::StrAppend(&text, text.empty() ? NameOf(key.first) + ": " : "; ", fault.reason());
  }
  return faulty;
}

std::string Health::NameOf(int64_t slot) const {
  if (slot >= worker_.slot_devices_size()) return absl::StrCat("slot ", slot);
  const v1::SlotDevice& device = worker_.slot_devices(static_cast<int>(slot));
  return absl::StrCat("slot ", slot, " (GPU ", device.index(), ", ", device.uuid(), ")");
}

v1::WorkerHealth Health::Get() const {
  const MutexLock lock(mutex_);
  v1::WorkerHealth health;
  health.set_checking(checking_);
  for (const auto& [key, fault] : faults_) *health.add_slot_faults() = fault;
  health.set_fault(fault_);
  if (check_) *health.mutable_check() = *check_;
  return health;
}

}  // namespace legoai::agent
