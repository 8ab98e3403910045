#include "worker/parallel/materialize.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "worker/graph/annotation.h"
#include "worker/model/init.h"

namespace legoai::parallel {

void Materialize(model::LanguageModel& model, DataParallel& data_parallel, uint64_t seed, bool initialize, c10::Device device) {
  {
    at::NoGradGuard no_grad;
    graph::CategoryScope category(graph::Category::kShardedParameter);
    for (model::Parameter* p : model.Parameters()) {
      p->master = at::empty(p->spec.sizes, at::TensorOptions().device(device).dtype(c10::ScalarType::Float));
      if (initialize && p->spec.Elements() > 0) model::FillParameter(p->spec, p->init, seed, p->master);
    }
  }
  data_parallel.AllocateValues(device);
}

}  // namespace legoai::parallel
