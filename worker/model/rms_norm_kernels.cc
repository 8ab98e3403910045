// Kernels of lego::rms_norm and its gradient. CPU: plain loops over rows with a fixed number of partial sums, so that they
// vectorize and their results depend on neither compiler flags' reordering nor threads.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

namespace legoai::model {
namespace {

using TwoTensors = std::tuple<at::Tensor, at::Tensor>;

constexpr int kLanes = 16;
constexpr int64_t kColumnBlock = 512;
constexpr int64_t kGrain = 32768;  // elements worth a thread

// sum of term(i) for i in [0, n), in kLanes partial sums.
template <class Term>
inline float LaneSum(int64_t n, Term term) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (int lane = 0; i < n; ++i, ++lane) lanes[lane] += term(i);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

template <class T>
void ForwardRows(const T* x, const T* weight, T* out, float* rstd, int64_t begin, int64_t end, int64_t dim, float eps) {
  for (int64_t row = begin; row < end; ++row) {
    const T* xr = x + row * dim;
    T* outr = out + row * dim;
    const float squares = LaneSum(dim, [&](int64_t i) { return static_cast<float>(xr[i]) * static_cast<float>(xr[i]); });
    const float r = 1.0f / std::sqrt(squares / static_cast<float>(dim) + eps);
    rstd[row] = r;
    for (int64_t i = 0; i < dim; ++i) outr[i] = static_cast<T>(static_cast<float>(xr[i]) * r * static_cast<float>(weight[i]));
  }
}

// With n = x * rstd: grad_x = rstd * (grad * weight - n * mean(grad * weight * n)).
template <class T>
void InputGradientRows(const T* grad, const T* x, const T* weight, const float* rstd, T* out, int64_t begin, int64_t end,
                       int64_t dim) {
  for (int64_t row = begin; row < end; ++row) {
    const T *gr = grad + row * dim, *xr = x + row * dim;
    T* outr = out + row * dim;
    const float r = rstd[row];
    const float dot = LaneSum(
        dim, [&](int64_t i) { return static_cast<float>(gr[i]) * static_cast<float>(weight[i]) * static_cast<float>(xr[i]); });
    const float scale = dot * r * r / static_cast<float>(dim);
    for (int64_t i = 0; i < dim; ++i) {
      const float gw = static_cast<float>(gr[i]) * static_cast<float>(weight[i]);
      outr[i] = static_cast<T>(r * (gw - static_cast<float>(xr[i]) * scale));
    }
  }
}

// grad_weight[i] = sum over rows of grad * x * rstd, in the order of rows, for columns [begin, end).
template <class T>
void WeightGradientColumns(const T* grad, const T* x, const float* rstd, T* out, int64_t rows, int64_t dim, int64_t begin,
                           int64_t end) {
  float sum[kColumnBlock] = {};
  const int64_t n = end - begin;
  for (int64_t row = 0; row < rows; ++row) {
    const T *gr = grad + row * dim + begin, *xr = x + row * dim + begin;
    const float r = rstd[row];
    for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<float>(gr[i]) * static_cast<float>(xr[i]) * r;
  }
  for (int64_t i = 0; i < n; ++i) out[begin + i] = static_cast<T>(sum[i]);
}

void CheckArguments(const at::Tensor& x, const at::Tensor& weight) {
  TORCH_CHECK(x.dim() >= 1 && weight.dim() == 1 && x.size(-1) == weight.size(0), "rms_norm: weight ", weight.sizes(),
              " does not fit x ", x.sizes());
  TORCH_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf,
              "rms_norm: dtype ", x.scalar_type(), "; use float32, bfloat16 or float16");
  TORCH_CHECK(x.scalar_type() == weight.scalar_type(), "rms_norm: x is ", x.scalar_type(), ", weight ", weight.scalar_type());
  TORCH_CHECK(x.is_contiguous() && weight.is_contiguous(), "rms_norm: arguments must be contiguous");
}

at::Tensor EmptyRstd(const at::Tensor& x) { return at::empty(x.sizes().slice(0, x.dim() - 1), x.options().dtype(at::kFloat)); }

TwoTensors RmsNormMeta(const at::Tensor& x, const at::Tensor& weight, double eps) {
  CheckArguments(x, weight);
  return {at::empty_like(x), EmptyRstd(x)};
}

TwoTensors RmsNormBackwardMeta(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd) {
  CheckArguments(x, weight);
  TORCH_CHECK(grad.sizes() == x.sizes() && grad.scalar_type() == x.scalar_type() && grad.is_contiguous(),
              "rms_norm_backward: the gradient must be contiguous and like x ", x.sizes(), ", is ", grad.sizes());
  return {at::empty_like(x), at::empty_like(weight)};
}

template <class T>
void RunForward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& out, const at::Tensor& rstd, float eps) {
  const int64_t dim = x.size(-1);
  at::parallel_for(0, rstd.numel(), std::max<int64_t>(1, kGrain / dim), [&](int64_t begin, int64_t end) {
    ForwardRows(x.const_data_ptr<T>(), weight.const_data_ptr<T>(), out.mutable_data_ptr<T>(), rstd.mutable_data_ptr<float>(),
                begin, end, dim, eps);
  });
}

template <class T>
void RunInputGradient(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                      const at::Tensor& grad_x) {
  const int64_t dim = x.size(-1);
  at::parallel_for(0, rstd.numel(), std::max<int64_t>(1, kGrain / dim), [&](int64_t begin, int64_t end) {
    InputGradientRows(grad.const_data_ptr<T>(), x.const_data_ptr<T>(), weight.const_data_ptr<T>(), rstd.const_data_ptr<float>(),
                      grad_x.mutable_data_ptr<T>(), begin, end, dim);
  });
}

template <class T>
void RunWeightGradient(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& rstd, const at::Tensor& grad_weight) {
  const int64_t dim = x.size(-1), rows = rstd.numel(), blocks = (dim + kColumnBlock - 1) / kColumnBlock;
  const T *g = grad.const_data_ptr<T>(), *xs = x.const_data_ptr<T>();
  const float* r = rstd.const_data_ptr<float>();
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      WeightGradientColumns(g, xs, r, grad_weight.mutable_data_ptr<T>(), rows, dim, block * kColumnBlock,
                            std::min(dim, (block + 1) * kColumnBlock));
    }
  });
}

TwoTensors RmsNormCpu(const at::Tensor& x, const at::Tensor& weight, double eps) {
  auto [out, rstd] = RmsNormMeta(x, weight, eps);
  if (x.scalar_type() == at::kFloat) {
    RunForward<float>(x, weight, out, rstd, static_cast<float>(eps));
  } else if (x.scalar_type() == at::kHalf) {
    RunForward<at::Half>(x, weight, out, rstd, static_cast<float>(eps));
  } else {
    RunForward<at::BFloat16>(x, weight, out, rstd, static_cast<float>(eps));
  }
  return {out, rstd};
}

TwoTensors RmsNormBackwardCpu(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd) {
  auto [grad_x, grad_weight] = RmsNormBackwardMeta(grad, x, weight, rstd);
  if (x.scalar_type() == at::kFloat) {
    RunInputGradient<float>(grad, x, weight, rstd, grad_x);
    RunWeightGradient<float>(grad, x, rstd, grad_weight);
  } else if (x.scalar_type() == at::kHalf) {
    RunInputGradient<at::Half>(grad, x, weight, rstd, grad_x);
    RunWeightGradient<at::Half>(grad, x, rstd, grad_weight);
  } else {
    RunInputGradient<at::BFloat16>(grad, x, weight, rstd, grad_x);
    RunWeightGradient<at::BFloat16>(grad, x, rstd, grad_weight);
  }
  return {grad_x, grad_weight};
}

// What compile.fuse leaves of the gradient, of the types that it fuses.
at::Tensor RmsNormWeightGradientMeta(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& rstd) {
  TORCH_CHECK(x.dim() >= 1 && grad.sizes() == x.sizes() && grad.scalar_type() == x.scalar_type() && x.is_contiguous() &&
                  grad.is_contiguous() && rstd.is_contiguous() && rstd.scalar_type() == at::kFloat &&
                  rstd.numel() * x.size(-1) == x.numel(),
              "rms_norm_backward.weight: the gradient must be contiguous and like x ", x.sizes(), ", is ", grad.sizes(),
              "; rstd must have one float32 for each row, is ", rstd.sizes());
  TORCH_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16, "rms_norm_backward.weight: dtype ",
              x.scalar_type(), "; use float32 or bfloat16");
  return at::empty({x.size(-1)}, x.options());
}

at::Tensor RmsNormWeightGradientCpu(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& rstd) {
  const at::Tensor grad_weight = RmsNormWeightGradientMeta(grad, x, rstd);
  if (x.scalar_type() == at::kFloat) {
    RunWeightGradient<float>(grad, x, rstd, grad_weight);
  } else {
    RunWeightGradient<at::BFloat16>(grad, x, rstd, grad_weight);
  }
  return grad_weight;
}

// ATen's rstd keeps the reduced dimension; ours does not.
TwoTensors RmsNormCuda(const at::Tensor& x, const at::Tensor& weight, double eps) {
  CheckArguments(x, weight);
  auto [out, rstd] = at::_fused_rms_norm(x, {x.size(-1)}, weight, eps);
  return {out, rstd.squeeze(-1)};
}

TwoTensors RmsNormBackwardCuda(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd) {
  return at::_fused_rms_norm_backward(grad, x, {x.size(-1)}, rstd.unsqueeze(-1), weight, {true, true});
}

// ATen makes a gradient like the weight, of which it reads nothing else: a row of x stands for it.
at::Tensor RmsNormWeightGradientCuda(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& rstd) {
  const int64_t dim = x.size(-1);
  const at::Tensor like_weight = x.as_strided({dim}, {1});
  return std::get<1>(at::_fused_rms_norm_backward(grad, x, {dim}, rstd.unsqueeze(-1), like_weight, {false, true}));
}

}  // namespace
}  // namespace legoai::model

TORCH_LIBRARY_IMPL(lego, CPU, m) {
  m.impl("rms_norm", legoai::model::RmsNormCpu);
  m.impl("rms_norm_backward", legoai::model::RmsNormBackwardCpu);
  m.impl("rms_norm_backward.weight", legoai::model::RmsNormWeightGradientCpu);
}
TORCH_LIBRARY_IMPL(lego, CUDA, m) {
  m.impl("rms_norm", legoai::model::RmsNormCuda);
  m.impl("rms_norm_backward", legoai::model::RmsNormBackwardCuda);
  m.impl("rms_norm_backward.weight", legoai::model::RmsNormWeightGradientCuda);
}
TORCH_LIBRARY_IMPL(lego, Meta, m) {
  m.impl("rms_norm", legoai::model::RmsNormMeta);
  m.impl("rms_norm_backward", legoai::model::RmsNormBackwardMeta);
  m.impl("rms_norm_backward.weight", legoai::model::RmsNormWeightGradientMeta);
}
