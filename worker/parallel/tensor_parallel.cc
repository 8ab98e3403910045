#include "worker/parallel/tensor_parallel.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/masked_fill.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/recipe/keep_policy.h"
#include "core/recipe/recipe.h"
#include "core/trace/annotation.h"
#include "proto/errors.h"
#include "worker/comm/ops.h"
#include "worker/comm/runtime.h"
#include "worker/model/layers.h"
#include "worker/model/weight_gradients.h"

namespace legoai::parallel {
namespace {

using at::Tensor;
using model::ForwardFunction;
using model::Module;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Memory for what a gather of [batch, n, dim] gives, which orders it by rank first: [1, tp * n, dim], or [tp, batch, n, dim].
Tensor EmptyGathered(const Tensor& local, int64_t group) {
  const int64_t tp = comm::CurrentRuntime().GroupSize(group);
  const int64_t batch = local.size(0), n = local.size(1), dim = local.size(2);
  if (batch == 1) return at::empty({1, tp * n, dim}, local.options());
  return at::empty({tp, batch, n, dim}, local.options());
}

// Of that, [batch, tp * n, dim].
Tensor JoinSequence(const Tensor& gathered) {
  if (gathered.dim() == 3) return gathered;
  return gathered.transpose(0, 1).reshape({gathered.size(1), gathered.size(0) * gathered.size(2), gathered.size(3)});
}

// [batch, n, dim] -> [batch, tp * n, dim].
Tensor AllGatherDim1(const Tensor& local, int64_t group) {
  const Tensor in = local.contiguous(), gathered = EmptyGathered(in, group);
  comm::AllGatherInto(gathered, in, group);
  return JoinSequence(gathered);
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

Tensor Same(const Tensor& tensor, int64_t group) { return tensor; }

// In the tensor's own memory.
Tensor SumInPlace(const Tensor& partial, int64_t group) {
  const Tensor sum = partial.contiguous();
  comm::AllReduce(sum, group);
  return sum;
}

Tensor Sum(const Tensor& partial, int64_t group) {
  const Tensor sum = partial.clone(at::MemoryFormat::Contiguous);
  comm::AllReduce(sum, group);
  return sum;
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

// What a region's second gather works on: a group of its own, and events of the region's.
struct GatherAgain {
  int64_t group, fork, done;
};

// Keeps this rank's tokens of a region's input, and gathers them once more for the region's products.
class GatheredInput : public model::SavedInput {
 public:
  GatheredInput(const Tensor& local, const GatherAgain& again) : SavedInput(local.tensor_data()), again_(again) {}

  void AddUser() override { ++users_; }

  void Prepare() override {
    if (state_ != State::kLocal) return;
    state_ = State::kGathering;
    const at::AutoDispatchBelowADInplaceOrView below;
    const Tensor local = TakeSaved().contiguous();
    {
      const graph::CategoryScope category(graph::Category::kActivation);
      input_ = EmptyGathered(local, again_.group);
    }
    comm::RecordEvent(comm::kCompute, again_.fork);
    comm::WaitEvent(comm::kTensorGather, again_.fork);
    const comm::StreamScope stream(comm::kTensorGather);
    comm::AllGatherInto(input_, local, again_.group);
    comm::RecordEvent(comm::kTensorGather, again_.done);
  }

  Tensor Take() override {
    Prepare();
    if (state_ == State::kGathering) {
      state_ = State::kGathered;
      comm::WaitEvent(comm::kCompute, again_.done);
      const graph::CategoryScope category(graph::Category::kActivation);
      input_ = JoinSequence(input_).reshape({-1, input_.size(-1)});
    }
    return --users_ > 0 ? input_ : std::exchange(input_, Tensor());
  }

 private:
  enum class State { kLocal, kGathering, kGathered };
  const GatherAgain again_;
  State state_ = State::kLocal;
  int64_t users_ = 0;  // layers that have not taken it
  Tensor input_;       // as the gather gives it, then [tokens, dim]
};

// Dimensions of a weight [out, in] or [rows, dim].
enum Split : int64_t { kColumnWise = 0, kRowWise = 1 };

struct WeightRule {
  const char* module;  // path in the layer; "" is the layer itself
  Split split;
  bool by_kv_heads = false;  // there are no more parts than key-value heads
};
// How a family's layers are parallelized.
struct Plan {
  const char* embedding_table;      // path in the embedding
  const char* embedding_positions;  // learned ones work on this rank's tokens; null: none
  std::vector<WeightRule> block_weights;
  std::vector<const char*> block_norms;    // work on this rank's tokens; those that the family's block has
  std::vector<const char*> head_norms;     // work on this rank's heads; those too
  std::vector<const char*> block_regions;  // work on all tokens until their row-wise product, which ends in a partial sum
  bool regions_sum = false;                // a region adds up the partial sums of several products, and ends in one
  const char* head_norm;
  const char* head_logits;
};

// Null for a family without a plan.
const Plan* PlanOf(const v1::Model& config) {
  static const Plan* const kLlamaFamily = new Plan{
      .embedding_table = "",
      .embedding_positions = nullptr,
      .block_weights = {{"self_attn.q_proj", kColumnWise},
                        {"self_attn.k_proj", kColumnWise, /*by_kv_heads=*/true},
                        {"self_attn.v_proj", kColumnWise, /*by_kv_heads=*/true},
                        {"self_attn.o_proj", kRowWise},
                        {"mlp.gate_proj", kColumnWise},
                        {"mlp.up_proj", kColumnWise},
                        {"mlp.down_proj", kRowWise}},
      .block_norms = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"},
      .head_norms = {"self_attn.q_norm", "self_attn.k_norm"},
      .block_regions = {"self_attn", "mlp"},
      .head_norm = "norm",
      .head_logits = "lm_head",
  };
  static const Plan* const kGpt2 = new Plan{
      .embedding_table = "wte",
      .embedding_positions = "wpe",
      .block_weights = {{"attn.q_proj", kColumnWise},
                        {"attn.k_proj", kColumnWise, /*by_kv_heads=*/true},
                        {"attn.v_proj", kColumnWise, /*by_kv_heads=*/true},
                        {"attn.c_proj", kRowWise},
                        {"mlp.c_fc", kColumnWise},
                        {"mlp.c_proj", kRowWise}},
      .block_norms = {"ln_1", "ln_2"},
      .head_norms = {},
      .block_regions = {"attn", "mlp"},
      .head_norm = "norm",
      .head_logits = "lm_head",
  };
  static const Plan* const kGpt2Parallel = new Plan{
      .embedding_table = "wte",
      .embedding_positions = "wpe",
      .block_weights = {{"sides.attn.q_proj", kColumnWise},
                        {"sides.attn.k_proj", kColumnWise, /*by_kv_heads=*/true},
                        {"sides.attn.v_proj", kColumnWise, /*by_kv_heads=*/true},
                        {"sides.attn.c_proj", kRowWise},
                        {"sides.mlp.c_fc", kColumnWise},
                        {"sides.mlp.c_proj", kRowWise}},
      .block_norms = {"ln_1"},
      .head_norms = {},
      .block_regions = {"sides"},
      .regions_sum = true,
      .head_norm = "norm",
      .head_logits = "lm_head",
  };
  switch (config.architecture()) {
    case v1::LLAMA:
    case v1::MISTRAL:
    case v1::QWEN2:
    case v1::QWEN3:
    case v1::GEMMA:
    case v1::GEMMA2: return kLlamaFamily;
    case v1::GPT2: return config.parallel_block() ? kGpt2Parallel : kGpt2;
    default: return nullptr;
  }
}

// This rank's place.
struct Place {
  int64_t group, size, index;
  bool gathers_again;
  bool splits_tokens;   // between regions; otherwise all ranks have all of them
  bool keeps_products;  // checkpointing keeps outputs, which nothing may overwrite
};

// With more ranks than parts, neighbouring ranks have copies of one part.
void CutParameter(model::Parameter* parameter, int64_t dim, const Place& place, int64_t parts) {
  const int64_t copies = std::max<int64_t>(1, place.size / parts);
  Cut(&parameter->spec, dim, place.size / copies, place.index / copies, mesh::Dim::kTp);
  parameter->spec.copies_over_tp = copies;
  // One part for all ranks is not cut, and yet the first alone counts it: the others learn of it from the sum over all.
  if (copies > 1 && copies == place.size) parameter->spec.sharded_over.push_back(mesh::Dim::kTp);
  parameter->local_shape = parameter->spec.sizes;
}

// A bias of what is cut by columns is cut with them. `parts`: there are no more.
void CutWeight(Module* module, int64_t dim, const Place& place, int64_t parts = std::numeric_limits<int64_t>::max()) {
  model::Parameter* const weight = module->parameter("weight");
  if (weight != nullptr) CutParameter(weight, dim, place, parts);  // null: tied; its owner cuts it, along the same dimension
  model::Parameter* const bias = module->parameter("bias");
  if (bias != nullptr && dim == kColumnWise) CutParameter(bias, 0, place, parts);
}

// Each rank has seen its own tokens, or heads.
void SumGradients(Module* module) {
  for (model::Parameter* parameter : module->Parameters()) parameter->spec.gradient_partial_over.push_back(mesh::Dim::kTp);
}
void SumGradientsOverTokens(Module* module, const Place& place) {
  if (place.splits_tokens) SumGradients(module);
}

// The sum of the ranks' parts: of this rank's tokens, or of all.
Tensor Reduce(const Tensor& partial, const Place& place) {
  if (place.splits_tokens) return ReduceScatterSequence(partial, place.group);
  return place.keeps_products ? Differentiable<Sum, Same>::apply(partial, place.group)
                              : Differentiable<SumInPlace, Same>::apply(partial, place.group);
}

// The biases of products whose parts are summed are added to the sum.
std::vector<model::Parameter*> TakeBiases(const std::vector<Module*>& products, const Place& place) {
  std::vector<model::Parameter*> biases;
  for (Module* const product : products) {
    model::Parameter* const bias = product->parameter("bias");
    if (bias == nullptr) continue;
    static_cast<model::Linear*>(product)->LeaveBiasOut();
    if (place.splits_tokens) bias->spec.gradient_partial_over.push_back(mesh::Dim::kTp);
    biases.push_back(bias);
  }
  return biases;
}

// What `module` gives, the parts of these products' sum, is summed.
void ReduceAfter(Module* module, const std::vector<Module*>& products, const Place& place) {
  module->Intercept([biases = TakeBiases(products, place), place](const Tensor& input, const ForwardFunction& next) {
    Tensor sum = Reduce(next(input), place);
    for (const model::Parameter* bias : biases) sum = at::add(sum, bias->value);
    return sum;
  });
}

// The module works on all tokens of what is given in parts. Where all ranks have them, its gradient is a sum over the ranks: that
// of the products' inputs, which nothing else holds.
void GatherBefore(Module* region, const Place& place) {
  if (!place.splits_tokens) {
    region->Intercept([group = place.group](const Tensor& input, const ForwardFunction& next) {
      return next(Differentiable<Same, SumInPlace>::apply(input, group));
    });
    return;
  }
  if (!place.gathers_again) {
    region->Intercept(
        [group = place.group](const Tensor& input, const ForwardFunction& next) { return next(GatherSequence(input, group)); });
    return;
  }
  comm::Runtime& runtime = comm::CurrentRuntime();
  const GatherAgain again{runtime.GroupId(mesh::Dim::kTpGather), runtime.NewEvent(), runtime.NewEvent()};
  region->Intercept([group = place.group, again](const Tensor& input, const ForwardFunction& next) {
    const Tensor whole = GatherSequence(input, group);
    const model::SaveInputAs keeps(whole, c10::make_intrusive<GatheredInput>(input, again));
    return next(whole);
  });
}

// tokens int64 [batch, seq] -> [batch, seq / tp, dim], or all of them. The layer has rows [first, first + rows) of the table.
Tensor LookUp(const Tensor& tokens, const ForwardFunction& next, int64_t first, int64_t rows, const Place& place) {
  const Tensor elsewhere = tokens.lt(first).bitwise_or_(tokens.ge(first + rows));
  const Tensor found = next(tokens.sub(first).masked_fill_(elsewhere, 0));
  return Reduce(found.masked_fill_(elsewhere.unsqueeze(-1), 0), place);
}

void ApplyToEmbedding(Module* embedding, const Plan& plan, const Place& place) {
  if (plan.embedding_positions != nullptr) SumGradientsOverTokens(embedding->Find(plan.embedding_positions), place);
  Module* const table = *plan.embedding_table == '\0' ? embedding : embedding->Find(plan.embedding_table);
  CutWeight(table, 0, place);
  const ShardSpec& spec = table->parameter("weight")->spec;
  table->Intercept([first = spec.offsets[0], rows = spec.sizes[0], place](const Tensor& tokens, const ForwardFunction& next) {
    return LookUp(tokens, next, first, rows, place);
  });
}

void ApplyToBlock(Module* block, const Plan& plan, int64_t kv_heads, const Place& place) {
  std::vector<Module*> products;
  for (const WeightRule& rule : plan.block_weights) {
    Module* const module = block->Find(rule.module);
    CutWeight(module, rule.split, place, rule.by_kv_heads ? kv_heads : std::numeric_limits<int64_t>::max());
    if (rule.split == kRowWise) products.push_back(module);
  }
  if (plan.regions_sum) {
    ReduceAfter(block->Find(plan.block_regions.front()), products, place);
  } else {
    for (Module* const product : products) ReduceAfter(product, {product}, place);
  }
  for (const char* norm : plan.block_norms) {
    if (Module* const module = block->Find(norm)) SumGradientsOverTokens(module, place);
  }
  for (const char* norm : plan.head_norms) {
    if (Module* const module = block->Find(norm)) SumGradients(module);
  }
  for (const char* region : plan.block_regions) GatherBefore(block->Find(region), place);
}

void ApplyToHead(Module* head, const Plan& plan, bool gather_logits, const Place& place) {
  SumGradientsOverTokens(head->Find(plan.head_norm), place);
  Module* logits = head->Find(plan.head_logits);
  CutWeight(logits, kColumnWise, place);
  GatherBefore(logits, place);
  if (!gather_logits) return;
  logits->Intercept([group = place.group](const Tensor& input, const ForwardFunction& next) {
    return GatherColumns(next(input), group);
  });
}

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

absl::Status ApplyTensorParallel(model::LanguageModel* model, const v1::Recipe& recipe) {
  const comm::Runtime& runtime = comm::CurrentRuntime();
  const int64_t group = runtime.GroupId(mesh::Dim::kTp);
  const Place place{.group = group,
                    .size = runtime.GroupSize(group),
                    .index = runtime.GroupRank(group),
                    .gathers_again = recipe.parallelism().sequence_parallel_gather_in_backward(),
                    .splits_tokens = SplitsTokens(recipe.parallelism()),
                    .keeps_products = KeepsOperators(recipe.activation_checkpoint())};
  if (place.size == 1) return absl::OkStatus();
  const v1::Model& config = model->config();
  const Plan* plan = PlanOf(config);
  if (plan == nullptr) {
    return FieldError("parallelism.tensor_parallel_degree", absl::StrCat(place.size),
                      absl::StrCat("no tensor-parallel plan for models of architecture ",
                                   v1::Architecture_Name(config.architecture()), "; use degree 1"));
  }
  const bool gather_logits = recipe.parallelism().disable_loss_parallel();
  model->context().part = place.index;
  model->context().splits_tokens = place.splits_tokens;
  for (model::Layer& layer : model->layers()) {
    switch (layer.kind) {
      case model::Layer::Kind::kEmbedding: ApplyToEmbedding(layer.module.get(), *plan, place); break;
      case model::Layer::Kind::kBlock: ApplyToBlock(layer.module.get(), *plan, config.num_key_value_heads(), place); break;
      case model::Layer::Kind::kHead: ApplyToHead(layer.module.get(), *plan, gather_logits, place); break;
    }
  }
  return absl::OkStatus();
}

int64_t VocabularyOffset(int64_t vocab_size, int64_t tp, int64_t index) {
  ShardSpec spec = Unsharded("", {vocab_size});
  Cut(&spec, 0, tp, index, mesh::Dim::kTp);
  return spec.offsets[0];
}

}  // namespace legoai::parallel
