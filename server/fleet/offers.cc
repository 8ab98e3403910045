#include "server/fleet/offers.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/hardware/catalog.h"
#include "core/process/build_version.h"
#include "proto/worker_slots.h"

namespace legoai::server {
namespace {

bool IsThere(const v1::Worker& worker, const v1::Resources& wanted) {
  return worker.pool() == wanted.pool() && (wanted.device_type().empty() || worker.device().type() == wanted.device_type()) &&
         worker.connected() && worker.state() == v1::READY;
}

// One of another build is given nothing new (Agents::Views): nothing is planned for it either.
bool Suits(const v1::Worker& worker, const v1::Resources& wanted) {
  return IsThere(worker, wanted) && worker.build_version() == launch::BuildVersion();
}

int64_t Ranks(const Offer& offer) { return offer.worker == nullptr ? 0 : offer.slots * offer.workers; }

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

// Of the label; empty: it has none. What lies in two racks is not taken for one domain.
std::vector<std::string> DomainOf(const v1::Worker& worker) {
  std::vector<std::string> place = TopologyOf(worker);
  place.pop_back();  // the host
  return place.back().empty() ? std::vector<std::string>() : place;
}

// Whether the catalog knows that the device's NVLink joins so many.
bool NvlinkJoins(const v1::Device& device, int64_t devices) {
  return absl::StartsWith(device.node_link(), "nvlink") &&
         sim::ParseCluster(absl::StrCat(device.type(), ":", devices, "x1")).ok();
}

constexpr char kInDomain[] = " in one NVLink domain";

// Two digits: "55 GFLOP/s", "990 TFLOP/s".
std::string SpeedText(double per_second, std::string_view unit) {
  if (!(per_second > 0)) return absl::StrCat("0 ", std::string(unit));
  const double step = std::pow(10, std::floor(std::log10(per_second)) - 1);
  const double rounded = std::round(per_second / step) * step;
  const bool tera = rounded >= 1e12;
  return absl::StrFormat("%.3g %s%s", rounded / (tera ? 1e12 : 1e9), tera ? "T" : "G", std::string(unit));
}

}  // namespace

Offers::Offers(std::vector<v1::Worker> workers) : workers_(std::move(workers)) {
  for (const v1::Worker& worker : workers_) gangs_.push_back(GangOf(worker));
}

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
    const int64_t free = std::min(most, FreeSlots(worker)), all = std::min(most, SoundSlots(worker));
    if (free >= wanted.min_slots() && free > now.slots) now = {&worker, free};
    if (all >= wanted.min_slots() && all > later.slots) later = {&worker, all};
    largest = std::max(largest, SoundSlots(worker));
  }
  // What fits on one worker runs on one: no network between hosts is as fast as what is within.
  if (std::max(wanted.slots(), wanted.min_slots()) > largest) {
    if (const Offer several = OfSeveral(wanted, /*free=*/true); Ranks(several) > Ranks(now)) now = several;
    if (const Offer several = OfSeveral(wanted, /*free=*/false); Ranks(several) > Ranks(later)) later = several;
  }
  Offer offer = now.worker != nullptr ? now : later;
  offer.largest = largest;
  return offer;
}

namespace {

// Whether `count` of the workers that have so many slots are of one domain.
template <class SlotsOf>
bool HaveDomain(const std::vector<const v1::Worker*>& workers, int64_t slots, size_t count, SlotsOf slots_of) {
  std::map<std::vector<std::string>, size_t> in_domain;
  for (const v1::Worker* worker : workers) {
    const std::vector<std::string> domain = DomainOf(*worker);
    if (!domain.empty() && slots_of(*worker) >= slots && ++in_domain[domain] >= count) return true;
  }
  return false;
}

}  // namespace

// The most slots of which each of some workers that are alike has as many; of equal numbers those of the fewest workers.
Offer Offers::OfSeveral(const v1::Resources& wanted, bool free) const {
  const int64_t most = wanted.slots() > 0 ? wanted.slots() : wanted.min_slots();
  std::map<std::string, std::vector<const v1::Worker*>> gangs;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (Suits(workers_[i], wanted) && !gangs_[i].empty()) gangs[gangs_[i]].push_back(&workers_[i]);
  }
  const auto slots_of = [free](const v1::Worker& worker) { return free ? FreeSlots(worker) : SoundSlots(worker); };
  Offer best;
  for (auto& [gang, workers] : gangs) {
    std::stable_sort(workers.begin(), workers.end(),
                     [&](const v1::Worker* a, const v1::Worker* b) { return slots_of(*a) > slots_of(*b); });
    for (size_t count = 2; count <= workers.size(); ++count) {
      const auto hosts = static_cast<int64_t>(count);
      const int64_t each = std::min(slots_of(*workers[count - 1]), most / hosts);
      if (each < 1 || each * hosts < wanted.min_slots() || each * hosts <= Ranks(best)) continue;
      best = {workers[0], each, 0, hosts};
      best.in_domain = hosts > 1 && NvlinkJoins(workers[0]->device(), each * hosts) && HaveDomain(workers, each, count, slots_of);
    }
  }
  return best;
}

bool Offers::AreInDomain(const std::vector<std::string>& workers, int64_t slots) const {
  std::set<std::vector<std::string>> domains;
  for (const std::string& name : workers) {
    const v1::Worker* const worker = Find(name);
    domains.insert(worker == nullptr ? std::vector<std::string>() : DomainOf(*worker));
  }
  return workers.size() > 1 && domains.size() == 1 && !domains.begin()->empty() &&
         NvlinkJoins(Find(workers[0])->device(), slots * static_cast<int64_t>(workers.size()));
}

bool Offers::Has(const v1::Resources& wanted, int64_t workers, int64_t slots) {
  if (workers == 1) return To(wanted).largest >= slots;
  std::map<std::string, int64_t> alike;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (gangs_[i].empty() || !Suits(workers_[i], wanted) || SoundSlots(workers_[i]) < slots) continue;
    if (++alike[gangs_[i]] >= workers) return true;
  }
  return false;
}

const std::string& Offers::WhyNone(const v1::Resources& wanted) {
  const auto [why, is_new] = why_.try_emplace(wanted.SerializeAsString());
  if (is_new) why->second = MakeWhyNone(wanted);
  return why->second;
}

std::string Offers::MakeWhyNone(const v1::Resources& wanted) {
  const std::string of = absl::StrCat("pool ", wanted.pool(), wanted.device_type().empty() ? "" : " of " + wanted.device_type());
  const int64_t largest = To(wanted).largest;
  const int64_t others = std::count_if(workers_.begin(), workers_.end(), [&](const v1::Worker& worker) {
    return IsThere(worker, wanted) && !Suits(worker, wanted);
  });
  const std::string of_other_build =
      others == 0 ? ""
                  : absl::StrCat("; ", others, others == 1 ? " is" : " are",
                                 " of another build than this server, and given nothing new until the same is installed there");
  const int64_t faulty = std::count_if(workers_.begin(), workers_.end(), [&](const v1::Worker& worker) {
    return Suits(worker, wanted) && SoundSlots(worker) < worker.slots();
  });
  std::string of_faults;
  if (faulty > 0)
    of_faults = absl::StrCat("; ", faulty, faulty == 1 ? " has" : " have", " faulty slots (`lego workers NAME` says why)");
  if (largest == 0) {
    return absl::StrCat("no worker of ", of, others == 0 ? "" : " and of this server's build", " is connected and ready",
                        of_other_build, of_faults, ": start an agent for it, or cancel the job and submit it with ",
                        wanted.device_type().empty() ? "another resources.pool" : "another resources.pool or device_type");
  }
  std::set<std::string> kinds;
  for (const v1::Worker& worker : workers_) {
    if (Suits(worker, wanted)) kinds.insert(SlotKind(worker));
  }
  v1::Resources any = wanted;
  any.set_min_slots(1);
  const Offer several = OfSeveral(any, /*free=*/false);
  return absl::StrCat("resources.min_slots is ", wanted.min_slots(), " and the largest worker of ", of, " has ", largest,
                      largest == 1 ? " slot" : " slots",
                      "; all slots of a job are on one worker, or as many on each of several of one kind that see the same runs",
                      several.worker == nullptr
                          ? ""
                          : absl::StrCat(", of which ", several.workers, " have ", Ranks(several), " together"),
                      kinds.size() > 1 ? absl::StrCat("; there are ", absl::StrJoin(kinds, ", and ")) : "", of_other_build,
                      of_faults, ": connect a worker with at least ", wanted.min_slots(),
                      " slots, or cancel the job and submit it with a smaller resources.min_slots");
}

namespace {

std::string AskedText(int64_t ranks, const v1::Resources& wanted) {
  return ranks < wanted.slots() ? absl::StrCat(" (", wanted.slots(), " were asked for)") : "";
}

std::string SlotsOf(int64_t slots) { return absl::StrCat(slots, slots == 1 ? " slot of " : " slots of "); }

}  // namespace

std::string SlotsText(int64_t slots, const std::vector<std::string>& workers, const v1::Resources& wanted) {
  return absl::StrCat(SlotsOf(slots), workers.size() > 1 ? "each of " : "", absl::StrJoin(workers, ", "),
                      AskedText(slots * static_cast<int64_t>(workers.size()), wanted));
}

std::string PlannedSlotsText(int64_t slots, int64_t workers, const std::string& worker, const v1::Resources& wanted) {
  return absl::StrCat(SlotsOf(slots), workers > 1 ? absl::StrCat("each of ", workers, " workers like ") : "", worker,
                      AskedText(slots * workers, wanted));
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

std::string GangOf(const v1::Worker& worker) {
  const std::string& address = worker.gang_address();
  if (address.empty()) return "";
  // By such an address only a process of the same host is reached.
  const bool is_loopback = address.rfind("127.", 0) == 0 || address == "::1";
  return absl::StrCat(SlotKind(worker), "; ", worker.runs(), is_loopback ? "; host " + worker.host() : "");
}

std::vector<std::string> TopologyOf(const v1::Worker& worker) {
  const auto label = [&](const char* name) {
    const auto found = worker.labels().find(name);
    return found == worker.labels().end() ? std::string() : found->second;
  };
  return {label(kRackLabel), label(kNvlinkDomainLabel), worker.host()};
}

std::string ClusterName(const std::string& kind, int64_t slots, int64_t workers, bool in_domain) {
  return absl::StrCat(workers > 1 ? absl::StrCat(workers, " workers", in_domain ? kInDomain : "", " with ") : "", SlotsOf(slots),
                      kind);
}

bool IsInDomain(const std::string& cluster_name) {
  return absl::StrContains(cluster_name.substr(0, cluster_name.find(" with ")), kInDomain);
}

std::string KindOf(const std::string& cluster_name) {
  constexpr std::string_view kOf = " of ";
  const size_t of = cluster_name.find(kOf);
  return of == std::string::npos ? cluster_name : cluster_name.substr(of + kOf.size());
}

absl::StatusOr<v1::Cluster> ClusterOf(const v1::Worker& worker, int64_t slots, int64_t workers, bool in_domain) {
  auto cluster = sim::MakeHostCluster(worker.device(), slots,
                                      {.memory_bytes = HostMemoryPerSlot(worker) * slots,
                                       .cores = std::max<int64_t>(1, worker.host_cores() * slots / worker.slots())},
                                      workers);
  if (!cluster.ok()) return cluster;
  cluster->set_name(ClusterName(SlotKind(worker), slots, workers, in_domain));
  if (!in_domain) return cluster;
  cluster->mutable_tiers(0)->set_group_size(slots * workers);
  cluster->mutable_tiers()->DeleteSubrange(1, cluster->tiers_size() - 1);
  return cluster;
}

}  // namespace legoai::server
