// Philox 4x32-10, a counter-based generator: 128 bits of counter and 64 bits of key give 128 random bits, with no state (Salmon,
// Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Initialization and dropout draw from it, so that
// they are equal in every layout. Torch-free; compiles with nvcc and the host compiler. Thread-safety: pure functions.
//
// The arithmetic of lego::dropout (ops.h) is here too, shared by the CPU and GPU kernels: their masks are identical. Philox's key
// is the seed; its counter is (position / 4, sample low, step, site and sample high), and its four words are the draws of a block
// of four neighbouring positions of the sample.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define LEGOAI_HOST_DEVICE __host__ __device__
#else
#define LEGOAI_HOST_DEVICE
#endif

namespace legoai::model {

// `L` generators in parallel, so that the compiler vectorizes the loops. counter[i] and the result are word i of every lane.
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

struct DropoutDraw {
  uint64_t seed = 0;
  uint32_t sample_low = 0, step = 0, site_and_sample_high = 0;
};

LEGOAI_HOST_DEVICE inline DropoutDraw DrawOf(int64_t seed, int64_t step, int64_t sample, int64_t site) {
  const auto bits = static_cast<uint64_t>(sample);
  return {static_cast<uint64_t>(seed), static_cast<uint32_t>(bits), static_cast<uint32_t>(step),
          static_cast<uint32_t>(site) << 16 | static_cast<uint32_t>(bits >> 32 & 0xFFFF)};
}

// Word w of lane l becomes the draw of position 4 (first_block + l) + w.
template <int L>
LEGOAI_HOST_DEVICE inline void DrawBlocks(const DropoutDraw& draw, int64_t first_block, PhiloxLanes<L>* words) {
  for (int lane = 0; lane < L; ++lane) {
    words->word[0][lane] = static_cast<uint32_t>(first_block + lane);
    words->word[1][lane] = draw.sample_low;
    words->word[2][lane] = draw.step;
    words->word[3][lane] = draw.site_and_sample_high;
  }
  Philox(words, draw.seed);
}

// The factor of an element with a given draw: 0 if draw / 2^32 < p, otherwise 1 / (1 - p).
struct DropoutFactor {
  uint32_t threshold = 0;
  float scale = 1;
  LEGOAI_HOST_DEVICE float Of(uint32_t draw) const { return draw < threshold ? 0.0f : scale; }
};

// 0 <= p < 1.
inline DropoutFactor FactorOf(double p) {
  return {static_cast<uint32_t>(std::min<int64_t>(std::llround(p * 4294967296.0), 4294967295)),
          static_cast<float>(1.0 / (1.0 - p))};
}

// The positions within its sample of a row of elements: runs of `length` consecutive ones (0: one run, the whole row). Run i
// begins at first + (i mod count) stride + (i / count) outer_stride.
struct DropoutRuns {
  int64_t first = 0, length = 0, count = 1, stride = 0, outer_stride = 0;
  LEGOAI_HOST_DEVICE int64_t FirstOf(int64_t run) const { return first + run % count * stride + run / count * outer_stride; }
};

// A call of the operator as a GPU's threads see it: raw memory, in rows (samples) of `size` elements.
template <class T>
struct DropoutCall {
  const T* x = nullptr;
  T* out = nullptr;
  const int64_t* seed_and_step = nullptr;  // [2]
  const int64_t* samples = nullptr;        // [batch]
  int64_t batch = 0, size = 0, site = 0;
  DropoutFactor factor;
  DropoutRuns runs;

  LEGOAI_HOST_DEVICE int64_t Length() const { return runs.length == 0 ? size : runs.length; }
  LEGOAI_HOST_DEVICE int64_t RunsOfRow() const { return runs.length == 0 ? 1 : size / runs.length; }
  // Draws come in blocks of four positions, and a run may begin and end within one; as runs begin at different offsets, this may
  // be one block more than a run needs.
  LEGOAI_HOST_DEVICE int64_t BlocksOfRun() const {
    return runs.length == 0 ? (runs.first % 4 + size + 3) / 4 : (runs.length + 6) / 4;
  }
  LEGOAI_HOST_DEVICE int64_t Blocks() const { return batch * RunsOfRow() * BlocksOfRun(); }
};

// One thread's work: the positions of block `block` of all runs' blocks.
template <class T>
LEGOAI_HOST_DEVICE inline void DropBlock(const DropoutCall<T>& call, int64_t block) {
  const int64_t in_run = block % call.BlocksOfRun(), of_all = block / call.BlocksOfRun();
  const int64_t row = of_all / call.RunsOfRow(), run = of_all % call.RunsOfRow(), first = call.runs.FirstOf(run);
  PhiloxLanes<1> words;
  DrawBlocks(DrawOf(call.seed_and_step[0], call.seed_and_step[1], call.samples[row], call.site), first / 4 + in_run, &words);
  for (int word = 0; word < 4; ++word) {
    const int64_t i = 4 * in_run + word - first % 4, at = row * call.size + run * call.Length() + i;
    if (i < 0 || i >= call.Length()) continue;
    call.out[at] = static_cast<T>(static_cast<float>(call.x[at]) * call.factor.Of(words.word[word][0]));
  }
}

}  // namespace legoai::model
