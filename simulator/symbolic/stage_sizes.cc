#include "simulator/symbolic/stage_sizes.h"

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <tuple>
#include <utility>

#include "core/mesh/mesh.h"
#include "core/model/model_facts.h"
#include "core/recipe/chunks.h"
#include "core/recipe/keep_policy.h"
#include "core/recipe/optimizer.h"
#include "core/recipe/recipe.h"
#include "core/schedule/schedule.h"
#include "core/schedule/zero_bubble.h"

namespace legoai::sim {
namespace {

using mesh::Dim;
using parallel::ResolvedRecipe;

constexpr int kNoCut = -1;

// What the part `index` of `degree` has of `size`, as parallel::Cut leaves it.
int64_t PartOf(int64_t size, int64_t degree, int64_t index) {
  const int64_t piece = (size + degree - 1) / degree;
  return std::min(piece * (index + 1), size) - std::min(piece * index, size);
}

// Adds parameters as the techniques cut them: tensor parallelism along `tp_dim`, then FSDP along dimension 0.
class UnitCounter {
 public:
  UnitCounter(const mesh::Mesh& mesh, int64_t rank)
      : tp_(mesh.tp),
        tp_index_(mesh.IndexOf(Dim::kTp, rank)),
        shards_(mesh.Size(Dim::kDpShardCp)),
        shard_index_(mesh.IndexOf(Dim::kDpShardCp, rank)) {}
  // `parts`: there are no more; ranks of tensor parallelism share them.
  void Add(std::initializer_list<int64_t> shape, int tp_dim = kNoCut, int64_t parts = INT64_MAX) {
    std::array<int64_t, 2> sizes = {1, 1};
    std::copy(shape.begin(), shape.end(), sizes.begin());
    const int64_t copies = std::max<int64_t>(1, tp_ / parts);
    if (tp_dim != kNoCut) sizes[tp_dim] = PartOf(sizes[tp_dim], tp_ / copies, tp_index_ / copies);
    unit_.gathered += sizes[0] * sizes[1];
    const int64_t held = PartOf(sizes[0], shards_, shard_index_) * sizes[1];
    unit_.held += held;
    if (shape.size() == 2) AddMatrix(*shape.begin(), *(shape.begin() + 1), held, tp_dim == kNoCut ? 1 : tp_);
  }
  UnitElements Take() const { return unit_; }

 private:
  // An iteration has two products of [m, n] with [n, m] or [m, m], and one of [m, m] with itself.
  // Ranks of tensor parallelism share it, copies of a part too.
  void AddMatrix(int64_t rows, int64_t columns, int64_t held, int64_t tp_ranks) {
    const auto [less, more] = std::minmax(rows, columns);
    const double m = static_cast<double>(less), n = static_cast<double>(more);
    const int64_t ranks = shards_ * tp_ranks;
    unit_.matrices += held;
    unit_.iteration_bytes = std::max(unit_.iteration_bytes, 4 * (less * more + less * less));
    unit_.iteration_flops += (4 * m * m * n + 2 * m * m * m) / static_cast<double>(ranks);
  }

  const int64_t tp_, tp_index_, shards_, shard_index_;
  UnitElements unit_;
};

// Of a block: before attention and feed-forward, in Gemma 2 after them, too.
int64_t NormsOfLlamaFamily(const v1::Model& m) { return m.architecture() == v1::GEMMA2 ? 4 : 2; }

UnitElements LlamaFamilyBlock(const v1::Model& m, UnitCounter unit) {
  const int64_t h = m.hidden_size(), q = m.num_attention_heads() * m.head_dim(), kv = m.num_key_value_heads() * m.head_dim();
  for (int norm = 0; norm < NormsOfLlamaFamily(m); ++norm) unit.Add({h});
  unit.Add({q, h}, 0);
  for (int projection = 0; projection < 2; ++projection) unit.Add({kv, h}, 0, m.num_key_value_heads());
  if (m.qkv_bias()) {
    unit.Add({q}, 0);
    for (int projection = 0; projection < 2; ++projection) unit.Add({kv}, 0, m.num_key_value_heads());
  }
  if (m.qk_norm()) unit.Add({m.head_dim()}), unit.Add({m.head_dim()});
  unit.Add({h, q}, 1);
  for (int projection = 0; projection < 2; ++projection) unit.Add({m.intermediate_size(), h}, 0);
  unit.Add({h, m.intermediate_size()}, 1);
  return unit.Take();
}

UnitElements Gpt2Block(const v1::Model& m, UnitCounter unit) {
  const int64_t h = m.hidden_size(), inner = m.intermediate_size(), kv_heads = m.num_key_value_heads();
  const int64_t kv = kv_heads * m.head_dim();
  for (int norm = 0; norm < (m.parallel_block() ? 2 : 4); ++norm) unit.Add({h});
  unit.Add({h, h}, 0), unit.Add({h}, 0);
  for (int projection = 0; projection < 2; ++projection) unit.Add({kv, h}, 0, kv_heads), unit.Add({kv}, 0, kv_heads);
  unit.Add({h, h}, 1);
  unit.Add({h});
  unit.Add({inner, h}, 0);
  unit.Add({inner}, 0);
  unit.Add({h, inner}, 1);
  unit.Add({h});
  return unit.Take();
}

UnitElements Embedding(const v1::Model& m, UnitCounter unit) {
  unit.Add({m.vocab_size(), m.hidden_size()}, 0);
  if (m.architecture() == v1::GPT2) unit.Add({m.max_position_embeddings(), m.hidden_size()});
  return unit.Take();
}

// Where embedding and head lie on two ranks, each has a tied embedding.
UnitElements Head(const v1::Model& m, bool is_apart, UnitCounter unit) {
  for (int norm = 0; norm < (m.architecture() == v1::GPT2 ? 2 : 1); ++norm) unit.Add({m.hidden_size()});
  if (is_apart || !m.tie_word_embeddings()) unit.Add({m.vocab_size(), m.hidden_size()}, 0);
  return unit.Take();
}

// What the operators of a block of Llama's kind save: RMS norms their input and rstd, those of queries and keys too; projections
// their (gathered) input; attention q, k, v, its output and lse, or in the place of this capped scores' tanh and probabilities;
// silu or gelu, the product and the down projection four tensors of the inner width, of which fused operators compute one again.
int64_t LlamaFamilySaved(const v1::Model& m, const StageSizes& s, int64_t seq, int64_t tp, bool fuses) {
  const int64_t h = m.hidden_size(), q = m.num_attention_heads() * m.head_dim() / tp;
  const int64_t kv = std::max<int64_t>(1, m.num_key_value_heads() / tp) * m.head_dim(), inner = m.intermediate_size() / tp;
  const int64_t heads = m.num_attention_heads() / tp, norms = NormsOfLlamaFamily(m);
  int64_t elements = (norms * s.local_tokens + 2 * s.input_tokens) * h + s.tokens * (2 * q + 2 * kv + (fuses ? 3 : 4) * inner);
  int64_t fp32 = norms * s.local_tokens;
  if (model::MaterializesScores(m)) {
    elements += 2 * s.tokens * seq * heads;
  } else {
    fp32 += s.tokens * heads;
  }
  if (m.qk_norm()) {
    elements += s.tokens * (q + kv);
    fp32 += s.tokens * (q + kv) / m.head_dim();
  }
  return s.param_bytes * elements + 4 * fp32;
}

// A GPT-2 block: layer norms their input, mean and rstd; projections their input; attention q, k, v and its output, and with
// dropout of probabilities these twice (before and after); GELU its input and the projection its output. A parallel block has one
// norm, whose output all projections share.
int64_t Gpt2Saved(const v1::Model& m, const StageSizes& s, int64_t seq, int64_t tp) {
  const int64_t h = m.hidden_size(), heads = m.num_attention_heads() / tp, norms = m.parallel_block() ? 1 : 2;
  const int64_t kv = std::max<int64_t>(1, m.num_key_value_heads() / tp) * m.head_dim();
  int64_t elements = norms * (s.local_tokens + s.input_tokens) * h;
  elements += s.tokens * (2 * h / tp + 2 * kv + 2 * m.intermediate_size() / tp);
  int64_t fp32 = 2 * norms * s.local_tokens;
  if (model::MaterializesScores(m)) {
    elements += 2 * s.tokens * seq * heads;
  } else {
    fp32 += s.tokens * heads;
  }
  return s.param_bytes * elements + 4 * fp32;
}

// Of another policy than TorchTitan's the closed forms say what full checkpointing does: no more is saved, no less computed.
bool KeepsSecondProducts(const ResolvedRecipe& resolved) {
  const v1::ActivationCheckpoint& section = resolved.recipe().activation_checkpoint();
  return parallel::KeepsOperators(section) && section.selective_ac_option() == "op" &&
         section.per_op_sac_force_recompute_mm_shapes_by_fqns().empty();
}

// What a block that is computed again keeps of its products and of attention (worker/parallel/kept_outputs.h): of Llama's q, k,
// v, o, gate, up and down q, v and gate, and down where a norm takes it, of GPT-2's q, k, v, c_proj, c_fc and c_proj q, v and
// c_fc; attention's output and lse.
int64_t KeptOfOperators(const v1::Model& m, const StageSizes& s, int64_t tp) {
  const int64_t heads = m.num_attention_heads() / tp, q = heads * m.head_dim();
  const int64_t kv = std::max<int64_t>(1, m.num_key_value_heads() / tp) * m.head_dim();
  const int64_t products = q + kv + m.intermediate_size() / tp + (m.architecture() == v1::GEMMA2 ? m.hidden_size() : 0);
  if (model::MaterializesScores(m)) return s.param_bytes * s.tokens * products;  // by operators that are computed again
  return s.tokens * (s.param_bytes * (products + q) + 4 * heads);
}

// The part of a block's products that is computed again where it keeps those.
double SharePartlyComputedAgain(const v1::Model& m) {
  const double h = static_cast<double>(m.hidden_size()), inner = static_cast<double>(m.intermediate_size());
  const double q = static_cast<double>(m.num_attention_heads() * m.head_dim());
  const double kv = static_cast<double>(m.num_key_value_heads() * m.head_dim());
  if (m.architecture() == v1::GPT2) return (h + kv) / (2 * h + 2 * kv + 2 * inner);
  return (q + kv + inner) / (2 * q + 2 * kv + 3 * inner);
}

// The blocks of a rank's chunks: all and those computed again, and of the chunk that saves least as many of either.
struct Blocks {
  int64_t all = 0, recomputed = 0, least_kept = INT64_MAX, least_recomputed = INT64_MAX;
  auto operator<=>(const Blocks&) const = default;
};

// A block that is computed again saves less than a kept one, so the fewest kept blocks save least.
Blocks BlocksOf(const ResolvedRecipe& resolved, int64_t stage) {
  Blocks blocks;
  const parallel::Placement& placement = resolved.placement();
  for (int64_t local = 0; local < placement.locals(); ++local) {
    const auto [first, last] = resolved.LayersOf(placement.ChunkOf(stage, local));
    const int64_t recomputed = resolved.RecomputedBlocks(first, last);
    blocks.all += last - first;
    blocks.recomputed += recomputed;
    const std::pair least(blocks.least_kept, blocks.least_recomputed);
    std::tie(blocks.least_kept, blocks.least_recomputed) = std::min(least, std::pair(last - first - recomputed, recomputed));
  }
  return blocks;
}

int64_t SavedChunk(const ResolvedRecipe& resolved, const StageSizes& s, const Blocks& blocks) {
  const v1::Model& m = resolved.model();
  const int64_t kept = m.architecture() == v1::GPT2 ? Gpt2Saved(m, s, resolved.seq_len(), resolved.mesh().tp)
                                                    : LlamaFamilySaved(m, s, resolved.seq_len(), resolved.mesh().tp,
                                                                       resolved.recipe().compile().fuse());
  int64_t again = s.param_bytes * s.local_tokens * m.hidden_size();  // the input
  if (KeepsSecondProducts(resolved)) again += KeptOfOperators(m, s, resolved.mesh().tp);
  return blocks.least_kept * kept + blocks.least_recomputed * again;
}

// Microbatches in flight of the schedules that have one order of forwards and one of backwards.
void ComputeFlight(v1::PipelineSchedule schedule, const parallel::Placement& placement, int64_t stage, StageSizes* s) {
  const auto most = [&](int64_t rank) {
    return parallel::MostInFlight(schedule, placement.ranks, placement.chunks, s->microbatches, rank);
  };
  s->in_flight = most(stage);
  s->heads_in_flight = schedule == v1::LOOPED_BFS || s->chunks == 1 ? s->in_flight / s->chunks : 1;
  s->weight_lag = placement.ranks > 1 && parallel::PartsBackward(schedule) ? stage : 0;
  // One more goes forward when each chunk has had a backward.
  const int64_t backwards_of_each = s->chunks == 1 ? 1 : most(placement.ranks - 1);
  const bool more = s->microbatches * s->chunks - s->in_flight >= backwards_of_each + s->weight_lag;
  s->later_in_flight = more ? s->in_flight : 0;
}

// Of any other schedule, counted. On the rank of the head the most are looked for where the loss's tensors are there too.
void CountFlight(const std::vector<parallel::Action>& actions, int64_t chunks, StageSizes* s) {
  using Kind = parallel::Action::Kind;
  const int64_t last = chunks - 1;
  int64_t now = 0, heads = 0;
  std::set<int32_t> with_gradients;
  s->in_flight = s->heads_in_flight = s->later_in_flight = 0;
  for (const parallel::Action& action : actions) {
    const bool forward = action.kind == Kind::kForward, weights = action.kind == Kind::kWeightGradient;
    const bool of_head = action.chunk == last && !weights;
    if (forward) ++now, heads += of_head;
    const bool counts = s->has_head ? of_head && forward == s->vocab_is_split : forward;
    if (counts) std::tie(s->in_flight, s->heads_in_flight) = std::max(std::pair(s->in_flight, s->heads_in_flight), {now, heads});
    const bool all_have_gradients = static_cast<int64_t>(with_gradients.size()) == s->chunks;
    if (forward && all_have_gradients) s->later_in_flight = std::max(s->later_in_flight, now);
    if (!forward && !weights) --now, heads -= of_head;
    if (weights || action.kind == Kind::kBackward) with_gradients.insert(action.chunk);
  }
  s->weight_lag = s->microbatches;
}

void SetFlight(const ResolvedRecipe& resolved, int64_t stage, StageSizes* s) {
  const parallel::Placement& placement = resolved.placement();
  const v1::Parallelism& parallelism = resolved.recipe().parallelism();
  const v1::PipelineSchedule kind = parallelism.pipeline_parallel_schedule();
  if (const auto listed = parallel::ListedSchedule(parallelism)) {
    CountFlight(listed->ranks[stage], placement.chunks, s);
  } else if (placement.in_v) {
    CountFlight(parallel::InV(kind, placement.ranks, s->microbatches, stage), placement.chunks, s);
  } else {
    ComputeFlight(kind, placement, stage, s);
  }
}

// Of what the optimizer keeps besides masters (worker/train/optimizer.cc, muon.cc).
int64_t OptimizerStateBytes(const v1::OptimizerSection& section, const StageSizes& s) {
  const int64_t element = section.master_weights() ? 4 : s.held_bytes, once = element * s.total().held;
  if (section.name() == "SGD") return parallel::MomentumOf(section) > 0 ? once : 0;
  return section.name() == "Muon" ? 2 * once - element * s.blocks * s.block.matrices : 2 * once;
}

int64_t BytesOf(v1::DType dtype) { return dtype == v1::BFLOAT16 || dtype == v1::FLOAT16 ? 2 : 4; }

}  // namespace

UnitElements StageSizes::total() const {
  UnitElements sum{blocks * block.gathered, blocks * block.held};
  if (has_embedding) sum.gathered += embedding.gathered, sum.held += embedding.held;
  if (has_head) sum.gathered += head.gathered, sum.held += head.held;
  return sum;
}

std::vector<int64_t> DistinctStages(const ResolvedRecipe& resolved, int64_t unit) {
  std::set<std::tuple<bool, bool, Blocks, int64_t, int64_t>> seen;
  const bool is_listed = !resolved.recipe().parallelism().pipeline_parallel_schedule_csv().empty();
  std::vector<int64_t> stages;
  for (int64_t stage = 0; stage < resolved.mesh().pp; ++stage) {
    const int64_t rank = resolved.mesh().FirstRankOfStage(stage);
    const int64_t place = unit > 0 ? rank % unit : 0;
    const bool is_last = stage == resolved.placement().RankOfLast();
    if (seen.emplace(stage == 0, is_last, BlocksOf(resolved, stage), place, is_listed ? stage : 0).second)
      stages.push_back(stage);
  }
  return stages;
}

StageSizes SizesOfStage(const ResolvedRecipe& resolved, int64_t rank) {
  StageSizes s;
  const v1::Model& model = resolved.model();
  const mesh::Mesh& mesh = resolved.mesh();
  const int64_t stage = mesh.IndexOf(Dim::kPp, rank);
  s.has_embedding = stage == 0;
  s.has_head = stage == resolved.placement().RankOfLast();
  const Blocks blocks = BlocksOf(resolved, stage);
  s.blocks = blocks.all, s.recomputed_blocks = static_cast<double>(blocks.recomputed);
  if (KeepsSecondProducts(resolved)) s.recomputed_blocks *= SharePartlyComputedAgain(model);
  const UnitCounter unit(mesh, rank);
  s.embedding = Embedding(model, unit);
  s.block = model.architecture() == v1::GPT2 ? Gpt2Block(model, unit) : LlamaFamilyBlock(model, unit);
  s.head = Head(model, resolved.placement().RankOfLast() != 0, unit);
  const v1::Training& training = resolved.recipe().training();
  const v1::OptimizerSection& optimizer = resolved.recipe().optimizer();
  s.held_bytes = BytesOf(training.dtype());
  s.master_bytes = optimizer.master_weights() ? 4 * s.total().held : 0;
  s.optimizer_state_bytes = OptimizerStateBytes(optimizer, s);
  if (optimizer.name() == "Muon") {
    const bool first = mesh.IndexOf(Dim::kTp, rank) == 0 && mesh.IndexOf(Dim::kDpShardCp, rank) == 0;
    if (first && s.blocks > 0) s.orthogonalize_bytes = s.block.iteration_bytes;
    s.orthogonalize_flops = static_cast<double>(s.blocks * optimizer.muon_ns_steps()) * s.block.iteration_flops;
  }
  s.tokens = resolved.microbatch_size() * resolved.seq_len() / mesh.cp;
  const v1::Parallelism& parallelism = resolved.recipe().parallelism();
  s.local_tokens = parallel::SplitsTokens(parallelism) ? s.tokens / mesh.tp : s.tokens;
  s.input_tokens = parallelism.sequence_parallel_gather_in_backward() ? s.local_tokens : s.tokens;
  s.param_bytes = BytesOf(training.mixed_precision_param());
  s.reduce_bytes = BytesOf(training.mixed_precision_reduce());
  s.vocab_is_split = resolved.loss_parallel() && mesh.tp > 1;
  s.vocab = s.vocab_is_split ? model.vocab_size() / mesh.tp : model.vocab_size();
  s.microbatches = resolved.microbatches();
  s.chunks = resolved.placement().locals();
  SetFlight(resolved, stage, &s);
  s.saved_chunk_bytes = SavedChunk(resolved, s, blocks);
  // The norm's rstd, the (gathered) input of the output projection, and log-probabilities or probabilities in fp32.
  s.saved_head_bytes = 4 * s.local_tokens + s.param_bytes * s.input_tokens * model.hidden_size() + 4 * s.tokens * s.vocab;
  if (model.final_logit_softcapping() > 0) s.saved_head_bytes += s.param_bytes * s.tokens * s.vocab;  // their tanh
  return s;
}

}  // namespace legoai::sim
