// The slots that connected and ready workers of this server's build offer to jobs to be planned: those of one worker, and to a
// job that wants more than any worker has, as many of each of several that are alike. Rebuilt for every decision; equal requests
// are cached. Not thread-safe. gRPC-free.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/cluster.pb.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/worker.pb.h"

namespace legoai::server {

struct Offer {
  const v1::Worker* worker = nullptr;  // null: none has min_slots, nor have several together; of several, one of them
  int64_t slots = 0;                   // slots of each worker to plan for
  int64_t largest = 0;                 // slots of the largest worker of the pool and type; 0: there is none
  int64_t workers = 1;                 // to plan for
  bool in_domain = false;              // so many of them are in one NVLink domain that is known to join their slots
};

class Offers {
 public:
  explicit Offers(std::vector<v1::Worker> workers);

  // Free slots if they are at least min_slots; otherwise all slots of a worker, for which the job then waits. Valid as long as
  // this object.
  const Offer& To(const v1::Resources& wanted);
  // Whether there are so many workers, one, or several that are alike, with so many slots each, used or free.
  bool Has(const v1::Resources& wanted, int64_t workers, int64_t slots);

  const v1::Worker* Find(const std::string& worker) const;  // null if there is none of this name
  // Whether several workers, with so many slots each, are in one NVLink domain that is known to join these.
  bool AreInDomain(const std::vector<std::string>& workers, int64_t slots) const;

  // Why To(wanted) has no worker, with a remedy. Valid as long as this object.
  const std::string& WhyNone(const v1::Resources& wanted);

 private:
  Offer Make(const v1::Resources& wanted) const;
  Offer OfSeveral(const v1::Resources& wanted, bool free) const;

  std::string MakeWhyNone(const v1::Resources& wanted);

  const std::vector<v1::Worker> workers_;
  std::vector<std::string> gangs_;         // of the workers, in their order
  std::map<std::string, Offer> made_;      // by request
  std::map<std::string, std::string> why_;  // by request
};

// "2 slots of workers/a", "2 slots of each of workers/a, workers/b", with " (8 were asked for)" if the job accepts fewer than it
// wanted.
std::string SlotsText(int64_t slots, const std::vector<std::string>& workers, const v1::Resources& wanted);
// Of a plan: "2 slots of workers/a", "2 slots of each of 3 workers like workers/a".
std::string PlannedSlotsText(int64_t slots, int64_t workers, const std::string& worker, const v1::Resources& wanted);

// Everything about a worker that a plan depends on, as text: "cpu (3.94 GiB, 1 core, 55 GFLOP/s and 8 GB/s a slot)". Speeds are
// rounded, so that equal machines with slightly different measurements are of one kind. A plan for slots of one worker is valid
// for as many slots of any worker of the same kind.
std::string SlotKind(const v1::Worker& worker);

// Which workers may train a job together: those of one kind that see the same runs and reach each other. Empty: it trains alone.
std::string GangOf(const v1::Worker& worker);
// The labels that say where a worker is: which share a rack's switch, and which the links of an NVLink domain.
inline constexpr char kRackLabel[] = "rack", kNvlinkDomainLabel[] = "nvlink-domain";
// Rack, NVLink domain, host.
std::vector<std::string> TopologyOf(const v1::Worker& worker);

// "2 slots of cpu (...)", "3 workers with 2 slots of cpu (...)", "3 workers in one NVLink domain with 2 slots of ...", and the
// inverse.
std::string ClusterName(const std::string& kind, int64_t slots, int64_t workers = 1, bool in_domain = false);
std::string KindOf(const std::string& cluster_name);
bool IsInDomain(const std::string& cluster_name);

// The cluster that a job is planned for, named by ClusterName: its share of the host's memory and cores is that of its slots
// among the worker's, because other jobs may hold the rest. Memory is what every worker of the kind has at least. `in_domain`:
// the links inside a node join the workers, too.
absl::StatusOr<v1::Cluster> ClusterOf(const v1::Worker& worker, int64_t slots, int64_t workers = 1, bool in_domain = false);

}  // namespace legoai::server
