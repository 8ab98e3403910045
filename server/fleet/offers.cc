#include "server/fleet/offers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "simulator/hardware/catalog.h"

namespace legoai::server {
namespace {

bool Suits(const v1::Worker& worker, const v1::Resources& wanted) {
  return worker.pool() == wanted.pool() && (wanted.device_type().empty() || worker.device().type() == wanted.device_type()) &&
         worker.connected() && worker.state() == v1::READY;
}

}  // namespace

const Offer& Offers::To(const v1::Resources& wanted) {
  const auto [offer, is_new] = made_.try_emplace(wanted.SerializeAsString());
  if (is_new) offer->second = Make(wanted);
  return offer->second;
}

Offer Offers::Make(const v1::Resources& wanted) const {
  const int64_t most = wanted.slots() > 0 ? wanted.slots() : INT64_MAX;
  Offer now, later;
  int64_t largest = 0;
  for (const v1::Worker& worker : workers_) {
    if (!Suits(worker, wanted)) continue;
    int64_t used = 0;
    for (const v1::SlotUse& use : worker.used()) used += use.slots();
    const int64_t free = std::min(most, worker.slots() - used), all = std::min(most, worker.slots());
    if (free >= wanted.min_slots() && free > now.slots) now = {&worker, free};
    if (all >= wanted.min_slots() && all > later.slots) later = {&worker, all};
    largest = std::max(largest, worker.slots());
  }
  Offer offer = now.worker != nullptr ? now : later;
  offer.largest = largest;
  return offer;
}

std::string Offers::WhyNone(const v1::Resources& wanted) {
  const std::string of = absl::StrCat("pool ", wanted.pool(), wanted.device_type().empty() ? "" : " of " + wanted.device_type());
  const int64_t largest = To(wanted).largest;
  if (largest == 0) {
    return absl::StrCat("no worker of ", of,
                        " is connected and ready: start an agent for it, or cancel the job and submit it with ",
                        wanted.device_type().empty() ? "another resources.pool" : "another resources.pool or device_type");
  }
  return absl::StrCat("resources.min_slots is ", wanted.min_slots(), " and the largest worker of ", of, " has ", largest,
                      largest == 1 ? " slot" : " slots",
                      "; all slots of a job are on one worker: connect a worker with at least ", wanted.min_slots(),
                      " slots, or cancel the job and submit it with a smaller resources.min_slots");
}

std::string SlotsText(int64_t slots, const std::string& worker, const v1::Resources& wanted) {
  return absl::StrCat(slots, slots == 1 ? " slot of " : " slots of ", worker,
                      slots < wanted.slots() ? absl::StrCat(" (", wanted.slots(), " were asked for)") : "");
}

absl::StatusOr<v1::Cluster> ClusterOf(const Offer& offer) {
  const v1::Worker& worker = *offer.worker;
  return sim::MakeHostCluster(worker.device(), offer.slots,
                              {.memory_bytes = worker.host_memory_bytes() / worker.slots() * offer.slots,
                               .cores = std::max<int64_t>(1, worker.host_cores() * offer.slots / worker.slots())});
}

}  // namespace legoai::server
