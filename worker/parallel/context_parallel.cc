#include "worker/parallel/context_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "worker/comm/ops.h"
#include "worker/comm/runtime.h"

namespace legoai::parallel {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Which of the equal parts of each sequence a rank has: heads count down from the middle, tails up.
int64_t PartOf(const ContextPlace& place, int64_t part) {
  return part == 0 ? place.size - 1 - place.index : place.size + place.index;
}

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

struct GatherAutograd : torch::autograd::Function<GatherAutograd> {
  static Tensor forward(AutogradContext* context, const Tensor& local, const ContextPlace& place) {
    context->saved_data["place"] = std::vector<int64_t>{place.group, place.size, place.index, place.parts};
    at::AutoDispatchBelowADInplaceOrView below;
    return Gather(local, place);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const std::vector<int64_t> place = context->saved_data["place"].toIntVector();
    at::AutoDispatchBelowADInplaceOrView below;
    return {ReduceScatter(gradients[0], {place[0], place[1], place[2], place[3]}), Tensor()};
  }
};

// Attention as a tensor [batch, heads, seq, head_dim] and the log-sum-exp of its scores, fp32 [batch, heads, seq].
struct Attended {
  Tensor out, lse;
};

Attended Attend(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("lego::attention", "")
          .typed<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, bool, double)>();
  auto [out, lse] = op.call(q, k, v, causal, scale);
  return {out, lse.narrow(2, 0, q.size(2))};
}

struct Gradients {
  Tensor q, k, v;
};

Gradients AttendBackward(const Tensor& gradient, const Tensor& q, const Tensor& k, const Tensor& v, const Attended& attended,
                         bool causal, double scale) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("lego::attention_backward", "")
          .typed<std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                                    const Tensor&, bool, double)>();
  auto [of_q, of_k, of_v] = op.call(gradient, q, k, v, attended.out, attended.lse, causal, scale);
  return {of_q, of_k, of_v};
}

// What one softmax over the keys of both would have given. In new memory: checkpointing may keep what attention gave.
Attended Merge(const Attended& a, const Attended& b) {
  const Tensor weight = at::sigmoid(b.lse - a.lse).unsqueeze(-1);
  const Tensor out = at::lerp(a.out.to(at::kFloat), b.out.to(at::kFloat), weight);
  return {out.to(a.out.scalar_type()), at::logaddexp(a.lse, b.lse)};
}

// Joins the parts of a rank along the sequence. They lie by sequence, so that the projection behind attention copies nothing.
Tensor Join(const std::vector<Tensor>& parts) {
  if (parts.size() == 1) return parts[0];
  return at::cat({parts[0].transpose(1, 2), parts[1].transpose(1, 2)}, 1).transpose(1, 2);
}

// The queries of one of this rank's parts see all keys before the part, and of its own those up to themselves.
struct QueryPart {
  int64_t first, length;  // among this rank's queries
  int64_t begin;          // of the part in the sequence
};
std::vector<QueryPart> QueryParts(const ContextPlace& place, int64_t queries) {
  std::vector<QueryPart> parts;
  const int64_t length = queries / place.parts;
  for (int64_t part = 0; part < place.parts; ++part) parts.push_back({part * length, length, PartOf(place, part) * length});
  return parts;
}

class ContextAttentionAutograd : public torch::autograd::Function<ContextAttentionAutograd> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v, const ContextPlace& place) {
    at::AutoDispatchBelowADInplaceOrView below;
    const Tensor keys = Gather(k, place), values = Gather(v, place);
    const double scale = Scale(q);
    std::vector<Tensor> outs, lses;
    for (const QueryPart& part : QueryParts(place, q.size(2))) {
      const Tensor queries = q.narrow(2, part.first, part.length);
      Attended attended = Attend(queries, keys.narrow(2, part.begin, part.length), values.narrow(2, part.begin, part.length),
                                 /*causal=*/true, scale);
      if (part.begin > 0) {
        attended = Merge(attended, Attend(queries, keys.narrow(2, 0, part.begin), values.narrow(2, 0, part.begin),
                                          /*causal=*/false, scale));
      }
      outs.push_back(attended.out);
      lses.push_back(attended.lse);
    }
    const Tensor out = Join(outs), lse = Join(lses);
    context->save_for_backward({q, k, v, out, lse});
    context->saved_data["place"] = std::vector<int64_t>{place.group, place.size, place.index, place.parts};
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const std::vector<int64_t> numbers = context->saved_data["place"].toIntVector();
    const ContextPlace place{numbers[0], numbers[1], numbers[2], numbers[3]};
    at::AutoDispatchBelowADInplaceOrView below;
    const Tensor& q = saved[0];
    const Tensor keys = Gather(saved[1], place), values = Gather(saved[2], place);
    const Tensor of_keys = at::zeros_like(keys), of_values = at::zeros_like(values);
    std::vector<Tensor> of_queries;
    for (const QueryPart& part : QueryParts(place, q.size(2))) {
      const auto mine = [&](const Tensor& tensor) { return tensor.narrow(2, part.first, part.length); };
      const Attended attended{mine(saved[3]), mine(saved[4])};
      Tensor of_part;
      const auto add = [&](int64_t begin, int64_t length, bool causal) {
        if (length == 0) return;
        const Gradients of_block =
            AttendBackward(mine(gradients[0]), mine(q), keys.narrow(2, begin, length), values.narrow(2, begin, length), attended,
                           causal, Scale(q));
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
    return {Join(of_queries), ReduceScatter(of_keys, place), ReduceScatter(of_values, place), Tensor()};
  }

 private:
  static double Scale(const Tensor& q) { return 1.0 / std::sqrt(static_cast<double>(q.size(3))); }
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

Tensor GatherContext(const Tensor& local, const ContextPlace& place) { return GatherAutograd::apply(local, place); }

Tensor ContextAttention(const Tensor& q, const Tensor& k, const Tensor& v, const ContextPlace& place) {
  return ContextAttentionAutograd::apply(q, k, v, place);
}

void ApplyContextParallel(model::LanguageModel* model, const ResolvedRecipe& resolved) {
  if (resolved.mesh().cp == 1) return;
  const comm::Runtime& runtime = comm::CurrentRuntime();
  model::StepContext& context = model->context();
  context.runs = TokensOfRank(resolved, runtime.rank());
  const int64_t group = runtime.GroupId(mesh::Dim::kCp);
  const ContextPlace place{group, runtime.GroupSize(group), runtime.GroupRank(group),
                           static_cast<int64_t>(context.runs.size())};
  const bool drops_probabilities = model->config().attn_pdrop() > 0;
  for (model::SelfAttention* attention : model->Attentions()) {
    attention->ReplaceCore([place, drops_probabilities, &context, core = attention->core()](const Tensor& q, const Tensor& k,
                                                                                            const Tensor& v) {
      if (!drops_probabilities || !context.training) return ContextAttention(q, k, v, place);
      return core(q, GatherContext(k, place), GatherContext(v, place));  // its mask has this rank's rows
    });
  }
}

}  // namespace legoai::parallel
