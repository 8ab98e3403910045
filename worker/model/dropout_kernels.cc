// Kernels of lego::dropout on CPU and Meta; the CUDA plugin has the GPU's (worker/comm/cuda).
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>

#include "worker/model/dropout_arguments.h"
#include "worker/model/philox.h"

namespace legoai::model {
namespace {

constexpr int kLanes = 16;
constexpr int64_t kChunk = 4 * kLanes;  // positions drawn at a time
constexpr int64_t kGrain = 32768;       // positions worth a thread

// A run whose first element has position `first`. Chunks begin where a block of four draws does, so the first one may lie before
// it.
template <class T>
void DropChunks(const T* x, T* out, int64_t size, int64_t first, const DropoutDraw& draw, const DropoutFactor& factor,
                int64_t begin, int64_t end) {
  PhiloxLanes<kLanes> words;
  uint32_t random[kChunk];
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    const int64_t start = chunk * kChunk - first % 4;  // of the run
    DrawBlocks(draw, first / 4 + chunk * kLanes, &words);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int word = 0; word < 4; ++word) random[4 * lane + word] = words.word[word][lane];
    }
    for (int64_t i = std::max<int64_t>(0, start); i < std::min(size, start + kChunk); ++i) {
      out[i] = static_cast<T>(static_cast<float>(x[i]) * factor.Of(random[i - start]));
    }
  }
}

template <class T>
void Run(const at::Tensor& x, const at::Tensor& rng, const at::Tensor& samples, int64_t site, double p, const DropoutRuns& runs,
         const at::Tensor& out) {
  const int64_t batch = x.size(0), size = batch == 0 ? 0 : x.numel() / batch, length = runs.length == 0 ? size : runs.length;
  const int64_t* seed_and_step = rng.const_data_ptr<int64_t>();
  const DropoutFactor factor = FactorOf(p);
  for (int64_t row = 0; row < batch; ++row) {
    const DropoutDraw draw = DrawOf(seed_and_step[0], seed_and_step[1], samples.const_data_ptr<int64_t>()[row], site);
    for (int64_t begin = 0, run = 0; begin < size; begin += length, ++run) {
      const T* const from = x.const_data_ptr<T>() + row * size + begin;
      T* const to = out.mutable_data_ptr<T>() + row * size + begin;
      const int64_t first = runs.FirstOf(run), chunks = (first % 4 + length + kChunk - 1) / kChunk;
      at::parallel_for(0, chunks, kGrain / kChunk, [&](int64_t chunk, int64_t end) {
        DropChunks(from, to, length, first, draw, factor, chunk, end);
      });
    }
  }
}

at::Tensor DropoutMeta(const at::Tensor& x, const at::Tensor& rng, const at::Tensor& samples, int64_t site, double p,
                       int64_t first, at::IntArrayRef runs) {
  (void)CheckDropoutArguments(x, rng, samples, site, p, first, runs);
  return at::empty_like(x);
}

at::Tensor DropoutCpu(const at::Tensor& x, const at::Tensor& rng, const at::Tensor& samples, int64_t site, double p,
                      int64_t first, at::IntArrayRef runs) {
  const DropoutRuns positions = CheckDropoutArguments(x, rng, samples, site, p, first, runs);
  at::Tensor out = at::empty_like(x);
  if (x.scalar_type() == at::kFloat) {
    Run<float>(x, rng, samples, site, p, positions, out);
  } else if (x.scalar_type() == at::kHalf) {
    Run<at::Half>(x, rng, samples, site, p, positions, out);
  } else {
    Run<at::BFloat16>(x, rng, samples, site, p, positions, out);
  }
  return out;
}

}  // namespace
}  // namespace legoai::model

TORCH_LIBRARY_IMPL(lego, CPU, m) { m.impl("dropout", legoai::model::DropoutCpu); }
TORCH_LIBRARY_IMPL(lego, Meta, m) { m.impl("dropout", legoai::model::DropoutMeta); }
