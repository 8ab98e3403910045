#include "worker/parallel/parallelize.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <utility>
#include <vector>

#include "core/recipe/fsdp_buckets.h"
#include "core/trace/annotation.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "worker/comm/runtime.h"
#include "worker/model/init.h"
#include "worker/parallel/activation_checkpoint.h"
#include "worker/parallel/context_parallel.h"
#include "worker/parallel/tensor_parallel.h"

namespace legoai::parallel {
namespace {

absl::StatusOr<c10::ScalarType> TypeOf(const char* field, v1::DType dtype, bool or_half = false) {
  switch (dtype) {
    case v1::FLOAT32: return c10::ScalarType::Float;
    case v1::BFLOAT16: return c10::ScalarType::BFloat16;
    case v1::FLOAT16:
      if (or_half) return c10::ScalarType::Half;
      [[fallthrough]];
    default:
      return FieldError(field, v1::DType_Name(dtype),
                        or_half ? "choose float32, bfloat16 or float16" : "choose float32 or bfloat16");
  }
}

void KeepChunks(model::LanguageModel& model, const ResolvedRecipe& resolved, int64_t rank) {
  if (resolved.mesh().pp == 1) return;
  std::vector<model::ChunkLayers> chunks;
  const Placement& placement = resolved.placement();
  for (int64_t local = 0; local < placement.locals(); ++local) {
    const int64_t chunk = placement.ChunkOf(resolved.mesh().IndexOf(mesh::Dim::kPp, rank), local);
    const auto [first, last] = resolved.LayersOf(chunk);
    chunks.push_back({chunk == 0, first, last, chunk + 1 == placement.chunks});
  }
  model.KeepLayers(chunks);
}

}  // namespace

// Initialization writes host memory, in fp32.
void Initialize(const model::Parameter& p, uint64_t seed, const at::Tensor& out) {
  if (p.spec.Elements() == 0) return;
  const bool in_place = out.is_cpu() && out.scalar_type() == at::kFloat;
  const at::Tensor host = in_place ? out : at::empty(p.spec.sizes, at::TensorOptions().dtype(at::kFloat));
  model::FillParameter(p.spec, p.init, seed, host);
  if (!in_place) out.copy_(host);
}

absl::StatusOr<Precision> PrecisionOf(const v1::Training& training) {
  ASSIGN_OR_RETURN(auto param, TypeOf("training.mixed_precision_param",
                                      training.has_mixed_precision_param() ? training.mixed_precision_param() : v1::BFLOAT16,
                                      /*or_half=*/true));
  ASSIGN_OR_RETURN(auto reduce, TypeOf("training.mixed_precision_reduce",
                                       training.has_mixed_precision_reduce() ? training.mixed_precision_reduce() : v1::FLOAT32));
  ASSIGN_OR_RETURN(auto master,
                   TypeOf("training.dtype", training.has_dtype() ? training.dtype() : v1::FLOAT32, /*or_half=*/true));
  return Precision{param, reduce, master};
}

absl::StatusOr<ParallelizedModel> Parallelize(std::unique_ptr<model::LanguageModel> model, const ResolvedRecipe& resolved) {
  const v1::Recipe& recipe = resolved.recipe();
  ParallelizedModel result;
  ASSIGN_OR_RETURN(result.precision, PrecisionOf(recipe.training()));
  result.model = std::move(model);
  result.seq_len = resolved.seq_len();

  // 1. Pipeline: only this rank's chunks of layers remain.
  KeepChunks(*result.model, resolved, comm::CurrentRuntime().rank());
  // 2. Tensor parallelism cuts weights in any dimension and changes layouts inside the blocks.
  RETURN_IF_ERROR(ApplyTensorParallel(result.model.get(), recipe));
  // 3. Context parallelism: this rank has some tokens of every sequence, and attention gets the keys and values of the others.
  ApplyContextParallel(result.model.get(), resolved);
  // 4. Checkpointing: what it recomputes includes the collectives of 2 and 3, and not the gathers of 5.
  ApplyActivationCheckpoint(*result.model, recipe.activation_checkpoint());
  // 5. Data parallelism cuts dimension 0 of what is left, and gathers around everything above.
  DataParallelOptions options;
  options.precision = result.precision;
  options.reshard_after_forward = resolved.reshard_after_forward();
  options.values_stay = resolved.parameters_stay_whole();
  options.unit_per_parameter = PassesJoinCollectives(recipe);
  options.prefetch_depth = options.unit_per_parameter ? 0 : recipe.parallelism().fsdp_prefetch_depth();
  options.reduce_each_microbatch = resolved.reduce_each_microbatch();
  result.data_parallel = std::make_unique<DataParallel>(*result.model, options);
  return result;
}

void Materialize(ParallelizedModel& parallelized, c10::Device device, uint64_t seed, bool initialize) {
  at::NoGradGuard no_grad;
  {
    graph::CategoryScope category(graph::Category::kShardedParameter);
    for (model::Parameter* p : parallelized.model->Parameters()) {
      p->master = at::empty(p->spec.sizes, at::TensorOptions().device(device).dtype(parallelized.precision.master));
      if (initialize) Initialize(*p, seed, p->master);
    }
  }
  parallelized.data_parallel->AllocateValues(device);
  graph::CategoryScope category(graph::Category::kBuffer);
  parallelized.model->CreateBuffers(device, parallelized.precision.param, parallelized.seq_len);
}

}  // namespace legoai::parallel
