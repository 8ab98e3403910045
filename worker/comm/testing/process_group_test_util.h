// For tests: runs a function in as many real processes as there are ranks, connected by Gloo.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/mesh/mesh.h"
#include "worker/comm/runtime.h"

namespace legoai::comm::testing {

// Forks mesh.world() children; each has a current Runtime over Gloo and one thread, runs `body` and returns the bytes it wants
// to give back. Gives these by rank. A child that throws, fails a gtest expectation or dies makes the test fail with its text.
std::vector<std::string> RunRanks(const mesh::Mesh& mesh, const std::function<std::string(int64_t rank, Runtime&)>& body);

// The same for a body that gives nothing back.
template <class Body>
requires std::is_void_v<std::invoke_result_t<const Body&, int64_t, Runtime&>>
void RunRanks(const mesh::Mesh& mesh, const Body& body) {
  RunRanks(mesh, [&](int64_t rank, Runtime& runtime) { return body(rank, runtime), std::string(); });
}

}  // namespace legoai::comm::testing
