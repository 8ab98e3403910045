// Runs work on several cores at once like the ranks of a trainer: one single-threaded process per core, pinned to it.
//
// Torch in the children is limited to one thread. Must be called from a process of one thread (it forks). Blocking; the children
// die with the caller.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/dtype.pb.h"

namespace legoai::sim {

using CoreWork = std::function<absl::StatusOr<std::vector<double>>(int64_t core)>;

// Counters, initially zero, shared by a process and the processes it forks.
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

// The results of `work` by core. `watch`, if given, is called periodically until all are done. Errors: the first of any core;
// Internal for a process that died.
absl::StatusOr<std::vector<std::vector<double>>> RunOnCores(int64_t cores, const CoreWork& work,
                                                            const std::function<void()>& watch = {});

// A rough speed of this CPU's cores, measured in less than a second, to predict how long a benchmark will take. Step times do not
// use it.

// Of one core while the others do the same, in this process's CPU time, so that a busy machine does not make a type look slow.
struct CoreSpeed {
  v1::DType dtype = v1::FLOAT32;
  double flops_per_second = 1;          // of matrix products in `dtype`
  double float32_flops_per_second = 1;  // the same in float32
  double bytes_per_second = 1;          // read and written by an elementwise operator
};

// Forks (core_processes.h); blocking. `dtype`: FLOAT32, BFLOAT16 or FLOAT16. Errors: Internal.
absl::StatusOr<CoreSpeed> MeasureCoreSpeed(v1::DType dtype, int64_t busy_cores);

}  // namespace legoai::sim
