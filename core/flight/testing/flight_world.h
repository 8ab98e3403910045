// A world of ranks that run collectives and messages in one global order, each rank waiting in each until all have come, and the
// dumps which their flight recorders would leave. What is to go wrong is said beforehand.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "proto/legoai/v1/flight_record.pb.h"

namespace legoai::comm {

class FlightWorld {
 public:
  struct Operation {
    int64_t group = 0;
    std::string kind = "all_reduce";  // "send": a message, the sender's entry "send", the receiver's "recv"
    std::vector<int64_t> input = {4, 8}, output = {4, 8};
    std::string dtype = "Float";
    int64_t from = -1, to = -1;  // of a message, ranks in the world
    std::vector<int64_t> ranks;  // who takes part
    bool asynchronous = false;
  };

  explicit FlightWorld(int64_t size) : size_(size) {}

  int64_t size() const { return size_; }
  const std::vector<Operation>& operations() const { return operations_; }

  int64_t AddGroup(const std::string& name, const std::vector<int64_t>& ranks);
  // Ranks of a mesh [pp, dp, tp] and its groups: "world", and for each line of the mesh "pp", "dp", "tp". Gives the groups.
  std::vector<int64_t> AddMesh(int64_t pp, int64_t dp, int64_t tp);
  const std::vector<int64_t>& Ranks(int64_t group) const { return groups_[group].ranks; }

  // Sizes that fit the kind and the group.
  void AddCollective(int64_t group, const std::string& kind, int64_t rows = 4);
  void AddMessage(int64_t group, int64_t from, int64_t to, int64_t rows = 4);

  // The rank stops for ever before it gets through this operation. It may have queued this one and the next of its own, and on
  // other streams even started some: `states` says how far it is with these, "scheduled" or "started"; it queues nothing after
  // one that is not asynchronous.
  void Hang(int64_t rank, int64_t operation, const std::vector<std::string>& states = {});
  // Ranks start it and go on, on another stream.
  void MakeAsynchronous(int64_t operation) { operations_[operation].asynchronous = true; }
  // The rank enters it with another entry; nobody gets through it then.
  void Alter(int64_t rank, int64_t operation, std::function<void(v1::FlightEntry*)> alter);

  // Who is inside something for ever, beside those that hang.
  const std::set<int64_t>& stuck() const { return inside_; }
  // What the recorders hold in the end; `capacity`: of the rings; `ahead`: operations that a rank which waits has queued behind.
  std::vector<v1::FlightDump> Run(int64_t capacity = INT64_MAX, int64_t ahead = 0);

 private:
  struct Group {
    std::string name;
    std::vector<int64_t> ranks;
  };
  struct Alteration {
    int64_t rank, operation;
    std::function<void(v1::FlightEntry*)> alter;
  };
  void Record(int64_t rank, int64_t operation, const std::string& state);
  void RunOperation(int64_t operation, std::vector<int64_t>* ahead, std::vector<std::vector<std::string>>* last);

  int64_t size_;
  std::vector<Group> groups_;
  std::vector<Operation> operations_;
  std::vector<Alteration> alterations_;
  struct Hanging {
    int64_t rank, operation;
    std::vector<std::string> states;
  };
  std::vector<Hanging> hangs_;
  std::set<int64_t> stuck_, hung_, inside_;
  std::vector<v1::FlightDump> dumps_;
  std::vector<std::vector<int64_t>> collectives_, messages_;  // counted by rank and group
};

// All ranks of a world in the group "dp", which runs `count` collectives.
FlightWorld Collectives(int64_t size, int64_t count, const std::string& kind = "all_reduce");

}  // namespace legoai::comm
