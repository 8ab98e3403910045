// Dumps of flight recorders, one of each rank, as one table of operations: which rank is how far with which.
// Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/legoai/v1/flight_record.pb.h"

namespace legoai::comm {

// One collective of a group, or one message of a rank, as all dumps show it.
struct FlightOperation {
  std::string group;
  bool is_p2p = false;
  int64_t sequence = 0;  // within the group: of collectives, or of messages of one rank
  std::string name;      // "gloo:all_gather"
  int64_t bytes = 0;
  std::vector<int64_t> group_ranks;
  std::map<int64_t, std::string> states;  // by rank: "scheduled", "started", "completed"
  std::map<int64_t, int64_t> peers;       // of messages: the peer's rank in the world, by rank
  std::vector<int64_t> overwritten;       // ranks whose ring no longer reaches back that far
  std::vector<int64_t> not_reached;       // ranks of the group that have a dump and have not come here
  bool complete() const;                  // every rank of the group with a dump has completed it
};

struct MergedFlight {
  int64_t world_size = 0;
  std::vector<int64_t> ranks;               // with a dump
  std::vector<int64_t> missing;             // without
  std::vector<FlightOperation> operations;  // by group (in order of the first dump), collectives before messages, by sequence
};

// Two ranks of a group whose operations of one sequence number have different names give two operations.
MergedFlight MergeFlightDumps(const std::vector<v1::FlightDump>& dumps);

}  // namespace legoai::comm
