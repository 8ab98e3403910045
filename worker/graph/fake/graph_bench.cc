// Microseconds per operator of a small Llama-like model of many layers: eager, eager while recorded, captured on the fake device,
// executed from the Trace. Tensors are tiny, so that what is measured is the machinery around kernels.
//
// One thread, measured in its processor time: what else runs on the machine counts little.
//
// Usage: graph_bench [--json] [layers]. Asserts nothing about time.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "worker/graph/executor.h"
#include "worker/graph/fake/fake_device.h"
#include "worker/graph/recorder.h"

namespace legoai::sim {
namespace {

using at::Tensor;

double ProcessorSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

struct Sizes {
  int64_t layers = 80, batch = 1, seq = 8, dim = 32, heads = 4, vocab = 64;
};

struct Layer {
  Tensor norm1, q, k, v, out, norm2, gate, up, down;
};

class Model {
 public:
  explicit Model(const Sizes& sizes)
      : sizes_(sizes), embedding_(Make({sizes.vocab, sizes.dim})), head_(Make({sizes.vocab, sizes.dim})) {
    const int64_t d = sizes.dim;
    for (int64_t i = 0; i < sizes.layers; ++i) {
      layers_.push_back({Make({d}), Make({d, d}), Make({d, d}), Make({d, d}), Make({d, d}), Make({d}), Make({4 * d, d}),
                         Make({4 * d, d}), Make({d, 4 * d})});
    }
    tokens_ = at::zeros({sizes.batch, sizes.seq}, at::kLong);
  }

  void Register(graph::Recorder& recorder) const {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      recorder.Input(std::to_string(i), parameters_[i], graph::Category::kShardedParameter);
    }
    recorder.Input("tokens", tokens_, graph::Category::kInput);
  }
  void Bind(graph::Executor& executor) const {
    for (size_t i = 0; i < parameters_.size(); ++i) executor.Bind(std::to_string(i), parameters_[i]).IgnoreError();
    executor.Bind("tokens", tokens_).IgnoreError();
  }

  Tensor Step() {
    for (Tensor& parameter : parameters_) parameter.mutable_grad() = Tensor();
    Tensor x = at::embedding(embedding_, tokens_);
    for (const Layer& layer : layers_) x = Block(layer, x);
    const Tensor logits = at::linear(x, head_).view({-1, sizes_.vocab});
    Tensor loss = at::cross_entropy_loss(logits, tokens_.view(-1));
    loss.backward();
    return loss.detach();
  }
  void DropGradients() {
    for (Tensor& parameter : parameters_) parameter.mutable_grad() = Tensor();
  }

 private:
  Tensor Make(std::vector<int64_t> shape) {
    parameters_.push_back(at::ones(shape).mul_(0.02).set_requires_grad(true));
    return parameters_.back();
  }
  Tensor Block(const Layer& layer, const Tensor& x) const {
    const int64_t b = sizes_.batch, s = sizes_.seq, d = sizes_.dim, h = sizes_.heads;
    const Tensor normed = at::rms_norm(x, {d}, layer.norm1, 1e-5);
    auto heads = [&](const Tensor& weight) { return at::linear(normed, weight).view({b, s, h, d / h}).transpose(1, 2); };
    const Tensor mixed = at::scaled_dot_product_attention(heads(layer.q), heads(layer.k), heads(layer.v), {}, 0.0, true);
    const Tensor attended = x + at::linear(mixed.transpose(1, 2).reshape({b, s, d}), layer.out);
    const Tensor z = at::rms_norm(attended, {d}, layer.norm2, 1e-5);
    return attended + at::linear(at::silu(at::linear(z, layer.gate)) * at::linear(z, layer.up), layer.down);
  }

  Sizes sizes_;
  std::vector<Tensor> parameters_;
  Tensor embedding_, head_, tokens_;
  std::vector<Layer> layers_;
};

graph::Trace Capture(const Sizes& sizes) {
  FakeDevice device;
  graph::Recorder recorder(&device);
  recorder.SetRecording(false);
  Model model(sizes);
  model.Register(recorder);
  recorder.SetRecording(true);
  const Tensor loss = model.Step();
  model.DropGradients();
  recorder.SetRecording(false);
  recorder.Output("loss", loss);
  return recorder.Finish();
}

// Median of several runs, in seconds.
double Median(const std::function<void()>& f) {
  std::vector<double> seconds;
  for (int i = 0; i < 11; ++i) {
    const double start = ProcessorSeconds();
    f();
    seconds.push_back(ProcessorSeconds() - start);
  }
  std::nth_element(seconds.begin(), seconds.begin() + 5, seconds.end());
  return seconds[5];
}

int Main(const Sizes& sizes, bool json) {
  at::set_num_threads(1);
  const graph::Trace trace = Capture(sizes);
  Model model(sizes);
  auto executor = graph::Executor::Create(trace, c10::kCPU);
  if (!executor.ok()) {
    std::fprintf(stderr, "%s\n", executor.status().ToString().c_str());
    return 1;
  }
  model.Bind(**executor);
  const auto eager = [&] {
    model.Step();
    model.DropGradients();
  };
  const auto recorded = [&] {
    graph::Recorder recorder;
    model.Register(recorder);
    eager();
    recorder.Finish();
  };
  const std::pair<const char*, double> rows[] = {{"eager", Median(eager)},
                                                 {"eager, recorded", Median(recorded)},
                                                 {"captured without data", Median([&] { Capture(sizes); })},
                                                 {"executed", Median([&] { (*executor)->Run().IgnoreError(); })}};
  const double count = trace.OperatorCount();
  if (json) std::printf("{\"rows\": [");
  for (const auto& [name, seconds] : rows) {
    const bool first = &name == &rows[0].first;
    std::printf(json ? "%s{\"way\": \"%s\", \"seconds\": %.6f, \"microseconds_per_operator\": %.3f}"
                     : "%s%-24s %10.6f s %8.3f us/operator\n",
                json && !first ? ", " : "", name, seconds, seconds / count * 1e6);
  }
  if (json) {
    std::printf("]}\n");
  } else {
    std::printf("%lld operators, of which %lld are executed; the Trace takes %.0f bytes per instruction\n", (long long)count,
                (long long)(*executor)->OperatorsPerRun(), double(trace.ResidentBytes()) / trace.instructions.size());
  }
  return 0;
}

}  // namespace
}  // namespace legoai::sim

int main(int argc, char** argv) {
  legoai::sim::Sizes sizes;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else {
      sizes.layers = std::max(1L, std::atol(argv[i]));
    }
  }
  return legoai::sim::Main(sizes, json);
}
