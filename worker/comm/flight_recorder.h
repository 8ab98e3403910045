// Writes every collective and message of this process into a FlightRing.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "worker/comm/flight_ring.h"
#include "worker/comm/runtime.h"

namespace legoai::comm {

class FlightRecorder : public CommObserver {
 public:
  explicit FlightRecorder(std::unique_ptr<FlightRing> ring) : ring_(std::move(ring)) {}
  int64_t Created(const Call& call) override;
  void Started(int64_t id) override;
  void Completed(int64_t id) override;

 private:
  struct Counts {
    int64_t collectives = 0, messages = 0, operations = 0;
  };
  std::unique_ptr<FlightRing> ring_;
  std::map<int64_t, Counts> counts_;  // by group
  uint64_t next_id_ = 1;
};

}  // namespace legoai::comm
