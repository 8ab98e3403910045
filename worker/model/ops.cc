#include "worker/model/ops.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/add.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>
#include <type_traits>
#include <vector>

namespace legoai::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <class Signature>
c10::TypedOperatorHandle<Signature> FindOperator(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Signature>();
}

at::Tensor Sum(const at::Tensor& weight, double added) { return added == 0 ? weight : at::add(weight, added); }

struct RmsNormAutograd : torch::autograd::Function<RmsNormAutograd> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, double eps, double added) {
    static const auto op =
        FindOperator<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&, double)>("lego::rms_norm");
    at::AutoDispatchBelowADInplaceOrView below;
    auto [out, rstd] = op.call(x, Sum(weight, added), eps);
    context->save_for_backward({x, rstd});
    context->saved_data["weight"] = weight;  // no version check: FSDP refills its storage
    context->saved_data["added"] = added;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    static const auto op = FindOperator<std::tuple<at::Tensor, at::Tensor>(
        const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&)>("lego::rms_norm_backward");
    at::AutoDispatchBelowADInplaceOrView below;
    const variable_list saved = context->get_saved_variables();
    const at::Tensor factor = Sum(context->saved_data["weight"].toTensor(), context->saved_data["added"].toDouble());
    auto [x, weight] = op.call(grads[0].contiguous(), saved[0], factor, saved[1]);
    return {x, weight, at::Tensor(), at::Tensor()};
  }
};

// Mask: bool, whether causal, or int64_t, a window; they tell the operators' overloads apart.
template <class Mask>
struct AttentionAutograd : torch::autograd::Function<AttentionAutograd<Mask>> {
  static constexpr const char* kOverload = std::is_same_v<Mask, bool> ? "" : "window";

  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, Mask mask,
                            double scale) {
    static const auto op =
        FindOperator<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&, const at::Tensor&, Mask, double)>(
            "lego::attention", kOverload);
    at::AutoDispatchBelowADInplaceOrView below;
    auto [out, lse] = op.call(q, k, v, mask, scale);
    context->save_for_backward({q, k, v, out, lse});
    context->saved_data["mask"] = mask;
    context->saved_data["scale"] = scale;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
    static const auto op =
        FindOperator<Gradients(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                               const at::Tensor&, Mask, double)>("lego::attention_backward", kOverload);
    at::AutoDispatchBelowADInplaceOrView below;
    const variable_list saved = context->get_saved_variables();
    auto [q, k, v] = op.call(grads[0], saved[0], saved[1], saved[2], saved[3], saved[4],
                             context->saved_data["mask"].template to<Mask>(), context->saved_data["scale"].toDouble());
    return {q, k, v, at::Tensor(), at::Tensor()};
  }
};

at::Tensor CallDropout(const at::Tensor& x, const at::Tensor& rng, const at::Tensor& samples, int64_t site, double p,
                       int64_t first, at::IntArrayRef runs) {
  static const auto op =
      FindOperator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, double, int64_t,
                              at::IntArrayRef)>("lego::dropout");
  at::AutoDispatchBelowADInplaceOrView below;
  return op.call(x.contiguous(), rng, samples, site, p, first, runs);
}

// Nothing of x is saved: the mask is drawn again.
struct DropoutAutograd : torch::autograd::Function<DropoutAutograd> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& rng, const at::Tensor& samples,
                            int64_t site, double p, const DropoutRuns& runs) {
    const std::vector<int64_t> rest = runs.length == 0 ? std::vector<int64_t>{}
                                                       : std::vector{runs.length, runs.count, runs.stride, runs.outer_stride};
    context->saved_data["rng"] = rng;
    context->saved_data["samples"] = samples;
    context->saved_data["site"] = site;
    context->saved_data["p"] = p;
    context->saved_data["first"] = runs.first;
    context->saved_data["runs"] = rest;
    return CallDropout(x, rng, samples, site, p, runs.first, rest);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    auto& saved = context->saved_data;
    variable_list result(6);
    result[0] = CallDropout(grads[0], saved["rng"].toTensor(), saved["samples"].toTensor(), saved["site"].toInt(),
                            saved["p"].toDouble(), saved["first"].toInt(), saved["runs"].toIntVector());
    return result;
  }
};

}  // namespace

at::Tensor RmsNormFunction(const at::Tensor& x, const at::Tensor& weight, double eps, double added) {
  return RmsNormAutograd::apply(x, weight, eps, added);
}

at::Tensor AttentionFunction(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal, double scale) {
  return AttentionAutograd<bool>::apply(q, k, v, causal, scale);
}

at::Tensor WindowedAttentionFunction(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t window,
                                     double scale) {
  return AttentionAutograd<int64_t>::apply(q, k, v, window, scale);
}

at::Tensor DropoutFunction(const at::Tensor& x, const at::Tensor& rng, const at::Tensor& samples, int64_t site, double p,
                           const DropoutRuns& runs) {
  return DropoutAutograd::apply(x, rng, samples, site, p, runs);
}

}  // namespace legoai::model

TORCH_LIBRARY_FRAGMENT(lego, m) {
  m.def("rms_norm(Tensor x, Tensor weight, float eps) -> (Tensor out, Tensor rstd)");
  m.def("rms_norm_backward(Tensor grad, Tensor x, Tensor weight, Tensor rstd) -> (Tensor grad_x, Tensor grad_weight)");
  m.def("rms_norm_backward.weight(Tensor grad, Tensor x, Tensor rstd) -> Tensor grad_weight");
  m.def("attention(Tensor q, Tensor k, Tensor v, bool causal, float scale) -> (Tensor out, Tensor lse)");
  m.def(
      "attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, bool causal, float scale) -> "
      "(Tensor grad_q, Tensor grad_k, Tensor grad_v)");
  m.def("attention.window(Tensor q, Tensor k, Tensor v, int window, float scale) -> (Tensor out, Tensor lse)");
  m.def(
      "attention_backward.window(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, int window, float scale) -> "
      "(Tensor grad_q, Tensor grad_k, Tensor grad_v)");
  m.def("dropout(Tensor x, Tensor rng, Tensor samples, int site, float p, int first, int[] runs) -> Tensor");
}

TORCH_LIBRARY_IMPL(lego, Autograd, m) {
  for (const char* name : {"rms_norm", "rms_norm_backward", "rms_norm_backward.weight", "attention", "attention_backward",
                           "attention.window", "attention_backward.window", "dropout"}) {
    m.impl(name, torch::CppFunction::makeFallthrough());
  }
}
