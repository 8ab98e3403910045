// lego::round_stochastically_: right in the mean, exact where nothing is to be rounded, the same in every layout and on a GPU's
// threads.
#include "worker/model/stochastic_rounding.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace legoai::model {
namespace {

at::Tensor Rng(int64_t seed, int64_t step) {
  at::Tensor rng = at::empty({2}, at::kLong);
  rng.mutable_data_ptr<int64_t>()[0] = seed;
  rng.mutable_data_ptr<int64_t>()[1] = step;
  return rng;
}

at::Tensor Round(const at::Tensor& value, const at::Tensor& rng, int64_t tensor, int64_t first = 0, int64_t stride = 0) {
  using Signature = at::Tensor&(at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, int64_t, int64_t);
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("lego::round_stochastically_", "").typed<Signature>();
  at::Tensor out = at::zeros(value.sizes(), at::kBFloat16);
  op.call(out, value, rng, tensor, first, stride);
  return out;
}

// Between 1 and 1 + 1/128, which are neighbours in bf16. The mean of n draws is off by at most five deviations.
TEST(StochasticRounding, IsRightInTheMean) {
  constexpr int64_t kDraws = 1 << 20;
  for (const double share : {1.0 / 65536, 0.1, 0.375, 0.5, 0.99}) {
    for (const double sign : {1.0, -1.0}) {
      const float value = static_cast<float>(sign * (1 + std::round(share * 65536) / 65536 / 128));
      const at::Tensor out = Round(at::full({kDraws}, value), Rng(11, 3), 5).to(at::kDouble).abs();
      EXPECT_TRUE(at::logical_or(out == 1.0, out == 1.0078125).all().item<bool>()) << value;
      const double exact = std::round(share * 65536) / 65536, found = ((out - 1) * 128).mean().item<double>();
      EXPECT_NEAR(found, exact, 5 * std::sqrt(exact * (1 - exact) / kDraws)) << value;
    }
  }
}

TEST(StochasticRounding, LeavesWhatIsExact) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float exact : {0.0f, -0.0f, 1.0f, -3.5f, infinity, -infinity}) {
    const at::Tensor out = Round(at::full({1000}, exact), Rng(1, 1), 2);
    EXPECT_TRUE(at::equal(out, at::full({1000}, exact).to(at::kBFloat16))) << exact;
  }
  EXPECT_TRUE(Round(at::full({1000}, std::nanf("1")), Rng(1, 1), 2).isnan().all().item<bool>());
}

TEST(StochasticRounding, IsAFunctionOfSeedStepTensorAndNumber) {
  const at::Tensor whole = at::randn({37, 29}), rng = Rng(4, 9), out = Round(whole, rng, 77, 0, 29);
  for (const auto& [row, rows, column, columns] : {std::tuple<int, int, int, int>{0, 37, 0, 29}, {5, 9, 0, 29}, {0, 37, 3, 14},
                                                   {36, 1, 28, 1}, {11, 20, 13, 16}}) {
    const auto part = [&](const at::Tensor& of) { return of.narrow(0, row, rows).narrow(1, column, columns).contiguous(); };
    EXPECT_TRUE(at::equal(Round(part(whole), rng, 77, row * 29 + column, 29), part(out))) << row << " " << column;
  }
  const at::Tensor flat = whole.view({-1});
  EXPECT_TRUE(at::equal(Round(flat, rng, 77), out.view({-1})));
  EXPECT_FALSE(at::equal(Round(flat, Rng(5, 9), 77), out.view({-1})));
  EXPECT_FALSE(at::equal(Round(flat, Rng(4, 10), 77), out.view({-1})));
  EXPECT_FALSE(at::equal(Round(flat, rng, 78), out.view({-1})));
  EXPECT_FALSE(at::equal(Round(flat, rng, 77, 1), out.view({-1})));
}

TEST(StochasticRounding, DoesNotDependOnThreads) {
  const at::Tensor value = at::randn({3, 100003});
  at::set_num_threads(1);
  const at::Tensor one = Round(value, Rng(1, 2), 3, 6, 200000);
  at::set_num_threads(3);
  EXPECT_TRUE(at::equal(Round(value, Rng(1, 2), 3, 6, 200000), one));
}

TEST(StochasticRounding, OfAGpusThreadsEqualsTheCpus) {
  const at::Tensor value = at::randn({7, 101}), rng = Rng(8, 2);
  for (const int64_t first : {0, 1, 2, 3, 1000}) {
    at::Tensor out = at::zeros({7, 101}, at::kBFloat16);
    RoundingCall call;
    call.value = value.const_data_ptr<float>();
    call.out = reinterpret_cast<uint16_t*>(out.mutable_data_ptr());
    call.seed_and_step = rng.const_data_ptr<int64_t>();
    call.rows = 7, call.width = 101, call.tensor = 6, call.first = first, call.stride = 130;
    for (int64_t i = 0; i < call.Blocks(); ++i) RoundBlocks<1>(call, i / call.BlocksOfRow(), i % call.BlocksOfRow());
    EXPECT_TRUE(at::equal(out, Round(value, rng, 6, first, 130))) << first;
  }
}

TEST(StochasticRounding, RefusesWhatItCannotDo) {
  const at::Tensor value = at::randn({4});
  EXPECT_THROW(Round(value.to(at::kDouble), Rng(1, 1), 0), c10::Error);
  EXPECT_THROW(Round(value.view({2, 2, 1}), Rng(1, 1), 0), c10::Error);
  EXPECT_THROW(Round(value, at::zeros({2}), 0), c10::Error);
  EXPECT_THROW(Round(value, Rng(1, 1), 0, int64_t{1} << 34), c10::Error);
}

}  // namespace
}  // namespace legoai::model
