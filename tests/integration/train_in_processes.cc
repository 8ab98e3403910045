#include "tests/integration/train_in_processes.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "core/recipe/recipe.h"
#include "worker/comm/testing/process_group_test_util.h"
#include "worker/data/text_dataset.h"
#include "worker/parallel/context_parallel.h"

namespace legoai::integration {
namespace {

// A rectangle of a named tensor, as a rank sends it back.
class Writer {
 public:
  void Number(int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void Numbers(const std::vector<int64_t>& values) {
    Number(values.size());
    for (int64_t value : values) Number(value);
  }
  void Floats(const float* values, int64_t count) {
    Number(count);
    bytes_.append(reinterpret_cast<const char*>(values), count * sizeof(float));
  }
  void Text(const std::string& text) {
    Number(text.size());
    bytes_.append(text);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  int64_t Number() {
    int64_t value = 0;
    std::memcpy(&value, Take(sizeof value), sizeof value);
    return value;
  }
  std::vector<int64_t> Numbers() {
    std::vector<int64_t> values(Number());
    for (int64_t& value : values) value = Number();
    return values;
  }
  std::vector<float> Floats() {
    std::vector<float> values(Number());
    std::memcpy(values.data(), Take(values.size() * sizeof(float)), values.size() * sizeof(float));
    return values;
  }
  std::string Text() {
    const int64_t size = Number();
    return std::string(Take(size), size);
  }

 private:
  const char* Take(size_t count) {
    if (at_ + count > bytes_.size()) throw std::runtime_error("a rank sent back too little");
    at_ += count;
    return bytes_.data() + at_ - count;
  }
  const std::string& bytes_;
  size_t at_ = 0;
};

int64_t Product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<int64_t>());
}

void WriteTensors(Writer& out, model::LanguageModel& model, at::Tensor model::Parameter::*member) {
  const auto parameters = model.Parameters();
  out.Number(parameters.size());
  for (const model::Parameter* parameter : parameters) {
    const at::Tensor values = (parameter->*member).detach().to(at::kFloat).contiguous();
    if (values.sizes() != at::IntArrayRef(parameter->spec.sizes))
      throw std::runtime_error(parameter->name() + " has another shape than its spec");
    out.Text(parameter->name());
    out.Numbers(parameter->spec.global_shape);
    out.Numbers(parameter->spec.offsets);
    out.Numbers(parameter->spec.sizes);
    out.Floats(values.const_data_ptr<float>(), values.numel());
  }
}

// Copies a rectangle into the whole, whose values are NaN until a rank has told them. Gives how many another rank has told
// otherwise: what several ranks hold must be equal bit by bit.
int64_t Place(const std::vector<float>& part, const std::vector<int64_t>& shape, const std::vector<int64_t>& offsets,
              const std::vector<int64_t>& sizes, std::vector<float>* whole) {
  const int64_t count = Product(sizes);
  int64_t different = 0;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, index = 0, stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      index += (offsets[d] + rest % sizes[d]) * stride;
      rest /= sizes[d];
      stride *= shape[d];
    }
    float& value = (*whole)[index];
    different += !std::isnan(value) && std::memcmp(&value, &part[i], sizeof value) != 0;
    value = part[i];
  }
  return different;
}

void ReadTensors(Reader& in, Tensors* tensors) {
  for (int64_t count = in.Number(); count > 0; --count) {
    const std::string name = in.Text();
    const auto shape = in.Numbers(), offsets = in.Numbers(), sizes = in.Numbers();
    const auto part = in.Floats();
    auto& whole = (*tensors)[name];
    whole.resize(Product(shape), std::numeric_limits<float>::quiet_NaN());
    EXPECT_EQ(Place(part, shape, offsets, sizes, &whole), 0) << "values of " << name << " differ on the ranks that hold them";
  }
}

uint64_t Mix(uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

int64_t Token(int64_t sample, int64_t position, int64_t vocab) { return Mix(sample * 1000003 + position) % vocab; }

std::string TrainOneRank(const Case& test_case, int64_t steps, int64_t rank, const parallel::ResolvedRecipe& resolved) {
  auto step = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
  Writer out;
  FillInputs(step->inputs(), test_case, resolved, rank, 0);
  Must(step->ForwardBackward());
  WriteTensors(out, step->model(), &model::Parameter::grad);
  step->ReleaseGradients();
  std::vector<float> losses, norms;
  for (int64_t i = 0; i < steps; ++i) {
    FillInputs(step->inputs(), test_case, resolved, rank, i);
    const auto result = Must(step->Run());
    losses.push_back(*result.loss.const_data_ptr<float>());
    norms.push_back(*result.grad_norm.const_data_ptr<float>());
  }
  const float held_out = *Must(step->Evaluate()).const_data_ptr<float>();
  WriteTensors(out, step->model(), &model::Parameter::master);
  out.Floats(&held_out, 1);
  out.Floats(losses.data(), losses.size());
  out.Floats(norms.data(), norms.size());
  return out.Take();
}

}  // namespace

void FillInputs(train::StepInputs& inputs, const Case& test_case, const parallel::ResolvedRecipe& resolved, int64_t rank,
                int64_t step) {
  const data::Layout layout{resolved.mesh().IndexOf(mesh::Dim::kDp, rank), resolved.mesh().dp(), resolved.local_batch(),
                            resolved.accumulation()};
  const auto samples = data::SamplesOfStep(layout, step * resolved.global_batch());
  auto* tokens = inputs.tokens.mutable_data_ptr<int64_t>();
  auto* targets = inputs.targets.mutable_data_ptr<int64_t>();
  auto* rows = inputs.samples.mutable_data_ptr<int64_t>();
  const int64_t vocab = test_case.model.vocab_size();
  for (size_t row = 0; row < samples.size(); ++row) {
    rows[row] = samples[row];
    for (const model::TokenRun& run : parallel::TokensOfRank(resolved, rank)) {
      for (int64_t t = run.first; t < run.first + run.length; ++t) {
        *tokens++ = Token(samples[row], t, vocab);
        *targets++ = Token(samples[row], t + 1, vocab);
      }
    }
  }
  auto* rng = inputs.rng.mutable_data_ptr<int64_t>();
  rng[0] = test_case.dropout_seed.value_or(test_case.recipe.training().seed());
  rng[1] = step;
  const float peak = 1e-3f * static_cast<float>(test_case.recipe.optimizer().lr() / parallel::DefaultRecipe().optimizer().lr());
  *inputs.learning_rate.mutable_data_ptr<float>() = peak / (1 + 0.1f * step);
}

std::vector<std::string> RunCase(const Case& test_case, const RankBody& body) {
  const auto resolved = Must(parallel::ResolvedRecipe::Create(test_case.recipe, test_case.model, test_case.world_size));
  return comm::testing::RunRanks(resolved.mesh(),
                                 [&](int64_t rank, comm::Runtime& runtime) { return body(rank, runtime, resolved); });
}

Training Train(const Case& test_case, int64_t steps) {
  const auto results = RunCase(test_case, [&](int64_t rank, comm::Runtime&, const parallel::ResolvedRecipe& resolved) {
    return TrainOneRank(test_case, steps, rank, resolved);
  });
  Training training;
  for (const std::string& bytes : results) {
    if (bytes.empty()) continue;  // its failure is reported already
    Reader in(bytes);
    ReadTensors(in, &training.first_gradients);
    ReadTensors(in, &training.parameters);
    const float held_out = in.Floats().at(0);
    const auto losses = in.Floats(), norms = in.Floats();
    if (training.losses.empty()) {
      training.held_out_loss = held_out;
      training.losses = losses;
      training.grad_norms = norms;
    }
    EXPECT_EQ(held_out, training.held_out_loss) << "ranks of " << test_case.name << " tell different losses of an evaluation";
    EXPECT_EQ(losses, training.losses) << "ranks of " << test_case.name << " tell different losses";
    EXPECT_EQ(norms, training.grad_norms) << "ranks of " << test_case.name << " tell different gradient norms";
  }
  return training;
}

void ExpectLossesOfOneProcess(const Case& drawn) {
  constexpr int64_t kSteps = 2;
  const Training expected = Train(Reference(drawn), kSteps), actual = Train(drawn, kSteps);
  ASSERT_EQ(actual.losses.size(), size_t(kSteps));
  const bool rounded = IsRounded(drawn);
  const bool muon = drawn.recipe.optimizer().name() == "Muon";  // orthogonalizes in bf16
  const double of_loss = rounded ? 2e-2 : muon ? 2e-3 : 1e-5, of_norm = rounded ? 5e-2 : muon ? 2e-2 : 1e-4;
  for (int64_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], of_loss * expected.losses[step]) << "step " << step;
    EXPECT_NEAR(actual.grad_norms[step], expected.grad_norms[step], of_norm * expected.grad_norms[step])
        << "step " << step;
  }
}

}  // namespace legoai::integration
