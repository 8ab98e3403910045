// A shuffle that needs no memory and no state: a permutation of [0, size) chosen by a key and evaluated at one index.
//
// A Feistel network over the smallest even number of bits that holds `size`, applied again until the result falls inside
// (cycle walking): the network is a bijection whatever its round function, and so is its restriction. Fewer than four
// applications on average. Thread-safety: const access from several threads is safe.
#pragma once

#include <cstdint>

namespace legoai::data {

class Permutation {
 public:
  // `size` at least 1.
  Permutation(int64_t size, uint64_t seed, uint64_t epoch);

  // The image of `index`, which is in [0, size).
  int64_t operator()(int64_t index) const;

 private:
  uint64_t Apply(uint64_t value) const;

  uint64_t size_, key_;
  int half_bits_;
};

}  // namespace legoai::data
