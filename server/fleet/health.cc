#include "server/fleet/health.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::server {
namespace {

constexpr size_t kLongestText = 4096;
constexpr int kCausesOfASlot = 4;

bool IsSlot(const v1::Worker& worker, int64_t slot) { return slot >= 0 && slot < worker.slots(); }

bool IsRate(double rate) { return std::isfinite(rate) && rate >= 0; }

absl::Status CheckResultOf(const v1::Worker& worker, const v1::CheckResult& result) {
  RETURN_IF_ERROR(CheckPrintable("health.check.results.text", result.text()));
  const auto& of = result.slots();
  const bool slots = std::all_of(of.begin(), of.end(), [&](int64_t slot) { return IsSlot(worker, slot); });
  const bool figures = IsRate(result.seconds()) && IsRate(result.write_bytes_per_second()) &&
                       IsRate(result.read_bytes_per_second()) && result.free_bytes() >= 0 && IsRate(result.flops_per_second()) &&
                       IsRate(result.to_device_bytes_per_second()) && IsRate(result.from_device_bytes_per_second()) &&
                       IsRate(result.received_bytes_per_second());
  if (slots && figures && result.slots_size() <= 2 && result.text().size() <= kLongestText) return absl::OkStatus();
  return FieldError("health.check.results", result.text().substr(0, 200),
                    "must be of slots of the worker, with figures that are none below 0, and a text of at most 4096 bytes");
}

}  // namespace

std::vector<v1::SlotFault> NewFaults(const v1::WorkerHealth& before, const v1::WorkerHealth& after) {
  std::set<std::pair<int64_t, int>> known;
  for (const v1::SlotFault& fault : before.slot_faults()) known.insert({fault.slot(), fault.cause()});
  std::vector<v1::SlotFault> fresh;
  if (!after.fault().empty() && before.fault().empty()) {
    v1::SlotFault& fault = fresh.emplace_back();
    fault.set_slot(-1);
    fault.set_cause(v1::CHECK_FAILED);
    fault.set_reason(after.fault());
  }
  for (const v1::SlotFault& fault : after.slot_faults()) {
    if (known.count({fault.slot(), fault.cause()}) == 0) fresh.push_back(fault);
  }
  return fresh;
}

absl::Status CheckHealth(const v1::Worker& worker, const v1::WorkerHealth& health) {
  if (health.slot_faults_size() > kCausesOfASlot * worker.slots())
    return FieldError("health.slot_faults", absl::StrCat(health.slot_faults_size()), "must be one of each cause for a slot");
  for (const v1::SlotFault& fault : health.slot_faults()) {
    RETURN_IF_ERROR(CheckPrintable("health.slot_faults.reason", fault.reason()));
    if (!v1::FaultCause_IsValid(fault.cause())) {
      return FieldError("health.slot_faults.cause", absl::StrCat(static_cast<int>(fault.cause())),
                        "is none that the server knows: install the same build on both");
    }
    if (!IsSlot(worker, fault.slot()) || fault.reason().size() > kLongestText) {
      return FieldError("health.slot_faults", absl::StrCat(fault.slot()),
                        absl::StrCat("must be one of the worker's ", worker.slots(),
                                     " slots, with at most 4096 bytes of reason"));
    }
  }
  RETURN_IF_ERROR(CheckPrintable("health.fault", health.fault()));
  if (health.fault().size() > kLongestText)
    return FieldError("health.fault", health.fault().substr(0, 200), "must be at most 4096 bytes");
  // The disk, every slot, every pair of GPUs, of which a host has some dozens at most.
  const int64_t in_pairs = std::min<int64_t>(worker.slots(), 128), most = 2 + 2 * worker.slots() + in_pairs * in_pairs / 2;
  const int64_t results = health.check().results_size();
  if (results > most)
    return FieldError("health.check.results", absl::StrCat(results), absl::StrCat("must be at most ", most));
  for (const v1::CheckResult& result : health.check().results()) RETURN_IF_ERROR(CheckResultOf(worker, result));
  return absl::OkStatus();
}

}  // namespace legoai::server
