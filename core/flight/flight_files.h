// Flight recorder dumps: reading them from files (LegoAI's rings and JSON, PyTorch's JSON and pickles), and merging those of all
// ranks into one table of operations. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/flight_record.pb.h"

namespace legoai::comm {

// Reads a file of any of these formats. If a dump does not state its rank, it is taken from the file's name ("nccl_trace_rank_3",
// "rank-3.json") or from its groups. Errors: NotFound, InvalidArgument.
absl::StatusOr<v1::FlightDump> ReadFlightFile(const std::string& path);

// Reads files and folders: a run directory (its flight folder), or any folder of files with ranks in their names. Of rank-R and
// rank-R.json the ring is taken, which may be that of a live process, unless the JSON carries the launcher's verdict on the rank,
// written after a failure. Sorted by rank. Errors: as above; NotFound for a folder without dumps; InvalidArgument for two dumps
// of one rank.
absl::StatusOr<std::vector<v1::FlightDump>> ReadFlight(const std::vector<std::string>& places);

// The table: how far each rank is with which operation.

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
  std::vector<int64_t> not_reached;       // ranks of the group that have a dump and have not entered it
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
