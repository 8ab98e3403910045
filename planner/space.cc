#include "planner/space.h"

#include <algorithm>
#include <string_view>

#include "core/model/model_facts.h"
#include "core/recipe/chunks.h"
#include "core/recipe/keep_policy.h"
#include "core/recipe/recipe.h"
#include "core/schedule/schedule.h"

namespace legoai::planner {
namespace {

constexpr int64_t kMostChunks = 8;  // of a rank
// Of a sequence on each rank of context parallel: below, the way of keys and values costs more than it saves in most models.
constexpr int64_t kFewestTokens = 8192;

// Ascending.
std::vector<int64_t> Divisors(int64_t number) {
  std::vector<int64_t> divisors, large;
  for (int64_t d = 1; d <= number / d; ++d) {
    if (number % d != 0) continue;
    divisors.push_back(d);
    if (d != number / d) large.push_back(number / d);
  }
  divisors.insert(divisors.end(), large.rbegin(), large.rend());
  return divisors;
}

struct Checkpointing {
  v1::ActivationCheckpointMode mode;
  bool keeps_operators;
};
constexpr Checkpointing kCheckpointings[] = {
    {v1::AC_NONE, false}, {v1::AC_SELECTIVE, true}, {v1::AC_SELECTIVE, false}, {v1::AC_FULL, false}};

struct Order {
  v1::PipelineSchedule schedule = v1::ONE_F_ONE_B;
  int64_t layers_per_chunk = 0;  // 0: not said
};

constexpr v1::PipelineSchedule kOfSeveralChunks[] = {v1::INTERLEAVED_1F1B, v1::LOOPED_BFS, v1::INTERLEAVED_ZERO_BUBBLE,
                                                     v1::ZBV_ZERO_BUBBLE, v1::DUALPIPE_V};

// Of a rank, under these schedules, where a recipe does not say how many layers a chunk has (core/recipe/chunks.h).
constexpr int64_t kChunksUnlessSaid = 2;

// The schedules of a pipeline of so many ranks. Chunks are given by their layers, so not every number of them is possible; where
// the base gives them, they are the same for all.
std::vector<Order> Orders(const v1::PlanRequest& request, int64_t ranks) {
  v1::Parallelism p = request.base().parallelism();
  const int64_t given = p.pipeline_parallel_layers_per_stage();
  const bool is_cut = given > 0 || p.module_fqns_per_model_part_size() > 0;
  std::vector<Order> orders = {{v1::ONE_F_ONE_B, given}};
  if (ranks == 1 || !p.pipeline_parallel_schedule_csv().empty()) return orders;  // a listed schedule takes the place of all
  orders.push_back({v1::GPIPE, given});
  if (is_cut) {
    for (const auto schedule : kOfSeveralChunks) orders.push_back({schedule, given});
    return orders;
  }
  p.set_pipeline_parallel_degree(ranks);
  const int64_t layers = request.model().num_hidden_layers();
  const int64_t even = layers + p.pipeline_parallel_first_stage_less_layers() + p.pipeline_parallel_last_stage_less_layers();
  for (int64_t locals = 1; locals <= kMostChunks && ranks <= even / locals; ++locals) {
    p.set_pipeline_parallel_layers_per_stage((even + ranks * locals - 1) / (ranks * locals));
    int64_t layers_per_chunk = p.pipeline_parallel_layers_per_stage();
    if (parallel::ChunkCount(p, layers) != ranks * locals) {
      if (locals != kChunksUnlessSaid) continue;
      layers_per_chunk = 0;
    }
    for (const auto schedule : kOfSeveralChunks) {
      if (parallel::PlacesChunks(schedule, ranks, ranks * locals)) orders.push_back({schedule, layers_per_chunk});
    }
  }
  return orders;
}

// Of those that come to the same the one that the base says.
std::vector<int64_t> ZeroStages(const v1::PlanRequest& request, const Candidate& candidate, bool accumulates) {
  const int64_t asked = request.base().parallelism().zero_stage();  // 0: not said
  if (candidate.shard * candidate.context == 1) return {asked > 0 ? asked : 3};
  if (candidate.pipeline > 1 || !accumulates) return {3, asked == 1 ? 1 : 2};
  return {3, 2, 1};
}

// Which groups parameters are sharded over after their forward.
std::vector<int64_t> ReshardSizes(const v1::PlanRequest& request, const Candidate& candidate) {
  const v1::Parallelism& base = request.base().parallelism();
  std::vector<int64_t> sizes = {0};
  const bool stay = candidate.pipeline > 1 || candidate.zero_stage < 3 || base.fsdp_reshard_after_forward() == v1::RESHARD_NEVER;
  if (stay) return sizes;
  const int64_t ranks = candidate.shard * candidate.context, of_node = request.cluster().devices_per_node() / candidate.tensor;
  for (const int64_t size : {of_node, base.fsdp_reshard_after_forward_size()}) {
    if (size > 1 && size < ranks && ranks % size == 0 && size != sizes.back()) sizes.push_back(size);
  }
  return sizes;
}

// Whether inputs of column-parallel products are gathered again. Checkpointing that computes whole blocks again leaves less to
// gain: one block's inputs, or those of every second.
std::vector<bool> GathersAgain(const v1::PlanRequest& request, const Candidate& candidate) {
  const bool asked = request.base().parallelism().sequence_parallel_gather_in_backward();
  const bool by_block = candidate.checkpointing != v1::AC_NONE && !candidate.keeps_operators;
  if (candidate.tensor == 1 || by_block || !parallel::SplitsTokens(request.base().parallelism())) return {asked};
  return {false, true};
}

// What is left to decide of one of tensor, shard, batch and checkpointing.
void AppendOrders(const v1::PlanRequest& request, const std::vector<Order>& orders, Candidate candidate,
                  std::vector<Candidate>* out) {
  for (const int64_t reshard_size : ReshardSizes(request, candidate)) {
    for (const bool gathers_again : GathersAgain(request, candidate)) {
      candidate.reshard_size = reshard_size;
      candidate.gathers_again = gathers_again;
      for (const Order& order : orders) {
        candidate.schedule = order.schedule;
        candidate.layers_per_chunk = order.layers_per_chunk;
        out->push_back(candidate);
      }
    }
  }
}

// float16 is what people ask for, never what the planner finds.
std::vector<v1::DType> Precisions(const v1::PlanRequest& request) {
  const v1::Recipe& recipe = request.has_resume_from() ? request.resume_from() : request.base();
  if (recipe.training().mixed_precision_param() == v1::FLOAT16) return {v1::FLOAT16};
  return {v1::BFLOAT16, v1::FLOAT32};
}

// Local batch and microbatch of each degree split; shares that do not come out even are left to the legality rules.
void AppendBatches(const v1::PlanRequest& request, const std::vector<Order>& orders, Candidate candidate,
                   std::vector<Candidate>* out) {
  const int64_t ranks = candidate.replicate * candidate.shard;
  const int64_t share = std::max<int64_t>(request.global_batch() / ranks, 1);
  for (int64_t size : Divisors(share)) {
    candidate.local_batch = candidate.pipeline > 1 ? share : size;
    candidate.microbatch = size;
    for (const Checkpointing& checkpointing : kCheckpointings) {
      for (const v1::DType precision : Precisions(request)) {
        candidate.checkpointing = checkpointing.mode;
        candidate.keeps_operators = checkpointing.keeps_operators;
        candidate.precision = precision;
        for (const int64_t zero_stage : ZeroStages(request, candidate, size < share)) {
          candidate.zero_stage = zero_stage;
          AppendOrders(request, orders, candidate, out);
        }
      }
    }
  }
}

// Of so many ranks. What the base says is tried, however short the sequence.
std::vector<int64_t> ContextDegrees(const v1::PlanRequest& request, int64_t ranks) {
  const int64_t asked = request.base().parallelism().context_parallel_degree();
  std::vector<int64_t> degrees = Divisors(ranks);
  std::erase_if(degrees, [&](int64_t degree) {
    return degree > 1 && degree != asked && request.seq_len() / degree < kFewestTokens;
  });
  return degrees;
}

// One of the two, not both: a ring passes on the bytes that gathers do, and no rank has more than two ranks' keys and values at
// a time. Attention of 8,192 tokens to those of another rank takes 4,096 FLOPs for each byte of a hop in bfloat16, and as many
// times that as heads share a key, which hides the hop inside a node, and most of it between nodes. What a constraint or the base
// names stays.
v1::ContextParallelRotation RotationOf(const v1::PlanRequest& request, int64_t context) {
  const v1::Parallelism& base = request.base().parallelism();
  if (base.has_context_parallel_rotate_method()) return base.context_parallel_rotate_method();
  const bool is_long = request.seq_len() / context >= kFewestTokens;
  return is_long && !model::MaterializesScores(request.model()) ? v1::ROTATE_BY_RING : v1::ROTATE_BY_ALL_GATHER;
}

// The splits of the ranks of one stage that tensor parallelism leaves.
void AppendSplits(const v1::PlanRequest& request, const std::vector<Order>& orders, int64_t ranks, Candidate candidate,
                  std::vector<Candidate>* out) {
  for (int64_t context : ContextDegrees(request, ranks)) {
    for (int64_t shard : Divisors(ranks / context)) {
      candidate.context = context;
      candidate.rotation = RotationOf(request, context);
      candidate.shard = shard;
      candidate.replicate = ranks / context / shard;
      AppendBatches(request, orders, candidate, out);
    }
  }
}

// The base recipe says every how many blocks, where it does.
void SetCheckpointing(const Candidate& candidate, v1::ActivationCheckpoint* section) {
  section->set_mode(candidate.checkpointing);
  if (candidate.checkpointing != v1::AC_SELECTIVE || parallel::KeepsOperators(*section) == candidate.keeps_operators) return;
  section->set_selective_ac_option(
      candidate.keeps_operators ? "op" : parallel::DefaultRecipe().activation_checkpoint().selective_ac_option());
}

}  // namespace

std::vector<Candidate> Enumerate(const v1::PlanRequest& request, int64_t world_size) {
  std::vector<Candidate> candidates;
  const auto listed = parallel::ListedSchedule(request.base().parallelism());
  for (int64_t pipeline : Divisors(world_size)) {
    if (listed != nullptr && pipeline > 1 && pipeline != listed->placement.ranks) continue;
    const std::vector<Order> orders = Orders(request, pipeline);
    for (int64_t tensor : Divisors(world_size / pipeline)) {
      Candidate candidate;
      candidate.pipeline = pipeline;
      candidate.tensor = tensor;
      AppendSplits(request, orders, world_size / pipeline / tensor, candidate, &candidates);
    }
  }
  return candidates;
}

v1::Recipe ToRecipe(const Candidate& candidate, const v1::PlanRequest& request) {
  v1::Recipe recipe = request.base();
  auto* training = recipe.mutable_training();
  training->set_global_batch_size(request.global_batch());
  training->set_seq_len(request.seq_len());
  training->set_local_batch_size(candidate.local_batch);
  training->set_mixed_precision_param(candidate.precision);
  auto* parallelism = recipe.mutable_parallelism();
  parallelism->set_data_parallel_replicate_degree(candidate.replicate);
  parallelism->set_data_parallel_shard_degree(candidate.shard);
  parallelism->set_zero_stage(candidate.zero_stage);
  parallelism->set_fsdp_reshard_after_forward_size(candidate.reshard_size);
  parallelism->set_sequence_parallel_gather_in_backward(candidate.gathers_again);
  parallelism->set_context_parallel_degree(candidate.context);
  if (candidate.context > 1) parallelism->set_context_parallel_rotate_method(candidate.rotation);
  parallelism->set_tensor_parallel_degree(candidate.tensor);
  parallelism->set_pipeline_parallel_degree(candidate.pipeline);
  parallelism->set_pipeline_parallel_microbatch_size(candidate.pipeline > 1 ? candidate.microbatch : 1);
  parallelism->set_pipeline_parallel_schedule(candidate.schedule);
  parallelism->clear_pipeline_parallel_layers_per_stage();
  if (candidate.layers_per_chunk > 0) parallelism->set_pipeline_parallel_layers_per_stage(candidate.layers_per_chunk);
  SetCheckpointing(candidate, recipe.mutable_activation_checkpoint());
  // Ranks to trace that this layout lacks forbid nothing.
  const int64_t world = candidate.replicate * candidate.shard * candidate.context * candidate.tensor * candidate.pipeline;
  auto* traced = recipe.mutable_metrics()->mutable_trace_ranks();
  traced->erase(std::remove_if(traced->begin(), traced->end(), [world](int64_t rank) { return rank >= world; }), traced->end());
  return recipe;
}

}  // namespace legoai::planner
