#include "worker/parallel/context_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "worker/comm/ops.h"
#include "worker/graph/recorder.h"
#include "worker/parallel/context_blocks.h"
#include "worker/parallel/context_ring.h"

namespace legoai::parallel {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [batch, heads, seq / cp, head_dim] -> [batch, heads, seq, head_dim], which lies as [batch, seq, heads, head_dim].
Tensor Gather(const Tensor& local, const ContextPlace& place) {
  const Tensor in = local.transpose(1, 2).contiguous();
  const int64_t batch = in.size(0), length = in.size(1) / place.parts, heads = in.size(2), dim = in.size(3);
  const Tensor by_rank = at::empty({place.size, batch, place.parts, length, heads, dim}, in.options());
  comm::AllGatherInto(by_rank, in, place.group);
  Tensor by_part = by_rank.select(2, 0).flip(0);
  if (place.parts == 2) by_part = at::cat({by_part, by_rank.select(2, 1)});
  return by_part.transpose(0, 1).reshape({batch, -1, heads, dim}).transpose(1, 2);
}

// [batch, heads, seq, head_dim], a part of a sum on each rank -> [batch, heads, seq / cp, head_dim] of the sum.
Tensor ReduceScatter(const Tensor& whole, const ContextPlace& place) {
  const Tensor in_order = whole.transpose(1, 2);
  const int64_t batch = in_order.size(0), heads = in_order.size(2), dim = in_order.size(3);
  const int64_t length = in_order.size(1) / (place.size * place.parts);
  const Tensor by_part = in_order.reshape({batch, place.size * place.parts, length, heads, dim}).transpose(0, 1);
  Tensor by_rank = by_part.narrow(0, 0, place.size).flip(0);
  if (place.parts == 2) by_rank = at::stack({by_rank, by_part.narrow(0, place.size, place.size)}, 2);
  const Tensor out = at::empty({batch, place.parts * length, heads, dim}, whole.options());
  comm::ReduceScatterInto(out, by_rank.contiguous(), place.group);
  return out.transpose(1, 2);
}

std::vector<int64_t> NumbersOf(const ContextPlace& p) { return {p.group, p.size, p.index, p.parts, p.events}; }
ContextPlace PlaceOf(const std::vector<int64_t>& numbers) {
  return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
}

struct GatherAutograd : torch::autograd::Function<GatherAutograd> {
  static Tensor forward(AutogradContext* context, const Tensor& local, const ContextPlace& place) {
    context->saved_data["place"] = NumbersOf(place);
    at::AutoDispatchBelowADInplaceOrView below;
    return Gather(local, place);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const ContextPlace place = PlaceOf(context->saved_data["place"].toIntVector());
    at::AutoDispatchBelowADInplaceOrView below;
    return {ReduceScatter(gradients[0], place), Tensor()};
  }
};

// The queries of one of this rank's parts see all keys before the part, and of its own those up to themselves.
struct QueryPart {
  int64_t first, length;  // among this rank's queries
  int64_t begin;          // of the part in the sequence
};
std::vector<QueryPart> QueryParts(const ContextPlace& place, int64_t queries) {
  std::vector<QueryPart> parts;
  const int64_t length = queries / place.parts;
  for (int64_t part = 0; part < place.parts; ++part)
    parts.push_back({part * length, length, PartOf(place, place.index, part) * length});
  return parts;
}

Attended GatheredForward(const Tensor& q, const Tensor& k, const Tensor& v, const ContextPlace& place) {
  const Tensor keys = Gather(k, place), values = Gather(v, place);
  std::vector<Attended> parts;
  for (const QueryPart& part : QueryParts(place, q.size(2))) {
    const Tensor queries = q.narrow(2, part.first, part.length);
    Attended attended = Attend(queries, keys.narrow(2, part.begin, part.length), values.narrow(2, part.begin, part.length),
                               /*causal=*/true);
    if (part.begin > 0) {
      attended = Merge(attended, Attend(queries, keys.narrow(2, 0, part.begin), values.narrow(2, 0, part.begin),
                                        /*causal=*/false));
    }
    parts.push_back({attended.out.to(q.scalar_type()), attended.lse});
  }
  return JoinAttended(parts, q.scalar_type());
}

AttentionGradients GatheredBackward(const Tensor& gradient, const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Attended& attended, const ContextPlace& place) {
  const Tensor keys = Gather(k, place), values = Gather(v, place);
  const Tensor of_keys = at::zeros_like(keys), of_values = at::zeros_like(values);
  std::vector<Tensor> of_queries;
  for (const QueryPart& part : QueryParts(place, q.size(2))) {
    const auto mine = [&](const Tensor& tensor) { return tensor.narrow(2, part.first, part.length); };
    Tensor of_part;
    const auto add = [&](int64_t begin, int64_t length, bool causal) {
      if (length == 0) return;
      const AttentionGradients of_block =
          AttendBackward(mine(gradient), mine(q), keys.narrow(2, begin, length), values.narrow(2, begin, length),
                         {mine(attended.out), mine(attended.lse)}, causal);
      of_part = of_part.defined() ? of_part.add_(of_block.q) : of_block.q;
      of_keys.narrow(2, begin, length).add_(of_block.k);
      of_values.narrow(2, begin, length).add_(of_block.v);
    };
    // At most half the sequence at a time: the most that every rank with a tail attends to.
    const int64_t half = place.parts == 2 ? std::min(part.begin, place.size * part.length) : part.begin;
    add(0, half, /*causal=*/false);
    add(half, part.begin - half, /*causal=*/false);
    add(part.begin, part.length, /*causal=*/true);
    of_queries.push_back(of_part);
  }
  return {Join(of_queries), ReduceScatter(of_keys, place), ReduceScatter(of_values, place)};
}

// Whoever watches operators, checkpointing that keeps some of their outputs, sees one attention, as without context parallelism:
// where its output is kept, keys and values do not travel again.
Attended ForwardAsOneOperator(const Tensor& q, const Tensor& k, const Tensor& v, const ContextPlace& place) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("lego::attention", "");
  torch::jit::Stack stack{q, k, v, /*causal=*/true, ScaleOf(q)};
  graph::RunAsOperator(op, &stack, [&] {
    const Attended attended = place.events >= 0 ? RingForward(q, k, v, place) : GatheredForward(q, k, v, place);
    stack = {attended.out, attended.lse};
  });
  return {stack[0].toTensor(), stack[1].toTensor()};
}

struct ContextAttentionAutograd : torch::autograd::Function<ContextAttentionAutograd> {
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v, const ContextPlace& place) {
    at::AutoDispatchBelowADInplaceOrView below;
    const Attended attended = ForwardAsOneOperator(q, k, v, place);
    context->save_for_backward({q, k, v, attended.out, attended.lse});
    context->saved_data["place"] = NumbersOf(place);
    return attended.out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const ContextPlace place = PlaceOf(context->saved_data["place"].toIntVector());
    at::AutoDispatchBelowADInplaceOrView below;
    const auto backward = place.events >= 0 ? RingBackward : GatheredBackward;
    const AttentionGradients of = backward(gradients[0], saved[0], saved[1], saved[2], {saved[3], saved[4]}, place);
    return {of.q, of.k, of.v, Tensor()};
  }
};

}  // namespace

std::vector<model::TokenRun> TokensOfRank(const ResolvedRecipe& resolved, int64_t rank) {
  const mesh::Mesh& mesh = resolved.mesh();
  if (mesh.cp == 1) return {{0, resolved.seq_len()}};
  const bool head_tail = resolved.recipe().parallelism().context_parallel_load_balancer() == v1::BALANCE_HEAD_TAIL;
  const ContextPlace place{0, mesh.cp, mesh.IndexOf(mesh::Dim::kCp, rank), head_tail ? 2 : 1};
  std::vector<model::TokenRun> runs;
  for (const QueryPart& part : QueryParts(place, resolved.seq_len() / mesh.cp)) runs.push_back({part.begin, part.length});
  return runs;
}

ContextPlace PlaceInContext(comm::Runtime& runtime, int64_t parts, bool rotates) {
  const int64_t group = runtime.GroupId(mesh::Dim::kCp);
  ContextPlace place{group, runtime.GroupSize(group), runtime.GroupRank(group), parts};
  if (!rotates) return place;
  place.events = runtime.NewEvent();
  for (int more = 0; more < 2; ++more) runtime.NewEvent();
  return place;
}

Tensor GatherContext(const Tensor& local, const ContextPlace& place) { return GatherAutograd::apply(local, place); }

Tensor ContextAttention(const Tensor& q, const Tensor& k, const Tensor& v, const ContextPlace& place) {
  return ContextAttentionAutograd::apply(q, k, v, place);
}

void ApplyContextParallel(model::LanguageModel* model, const ResolvedRecipe& resolved) {
  if (resolved.mesh().cp == 1) return;
  comm::Runtime& runtime = comm::CurrentRuntime();
  model::StepContext& context = model->context();
  context.runs = TokensOfRank(resolved, runtime.rank());
  const bool rotates = resolved.recipe().parallelism().context_parallel_rotate_method() != v1::ROTATE_BY_ALL_GATHER;
  const ContextPlace place = PlaceInContext(runtime, static_cast<int64_t>(context.runs.size()), rotates);
  const bool caps = model->config().attn_logit_softcapping() > 0, drops = model->config().attn_pdrop() > 0;
  for (model::SelfAttention* attention : model->Attentions()) {
    attention->ReplaceCore(
        [place, caps, drops, &context, core = attention->core()](const Tensor& q, const Tensor& k, const Tensor& v) {
          if (!caps && !(drops && context.training)) return ContextAttention(q, k, v, place);
          return core(q, GatherContext(k, place), GatherContext(v, place));  // its mask has this rank's rows
        });
  }
}

}  // namespace legoai::parallel
