// Flight recorder dumps of all ranks, grouped by operation: the entries of all ranks of one collective, the sends and receives of
// one pair of ranks. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "proto/legoai/v1/flight_record.pb.h"

namespace legoai::comm {

// The operation without the backend and ranks that PyTorch adds: "all_gather" of "gloo:all_gather", "send" of "nccl:send 1->2".
std::string FlightKind(const std::string& profiling_name);

// One rank's entry of an operation.
struct FlightPart {
  int64_t rank = 0;  // in the world
  const v1::FlightEntry* entry = nullptr;
  bool entered = false;  // inside it or through it; not merely queued
  bool completed = false;
  bool inside() const { return entered && !completed; }
};

struct FlightCollective {
  int64_t group = 0;  // index in FlightHistory::groups
  int64_t sequence = 0;
  int64_t index = 0;              // within operations that were launched as one
  std::vector<FlightPart> parts;  // by rank
};

// Messages of one group from one rank to another, each side in the order of its own records.
struct FlightChannel {
  int64_t group = 0, from = 0, to = 0;
  std::vector<FlightPart> sends, receives;
  bool whole = false;  // both sides have every message from the beginning: the n-th send matches the n-th receive
};

struct FlightHistory {
  struct Group {
    std::string name;
    std::vector<int64_t> ranks;
  };
  struct Reach {
    int64_t first = 0, last = 0;  // sequence numbers
  };
  std::vector<Group> groups;
  std::set<int64_t> dumped;                     // ranks
  std::vector<FlightCollective> collectives;    // by group, sequence, index
  std::vector<FlightChannel> channels;          // by group, from, to
  std::vector<std::map<int64_t, Reach>> reach;  // by group and rank: which collectives a dump has
};

// The dumps, one per rank, must outlive the result.
FlightHistory GatherFlight(const std::vector<v1::FlightDump>& dumps);

}  // namespace legoai::comm
