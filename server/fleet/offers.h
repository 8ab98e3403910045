// What connected and ready workers offer to jobs that are to be planned. All slots of a job are on one worker. Rebuilt for
// every decision; jobs that want the same are answered from memory. Not thread-safe. gRPC-free.
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
  const v1::Worker* worker = nullptr;  // null: none has min_slots
  int64_t slots = 0;                   // of it, to plan for
  int64_t largest = 0;                 // slots of the largest worker of the pool and type; 0: there is none
};

class Offers {
 public:
  explicit Offers(std::vector<v1::Worker> workers) : workers_(std::move(workers)) {}

  // Slots that are free now count if they are enough to begin with; otherwise all that a worker has, for which the job then
  // waits. Valid as long as this object.
  const Offer& To(const v1::Resources& wanted);

  const v1::Worker* Find(const std::string& worker) const;  // null: there is none of this name

  // Why there is no worker in To(wanted), with what to do.
  std::string WhyNone(const v1::Resources& wanted);

 private:
  Offer Make(const v1::Resources& wanted) const;

  const std::vector<v1::Worker> workers_;
  std::map<std::string, Offer> made_;  // by what is wanted
};

// "2 slots of workers/a", with " (8 were asked for)" where a job that wanted more is content with that many.
std::string SlotsText(int64_t slots, const std::string& worker, const v1::Resources& wanted);

// All of a worker that a plan depends on, as text: "cpu (3.94 GiB, 1 core, 55 GFLOP/s and 8 GB/s a slot)". Speeds are rounded, so
// that machines which are alike but for their measurement are of one kind. Where the names of two workers' kinds are equal, what
// was planned for slots of one is valid for as many of the other.
std::string SlotKind(const v1::Worker& worker);

// "2 slots of cpu (...)", and what was put there.
std::string ClusterName(const std::string& kind, int64_t slots);
std::string KindOf(const std::string& cluster_name);

// The cluster that a job is planned for, which ClusterName names: it gets the share of the host's memory and cores that its slots
// are of the worker's, since others may hold the rest. Of memory, what every worker of the kind has.
absl::StatusOr<v1::Cluster> ClusterOf(const v1::Worker& worker, int64_t slots);

}  // namespace legoai::server
