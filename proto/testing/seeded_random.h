// Random numbers of a test that another run does not repeat.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

namespace legoai {

// Every failure while it lives says its seed: give that one, and the test draws the same again.
class SeededRandom : public std::mt19937_64 {
 public:
  explicit SeededRandom(uint64_t seed = std::random_device()())
      : std::mt19937_64(seed), trace_(__FILE__, __LINE__, "seed " + std::to_string(seed)) {}

 private:
  ::testing::ScopedTrace trace_;
};

}  // namespace legoai
