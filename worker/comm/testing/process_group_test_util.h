// For tests: runs a function in as many real processes as there are ranks, connected by Gloo.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/trace/trace.h"
#include "worker/comm/runtime.h"

namespace legoai::comm::testing {

// Groups of one dimension each, as ParallelDims orders them: pp x dp_replicate x dp_shard x tp.
struct Mesh {
  int64_t pp = 1, replicate = 1, shard = 1, tp = 1;
  int64_t World() const { return pp * replicate * shard * tp; }
  std::vector<graph::Group> Groups(int64_t rank) const;
};

// Forks mesh.World() children; each has a current Runtime over Gloo and one thread, runs `body` and returns the bytes it wants
// to give back. Gives these by rank. A child that throws, fails a gtest expectation or dies makes the test fail with its text.
std::vector<std::string> RunRanks(const Mesh& mesh, const std::function<std::string(int64_t rank, Runtime&)>& body);

}  // namespace legoai::comm::testing
