// For tests of hangs: stops rank 1 of two real ranks where it is inside of a collective, or where it is in none, as its flight
// ring says. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/legoai/v1/flight_record.pb.h"

namespace legoai::launch::testing {

class RankStopper {
 public:
  // The ranks train, and have rings in the run directory.
  RankStopper(std::string run_directory, std::array<pid_t, 2> ranks) : run_directory_(std::move(run_directory)), ranks_(ranks) {}

  // Rank 1 stays stopped in the middle of an all-reduce that cannot end without it: 0 comes to it only afterwards. Returns rank
  // 1's entry of it; nothing: it was not met there within minutes.
  std::optional<v1::FlightEntry> StopInside() const;
  // Rank 1 stays stopped where it is in no communication. False: it was not met so within minutes.
  bool StopOutside() const;

 private:
  void Stop(int64_t rank) const;
  void Continue(int64_t rank) const;
  std::vector<v1::FlightEntry> Ring(int64_t rank) const;
  std::vector<v1::FlightEntry> Open(int64_t rank) const;  // what it has queued or entered, and not completed
  bool Knows(int64_t rank, const v1::FlightEntry& entry) const;

  const std::string run_directory_;
  const std::array<pid_t, 2> ranks_;
};

}  // namespace legoai::launch::testing
