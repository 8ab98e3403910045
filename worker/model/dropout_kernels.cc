// Kernels of lego::dropout. Philox's key is the seed; its counter is (position / 4, sample low, step, site and sample high), and
// its four words are the draws of four neighbouring positions.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "worker/model/philox.h"

namespace legoai::model {
namespace {

constexpr int kLanes = 16;
constexpr int64_t kChunk = 4 * kLanes;  // positions drawn at a time
constexpr int64_t kGrain = 32768;       // positions worth a thread

struct Draw {
  uint64_t seed = 0;
  uint32_t sample_low = 0, step = 0, site_and_sample_high = 0;
};

// The draws of positions [first, first + kChunk); first is a multiple of kChunk.
void DrawChunk(const Draw& draw, int64_t first, uint32_t out[kChunk]) {
  PhiloxLanes<kLanes> counter;
  for (int lane = 0; lane < kLanes; ++lane) {
    counter.word[0][lane] = static_cast<uint32_t>(first / 4 + lane);
    counter.word[1][lane] = draw.sample_low;
    counter.word[2][lane] = draw.step;
    counter.word[3][lane] = draw.site_and_sample_high;
  }
  Philox(&counter, draw.seed);
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int word = 0; word < 4; ++word) out[4 * lane + word] = counter.word[word][lane];
  }
}

// An element is dropped if its draw / 2^32 < p.
template <class T>
void DropChunks(const T* x, T* out, int64_t size, const Draw& draw, uint32_t threshold, float scale, int64_t begin, int64_t end) {
  uint32_t random[kChunk];
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    const int64_t first = chunk * kChunk, n = std::min(kChunk, size - first);
    DrawChunk(draw, first, random);
    for (int64_t i = 0; i < n; ++i) {
      const float factor = random[i] < threshold ? 0.0f : scale;
      out[first + i] = static_cast<T>(static_cast<float>(x[first + i]) * factor);
    }
  }
}

template <class T>
void Run(const at::Tensor& x, const at::Tensor& rng, const at::Tensor& samples, int64_t site, double p, const at::Tensor& out) {
  const int64_t batch = x.size(0), size = batch == 0 ? 0 : x.numel() / batch, chunks = (size + kChunk - 1) / kChunk;
  const int64_t* seed_and_step = rng.const_data_ptr<int64_t>();
  const auto threshold = static_cast<uint32_t>(std::min<int64_t>(std::llround(p * 4294967296.0), 4294967295));
  const auto scale = static_cast<float>(1.0 / (1.0 - p));
  for (int64_t row = 0; row < batch; ++row) {
    const auto sample = static_cast<uint64_t>(samples.const_data_ptr<int64_t>()[row]);
    const Draw draw{static_cast<uint64_t>(seed_and_step[0]), static_cast<uint32_t>(sample),
                    static_cast<uint32_t>(seed_and_step[1]),
                    static_cast<uint32_t>(site) << 16 | static_cast<uint32_t>(sample >> 32 & 0xFFFF)};
    at::parallel_for(0, chunks, kGrain / kChunk, [&](int64_t begin, int64_t end) {
      DropChunks(x.const_data_ptr<T>() + row * size, out.mutable_data_ptr<T>() + row * size, size, draw, threshold, scale, begin,
                 end);
    });
  }
}

at::Tensor DropoutMeta(const at::Tensor& x, const at::Tensor& rng, const at::Tensor& samples, int64_t site, double p) {
  TORCH_CHECK(x.dim() >= 1 && samples.dim() == 1 && samples.size(0) == x.size(0), "dropout: ", samples.sizes(), " samples for x ",
              x.sizes());
  TORCH_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16, "dropout: dtype ", x.scalar_type(),
              "; use float32 or bfloat16");
  TORCH_CHECK(rng.scalar_type() == at::kLong && rng.numel() == 2 && samples.scalar_type() == at::kLong,
              "dropout: rng must be int64 [2] and samples int64");
  TORCH_CHECK(x.is_contiguous() && rng.is_contiguous() && samples.is_contiguous(), "dropout: arguments must be contiguous");
  TORCH_CHECK(p >= 0 && p < 1, "dropout: probability ", p, " is not in [0, 1)");
  TORCH_CHECK(site >= 0 && site < 65536, "dropout: site ", site, " is not in [0, 65536)");
  return at::empty_like(x);
}

at::Tensor DropoutCpu(const at::Tensor& x, const at::Tensor& rng, const at::Tensor& samples, int64_t site, double p) {
  at::Tensor out = DropoutMeta(x, rng, samples, site, p);
  if (x.scalar_type() == at::kFloat) {
    Run<float>(x, rng, samples, site, p, out);
  } else {
    Run<at::BFloat16>(x, rng, samples, site, p, out);
  }
  return out;
}

at::Tensor DropoutCuda(const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, double p) {
  TORCH_CHECK(false, "dropout with probability ", p, " has no CUDA kernel; set embd_pdrop, attn_pdrop and resid_pdrop of the ",
              "model to 0 or train on CPU");
}

}  // namespace
}  // namespace legoai::model

TORCH_LIBRARY_IMPL(lego, CPU, m) { m.impl("dropout", legoai::model::DropoutCpu); }
TORCH_LIBRARY_IMPL(lego, CUDA, m) { m.impl("dropout", legoai::model::DropoutCuda); }
TORCH_LIBRARY_IMPL(lego, Meta, m) { m.impl("dropout", legoai::model::DropoutMeta); }
