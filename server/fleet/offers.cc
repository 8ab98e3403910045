#include "server/fleet/offers.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/hardware/catalog.h"

namespace legoai::server {
namespace {

bool Suits(const v1::Worker& worker, const v1::Resources& wanted) {
  return worker.pool() == wanted.pool() && (wanted.device_type().empty() || worker.device().type() == wanted.device_type()) &&
         worker.connected() && worker.state() == v1::READY;
}

// The share of a slot, rounded down: alike machines differ by what their kernels keep.
int64_t HostMemoryPerSlot(const v1::Worker& worker) {
  constexpr int64_t kUnit = int64_t{64} << 20;
  const int64_t share = worker.host_memory_bytes() / worker.slots();
  return share < kUnit ? share : share / kUnit * kUnit;
}

double PeakFlops(const v1::Device& device) {
  double peak = 0;
  for (const v1::PeakFlops& of_type : device.peak_flops()) peak = std::max(peak, of_type.flops_per_second());
  return peak;
}

// Two digits: "55 GFLOP/s", "990 TFLOP/s".
std::string SpeedText(double per_second, std::string_view unit) {
  if (!(per_second > 0)) return absl::StrCat("0 ", std::string(unit));
  const double step = std::pow(10, std::floor(std::log10(per_second)) - 1);
  const double rounded = std::round(per_second / step) * step;
  const bool tera = rounded >= 1e12;
  return absl::StrFormat("%.3g %s%s", rounded / (tera ? 1e12 : 1e9), tera ? "T" : "G", std::string(unit));
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

const v1::Worker* Offers::Find(const std::string& name) const {
  const auto found = std::find_if(workers_.begin(), workers_.end(), [&](const auto& worker) { return worker.name() == name; });
  return found == workers_.end() ? nullptr : &*found;
}

std::string SlotKind(const v1::Worker& worker) {
  const v1::Device& device = worker.device();
  const bool shares_host = device.kind() == v1::CPU;
  const double cores = static_cast<double>(worker.host_cores()) / static_cast<double>(worker.slots());
  const int64_t memory = shares_host ? HostMemoryPerSlot(worker) : device.memory_bytes();
  return absl::StrFormat("%s (%.2f GiB, %s%s and %s a slot)", device.type(), static_cast<double>(memory) / (int64_t{1} << 30),
                         shares_host ? absl::StrFormat("%.3g %s, ", cores, cores == 1 ? "core" : "cores") : "",
                         SpeedText(PeakFlops(device), "FLOP/s"), SpeedText(device.memory_bandwidth_bytes_per_second(), "B/s"));
}

std::string ClusterName(const std::string& kind, int64_t slots) {
  return absl::StrCat(slots, slots == 1 ? " slot of " : " slots of ", kind);
}

std::string KindOf(const std::string& cluster_name) {
  constexpr std::string_view kOf = " of ";
  const size_t of = cluster_name.find(kOf);
  return of == std::string::npos ? cluster_name : cluster_name.substr(of + kOf.size());
}

absl::StatusOr<v1::Cluster> ClusterOf(const v1::Worker& worker, int64_t slots) {
  auto cluster = sim::MakeHostCluster(worker.device(), slots,
                                      {.memory_bytes = HostMemoryPerSlot(worker) * slots,
                                       .cores = std::max<int64_t>(1, worker.host_cores() * slots / worker.slots())});
  if (cluster.ok()) cluster->set_name(ClusterName(SlotKind(worker), slots));
  return cluster;
}

}  // namespace legoai::server
