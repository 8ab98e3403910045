#include "worker/model/init.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <thread>
#include <vector>

#include "worker/model/philox.h"

namespace legoai::model {
namespace {

constexpr int64_t kGrain = 1 << 16;  // elements worth a thread: some milliseconds

struct Generator {
  uint64_t seed, name_hash;
  double std;

  // The four values of elements [4 block, 4 block + 4).
  void Draw(int64_t block, float out[4]) const {
    PhiloxLanes<1> counter;
    counter.word[0][0] = static_cast<uint32_t>(block);
    counter.word[1][0] = static_cast<uint32_t>(static_cast<uint64_t>(block) >> 32);
    counter.word[2][0] = static_cast<uint32_t>(name_hash);
    counter.word[3][0] = static_cast<uint32_t>(name_hash >> 32);
    Philox(&counter, seed);
    for (int pair = 0; pair < 2; ++pair) {
      const double u = (counter.word[2 * pair][0] + 0.5) / 4294967296.0, v = (counter.word[2 * pair + 1][0] + 0.5) / 4294967296.0;
      const double radius = std * std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
      out[2 * pair] = static_cast<float>(radius * std::cos(angle));
      out[2 * pair + 1] = static_cast<float>(radius * std::sin(angle));
    }
  }

  // Elements [first, first + n) of the global tensor, row-major.
  void Fill(int64_t first, int64_t n, float* out) const {
    float four[4];
    for (int64_t block = first / 4; block * 4 < first + n; ++block) {
      Draw(block, four);
      const int64_t begin = std::max(first, block * 4), end = std::min(first + n, block * 4 + 4);
      for (int64_t i = begin; i < end; ++i) out[i - first] = four[i - block * 4];
    }
  }
};

// Index in the global tensor of the first element of row `row` (of the rectangle's rows along its last dimension).
int64_t GlobalIndex(const parallel::ShardSpec& spec, int64_t row) {
  const int64_t dims = static_cast<int64_t>(spec.sizes.size());
  int64_t index = spec.offsets[dims - 1], stride = spec.global_shape[dims - 1];
  for (int64_t d = dims - 2; d >= 0; --d) {
    index += (spec.offsets[d] + row % spec.sizes[d]) * stride;
    row /= spec.sizes[d];
    stride *= spec.global_shape[d];
  }
  return index;
}

// Calls body(begin, end) on ranges of [0, n) of at least `grain`, on as many threads as operators use. at::parallel_for does so only
// in what is compiled with OpenMP, and LibTorch has a runtime of its own for that.
template <class Body>
void OnThreads(int64_t n, int64_t grain, const Body& body) {
  const int64_t parts = std::clamp<int64_t>(n / grain, 1, at::get_num_threads());
  std::vector<std::jthread> threads;  // they end with it
  for (int64_t part = 1; part < parts; ++part) threads.emplace_back([&, part] { body(n * part / parts, n * (part + 1) / parts); });
  body(0, n / parts);
}

}  // namespace

uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

void FillParameter(const parallel::ShardSpec& spec, const InitRule& rule, uint64_t seed, const at::Tensor& out) {
  TORCH_CHECK(out.sizes() == at::IntArrayRef(spec.sizes) && out.scalar_type() == at::kFloat && out.is_contiguous() &&
                  out.device().is_cpu(),
              "initialization of ", spec.name, ": wants a dense fp32 CPU tensor ", at::IntArrayRef(spec.sizes), ", got ",
              out.toString(), " ", out.sizes());
  if (out.numel() == 0) return;
  float* data = out.mutable_data_ptr<float>();
  if (rule.kind != InitRule::Kind::kNormal) {
    std::fill(data, data + out.numel(), rule.kind == InitRule::Kind::kOnes ? 1.0f : 0.0f);
    return;
  }
  TORCH_CHECK(!spec.sizes.empty(), "initialization of ", spec.name, ": a scalar has no row to fill");
  const Generator generator{seed, HashName(spec.name), rule.std};
  const int64_t width = spec.sizes.back();
  OnThreads(out.numel() / width, std::max<int64_t>(1, kGrain / width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) generator.Fill(GlobalIndex(spec, row), width, data + row * width);
  });
}

}  // namespace legoai::model
