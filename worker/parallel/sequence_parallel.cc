#include "worker/parallel/sequence_parallel.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "worker/comm/ops.h"

namespace legoai::parallel {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [batch, n, dim] -> [batch, tp * n, dim]. The collective orders its output by rank first.
Tensor AllGatherDim1(const Tensor& local, int64_t group) {
  const int64_t tp = comm::CurrentRuntime().GroupSize(group);
  const int64_t batch = local.size(0), n = local.size(1), dim = local.size(2);
  const Tensor in = local.contiguous();
  if (batch == 1) {
    Tensor out = at::empty({1, tp * n, dim}, local.options());
    comm::AllGatherInto(out, in, group);
    return out;
  }
  Tensor by_rank = at::empty({tp, batch, n, dim}, local.options());
  comm::AllGatherInto(by_rank, in, group);
  return by_rank.transpose(0, 1).reshape({batch, tp * n, dim});
}

// [batch, tp * n, dim] -> [batch, n, dim], the sum of the ranks' parts.
Tensor ReduceScatterDim1(const Tensor& partial, int64_t group) {
  const int64_t tp = comm::CurrentRuntime().GroupSize(group);
  const int64_t batch = partial.size(0), seq = partial.size(1), dim = partial.size(2);
  TORCH_CHECK(seq % tp == 0, "sequence parallelism: ", tp, " ranks do not divide ", seq, " tokens");
  const int64_t n = seq / tp;
  Tensor out = at::empty({batch, n, dim}, partial.options());
  if (batch == 1) {
    comm::ReduceScatterInto(out, partial.contiguous(), group);
  } else {
    comm::ReduceScatterInto(out, partial.reshape({batch, tp, n, dim}).transpose(0, 1).contiguous(), group);
  }
  return out;
}

// [batch, seq, columns] -> [batch, seq, tp * columns].
Tensor AllGatherColumns(const Tensor& local, int64_t group) {
  const int64_t tp = comm::CurrentRuntime().GroupSize(group);
  const int64_t batch = local.size(0), seq = local.size(1), columns = local.size(2);
  Tensor by_rank = at::empty({tp, batch, seq, columns}, local.options());
  comm::AllGatherInto(by_rank, local.contiguous(), group);
  return by_rank.permute({1, 2, 0, 3}).reshape({batch, seq, tp * columns});
}

// [batch, seq, tp * columns] -> [batch, seq, columns].
Tensor OwnColumns(const Tensor& whole, int64_t group) {
  const comm::Runtime& runtime = comm::CurrentRuntime();
  const int64_t columns = whole.size(2) / runtime.GroupSize(group);
  return whole.narrow(2, runtime.GroupRank(group) * columns, columns);
}

using Edge = Tensor (*)(const Tensor& tensor, int64_t group);

template <Edge kForward, Edge kBackward>
class Differentiable : public torch::autograd::Function<Differentiable<kForward, kBackward>> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& tensor, int64_t group) {
    context->saved_data["group"] = group;
    return kForward(tensor, group);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {kBackward(gradients[0], context->saved_data["group"].toInt()), Tensor()};
  }
};

}  // namespace

Tensor GatherSequence(const Tensor& local, int64_t group) {
  return Differentiable<AllGatherDim1, ReduceScatterDim1>::apply(local, group);
}
Tensor ReduceScatterSequence(const Tensor& partial, int64_t group) {
  return Differentiable<ReduceScatterDim1, AllGatherDim1>::apply(partial, group);
}
Tensor GatherColumns(const Tensor& local, int64_t group) {
  return Differentiable<AllGatherColumns, OwnColumns>::apply(local, group);
}

}  // namespace legoai::parallel
