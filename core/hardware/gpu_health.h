// Whether the NVIDIA GPUs of this host are sound, by NVML: what a card's own counters say, and the Xids of which its driver
// tells.
//
// Not thread-safe: one thread polls it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/legoai/v1/machine_check.pb.h"

namespace legoai::sim {

namespace nvml {
struct Session;
}

// What a card says of itself. A card that does not tell has none of it.
struct GpuHealth {
  bool lost = false;                              // it has fallen off the bus; it says nothing else
  std::optional<int64_t> uncorrected_ecc_errors = std::nullopt;  // since the driver was loaded, or the card reset
  bool remap_pending = false;                     // rows of its memory are remapped by the next reset
  bool remap_failed = false;                      // there is no spare row left for one
};

// An Xid of which the driver tells as an event.
struct XidEvent {
  size_t gpu = 0;  // its place in the list that was opened
  int64_t xid = 0;
};

class GpuHealthReader {
 public:
  // Of the cards of these NVML indices. Errors: those of ReadNvml (nvml.h) if NVML cannot be opened.
  static absl::StatusOr<GpuHealthReader> Open(const std::vector<int>& indices);

  // In the order of the list.
  std::vector<GpuHealth> Read() const;

  // Xids are told of cards that were not lost when they were opened. While one of these is lost no wait ends well: open anew.
  // Why the driver tells of no Xids, or not of those of every card; empty: it does.
  const std::string& why_no_events() const { return why_no_events_; }
  // The next Xid, as soon as there is one; nothing after `wait`. Waits in any case.
  std::optional<XidEvent> AwaitXid(absl::Duration wait) const;

 private:
  struct Events;
  GpuHealthReader() = default;
  void Register();

  std::shared_ptr<const nvml::Session> session_;
  std::vector<void*> devices_;  // null: its handle cannot be had
  std::vector<bool> lost_;      // when its handle was asked for
  std::shared_ptr<const Events> events_;
  std::string why_no_events_;
};

// Whether an Xid says that the card, or what it hangs on, is at fault. False for those that programs cause themselves, and that
// leave the card sound.
bool IsCriticalXid(int64_t xid);

// What is wrong with a card that must get nothing new: cause and reason, with the remedy. `known_ecc_errors`: so many were there
// when an operator took the card back. Nothing: it is sound.
struct GpuFault {
  v1::FaultCause cause = v1::FAULT_CAUSE_UNSPECIFIED;
  std::string reason;
};
std::vector<GpuFault> FaultsOf(const GpuHealth& health, int64_t known_ecc_errors);

}  // namespace legoai::sim
