#include "worker/model/attention.h"

#include <cmath>

#include "worker/model/ops.h"

namespace legoai::model {

at::Tensor LocalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return AttentionFunction(q, k, v, /*causal=*/true, 1.0 / std::sqrt(static_cast<double>(q.size(3))));
}

}  // namespace legoai::model
