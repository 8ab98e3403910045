#include "worker/model/ops.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

namespace legoai::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <class Signature>
c10::TypedOperatorHandle<Signature> FindOperator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

struct RmsNormAutograd : torch::autograd::Function<RmsNormAutograd> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, double eps) {
    static const auto op =
        FindOperator<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&, double)>("lego::rms_norm");
    at::AutoDispatchBelowADInplaceOrView below;
    auto [out, rstd] = op.call(x, weight, eps);
    context->save_for_backward({x, rstd});
    context->saved_data["weight"] = weight;  // no version check: FSDP refills its storage
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    static const auto op = FindOperator<std::tuple<at::Tensor, at::Tensor>(
        const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&)>("lego::rms_norm_backward");
    at::AutoDispatchBelowADInplaceOrView below;
    const variable_list saved = context->get_saved_variables();
    auto [x, weight] = op.call(grads[0].contiguous(), saved[0], context->saved_data["weight"].toTensor(), saved[1]);
    return {x, weight, at::Tensor()};
  }
};

struct AttentionAutograd : torch::autograd::Function<AttentionAutograd> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                            double scale) {
    static const auto op =
        FindOperator<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool, double)>(
            "lego::attention");
    at::AutoDispatchBelowADInplaceOrView below;
    auto [out, lse] = op.call(q, k, v, causal, scale);
    context->save_for_backward({q, k, v, out, lse});
    context->saved_data["causal"] = causal;
    context->saved_data["scale"] = scale;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
    static const auto op =
        FindOperator<Gradients(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                               const at::Tensor&, bool, double)>("lego::attention_backward");
    at::AutoDispatchBelowADInplaceOrView below;
    const variable_list saved = context->get_saved_variables();
    auto [q, k, v] = op.call(grads[0], saved[0], saved[1], saved[2], saved[3], saved[4], context->saved_data["causal"].toBool(),
                             context->saved_data["scale"].toDouble());
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

at::Tensor RmsNormFunction(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return RmsNormAutograd::apply(x, weight, eps);
}

at::Tensor AttentionFunction(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal, double scale) {
  return AttentionAutograd::apply(q, k, v, causal, scale);
}

at::Tensor DropoutFunction(const at::Tensor& x, const at::Tensor& rng, const at::Tensor& samples, int64_t site, double p,
                           const DropoutRuns& runs) {
  return DropoutAutograd::apply(x, rng, samples, site, p, runs);
}

}  // namespace legoai::model

TORCH_LIBRARY_FRAGMENT(lego, m) {
  m.def("rms_norm(Tensor x, Tensor weight, float eps) -> (Tensor out, Tensor rstd)");
  m.def("rms_norm_backward(Tensor grad, Tensor x, Tensor weight, Tensor rstd) -> (Tensor grad_x, Tensor grad_weight)");
  m.def("attention(Tensor q, Tensor k, Tensor v, bool causal, float scale) -> (Tensor out, Tensor lse)");
  m.def(
      "attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, bool causal, float scale) -> "
      "(Tensor grad_q, Tensor grad_k, Tensor grad_v)");
  m.def("dropout(Tensor x, Tensor rng, Tensor samples, int site, float p, int first, int[] runs) -> Tensor");
}

TORCH_LIBRARY_IMPL(lego, Autograd, m) {
  for (const char* name : {"rms_norm", "rms_norm_backward", "attention", "attention_backward", "dropout"}) {
    m.impl(name, torch::CppFunction::makeFallthrough());
  }
}
