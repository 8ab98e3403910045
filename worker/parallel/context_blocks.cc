#include "worker/parallel/context_blocks.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/sigmoid.h>

#include <cmath>
#include <tuple>

namespace legoai::parallel {

using at::Tensor;

double ScaleOf(const Tensor& q) { return 1.0 / std::sqrt(static_cast<double>(q.size(3))); }

Attended Attend(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("lego::attention", "")
          .typed<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, bool, double)>();
  auto [out, lse] = op.call(q, k, v, causal, ScaleOf(q));
  return {out, lse.narrow(2, 0, q.size(2))};
}

AttentionGradients AttendBackward(const Tensor& gradient, const Tensor& q, const Tensor& k, const Tensor& v,
                                  const Attended& attended, bool causal) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("lego::attention_backward", "")
          .typed<std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                                    const Tensor&, bool, double)>();
  auto [of_q, of_k, of_v] = op.call(gradient, q, k, v, attended.out, attended.lse, causal, ScaleOf(q));
  return {of_q, of_k, of_v};
}

Attended Merge(const Attended& a, const Attended& b) {
  const Tensor weight = at::sigmoid(b.lse - a.lse).unsqueeze(-1);
  return {at::lerp(a.out.to(at::kFloat), b.out.to(at::kFloat), weight), at::logaddexp(a.lse, b.lse)};
}

Tensor Join(const std::vector<Tensor>& parts) {
  if (parts.size() == 1) return parts[0];
  return at::cat({parts[0].transpose(1, 2), parts[1].transpose(1, 2)}, 1).transpose(1, 2);
}

Attended JoinAttended(const std::vector<Attended>& parts, at::ScalarType dtype) {
  std::vector<Tensor> outs, lses;
  for (const Attended& part : parts) outs.push_back(part.out.to(dtype)), lses.push_back(part.lse);
  return {Join(outs), Join(lses)};
}

}  // namespace legoai::parallel
