// Rounding fp32 to bf16 up or down at random, so that the mean over all draws is the number itself (Gupta et al. 2015):
//
//   lego::round_stochastically_(Tensor(a!) self, Tensor value, Tensor rng, int tensor, int first, int stride) -> Tensor(a!)
//
// self bf16 and value fp32 of one shape, contiguous, [width] or [rows, width]; rng int64 [2], seed and step. Element (r, c) is
// number first + r stride + c of the whole tensor that `tensor` (a hash of its name) stands for, and takes word i mod 4 of Philox
// block i / 4, i being its number: its fate is a function of (seed, step, tensor, number) alone, equal in every layout. Limits:
// 2^34 elements of a tensor, 2^32 steps. CPU, Meta, and CUDA in its plugin (worker/comm/cuda). Errors: c10::Error on what does
// not fit.
//
// Here is the arithmetic, the same for the CPU's kernel and the GPU's. Torch-free; for nvcc as for the host's compiler.
// Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <cstring>

#include "worker/model/philox.h"

namespace legoai::model {

// Bits of the bf16 below or above: as far as `value` is on its way from the one to the other, so likely is the upper one.
// Infinities and NaNs stay what they are.
LEGOAI_HOST_DEVICE inline uint16_t RoundStochastically(float value, uint32_t draw) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7F800000) == 0x7F800000) return static_cast<uint16_t>(bits >> 16 | ((bits & 0x7FFFFF) != 0 ? 0x40 : 0));
  return static_cast<uint16_t>((bits + (draw & 0xFFFF)) >> 16);
}

// A call of the operator as a kernel sees it: raw memory.
struct RoundingCall {
  const float* value = nullptr;
  uint16_t* out = nullptr;
  const int64_t* seed_and_step = nullptr;  // [2]
  int64_t rows = 1, width = 0;
  uint64_t tensor = 0;
  int64_t first = 0, stride = 0;

  LEGOAI_HOST_DEVICE int64_t FirstOf(int64_t row) const { return first + row * stride; }
  // Blocks of four numbers that a row may touch.
  LEGOAI_HOST_DEVICE int64_t BlocksOfRow() const { return width == 0 ? 0 : (width + 6) / 4; }
  LEGOAI_HOST_DEVICE int64_t Blocks() const { return rows * BlocksOfRow(); }
};

// Word w of lane l becomes the draw of number 4 (first_block + l) + w.
template <int L>
LEGOAI_HOST_DEVICE inline void DrawRounding(const RoundingCall& call, int64_t first_block, PhiloxLanes<L>* words) {
  for (int lane = 0; lane < L; ++lane) {
    words->word[0][lane] = static_cast<uint32_t>(first_block + lane);
    words->word[1][lane] = static_cast<uint32_t>(call.seed_and_step[1]);
    words->word[2][lane] = static_cast<uint32_t>(call.tensor);
    words->word[3][lane] = static_cast<uint32_t>(call.tensor >> 32);
  }
  Philox(words, static_cast<uint64_t>(call.seed_and_step[0]));
}

// The elements of `L` blocks of four numbers from the block_of_row-th that row `row` touches.
template <int L>
LEGOAI_HOST_DEVICE inline void RoundBlocks(const RoundingCall& call, int64_t row, int64_t block_of_row) {
  const int64_t begin = call.FirstOf(row), block = begin / 4 + block_of_row;
  PhiloxLanes<L> words;
  DrawRounding(call, block, &words);
  for (int64_t i = 0; i < 4 * L; ++i) {
    const int64_t column = 4 * block + i - begin;
    if (column < 0 || column >= call.width) continue;
    const int64_t at = row * call.width + column;
    call.out[at] = RoundStochastically(call.value[at], words.word[i % 4][i / 4]);
  }
}

}  // namespace legoai::model
