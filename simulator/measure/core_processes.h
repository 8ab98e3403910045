// Work on several cores at once as the ranks of a trainer do it: a process for each, pinned to a core of its own, with one
// thread.
//
// Torch in the children is limited to one thread. Must be called from a process of one thread (it forks). Blocking; the children
// die with the caller.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"

namespace legoai::sim {

using CoreWork = std::function<absl::StatusOr<std::vector<double>>(int64_t core)>;

// Numbers, zero at first, that a process and those that it forks see together.
class SharedCounters {
 public:
  explicit SharedCounters(int64_t count);  // throws std::bad_alloc
  ~SharedCounters();
  SharedCounters(const SharedCounters&) = delete;
  SharedCounters& operator=(const SharedCounters&) = delete;
  std::atomic<int64_t>& operator[](int64_t i) { return counters_[i]; }
  int64_t Smallest() const;

 private:
  const int64_t count_;
  std::atomic<int64_t>* counters_;
};

// What `work` gave on each core, in their order. `watch`, if given, is called now and then until all are done. Errors: the first
// that a core gave; Internal for a process that died.
absl::StatusOr<std::vector<std::vector<double>>> RunOnCores(int64_t cores, const CoreWork& work,
                                                            const std::function<void()>& watch = {});

}  // namespace legoai::sim
