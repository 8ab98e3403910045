#include "worker/train/rounding.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "absl/strings/str_cat.h"
#include "worker/model/init.h"

namespace legoai::train {
namespace {

void RoundStochastically(const at::Tensor& to, const at::Tensor& value, const at::Tensor& rng, uint64_t tensor,
                         const parallel::ShardSpec& spec) {
  using Signature = at::Tensor&(at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, int64_t, int64_t);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("lego::round_stochastically_", "").typed<Signature>();
  const bool is_matrix = spec.global_shape.size() == 2;
  const int64_t stride = is_matrix ? spec.global_shape[1] : 0;
  const int64_t first = is_matrix ? spec.offsets[0] * stride + spec.offsets[1] : spec.offsets[0];
  at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor self = to;
  op.call(self, value, rng, static_cast<int64_t>(tensor), first, stride);
}

}  // namespace

at::Tensor Widened(const at::Tensor& tensor) { return tensor.to(at::kFloat); }

void Rounding::Store(const HeldTensor& held, const at::Tensor& wide) const {
  if (wide.is_same(held.tensor)) return;
  if (!stochastic_) {
    held.tensor.copy_(wide);
    return;
  }
  const parallel::ShardSpec& spec = held.parameter->spec;
  RoundStochastically(held.tensor, wide, rng_, model::HashName(absl::StrCat("rounded ", held.name, " ", spec.name)), spec);
}

}  // namespace legoai::train
