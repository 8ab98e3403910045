// Philox 4x32-10, a counter-based generator: 128 bits of counter and 64 bits of key give 128 random bits, with no state (Salmon,
// Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Initialization and dropout draw from it, so that
// they are equal in every layout. Torch-free; for nvcc as for the host's compiler.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define LEGOAI_HOST_DEVICE __host__ __device__
#else
#define LEGOAI_HOST_DEVICE
#endif

namespace legoai::model {

// `L` generators side by side, so that the compiler turns the loops into vector instructions. counter[i] and the result are
// word i of every lane.
template <int L>
struct PhiloxLanes {
  uint32_t word[4][L];
};

template <int L>
LEGOAI_HOST_DEVICE inline void Philox(PhiloxLanes<L>* counter, uint64_t key) {
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int lane = 0; lane < L; ++lane) {
      const uint64_t product0 = uint64_t{0xD2511F53} * counter->word[0][lane];
      const uint64_t product1 = uint64_t{0xCD9E8D57} * counter->word[2][lane];
      const uint32_t high0 = static_cast<uint32_t>(product0 >> 32), high1 = static_cast<uint32_t>(product1 >> 32);
      counter->word[0][lane] = high1 ^ counter->word[1][lane] ^ key0;
      counter->word[2][lane] = high0 ^ counter->word[3][lane] ^ key1;
      counter->word[1][lane] = static_cast<uint32_t>(product1);
      counter->word[3][lane] = static_cast<uint32_t>(product0);
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
}

}  // namespace legoai::model
