#include "tests/integration/random_cases.h"

#include <cstdlib>
#include <initializer_list>
#include <random>
#include <string>

#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"

namespace legoai::integration {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  template <class T>
  T Of(std::initializer_list<T> choices) {
    return *(choices.begin() + engine_() % choices.size());
  }
  bool OneIn(uint64_t n) { return engine_() % n == 0; }

 private:
  std::mt19937_64 engine_;
};

v1::Model DrawModel(Draw& draw) {
  using Make = v1::Model (*)();
  v1::Model model = draw.Of<Make>(
      {TinyLlama, TinyLlama, TinyGpt2, TinyGpt2, TinyMistral, TinyQwen2, TinyQwen3, TinyGemma, TinyGemma2})();
  model.set_vocab_size(draw.Of<int64_t>({61, 64, 64, 64}));
  model.set_tie_word_embeddings(draw.OneIn(2));
  if (model.architecture() != v1::GPT2) {
    model.set_num_key_value_heads(draw.Of<int64_t>({1, 2, 4}));
    model.set_intermediate_size(draw.Of<int64_t>({54, 56, 56, 56}));
  } else if (draw.OneIn(2)) {
    model.set_embd_pdrop(0);
    model.set_attn_pdrop(0);
    model.set_resid_pdrop(0);
  }
  return model;
}

// Degrees whose product is at most 8.
void DrawDegrees(Draw& draw, Case* drawn) {
  auto* p = drawn->recipe.mutable_parallelism();
  int64_t left = 8;
  const auto degree = [&](std::initializer_list<int64_t> choices) {
    const int64_t chosen = draw.Of(choices);
    if (chosen > left) return int64_t{1};
    left /= chosen;
    drawn->world_size *= chosen;
    return chosen;
  };
  p->set_pipeline_parallel_degree(degree({1, 1, 2, 2, 2, 2, 3, 4}));
  p->set_tensor_parallel_degree(degree({1, 1, 2, 4}));
  p->set_context_parallel_degree(degree({1, 1, 1, 2, 4}));
  p->set_data_parallel_shard_degree(degree({1, 2, 3, 4}));
  p->set_data_parallel_replicate_degree(degree({1, 1, 2}));
  if (draw.OneIn(32)) ++drawn->world_size;
}

// A schedule, and mostly layers enough for it.
void DrawPipeline(Draw& draw, Case* drawn) {
  auto* p = drawn->recipe.mutable_parallelism();
  drawn->model.set_num_hidden_layers(p->pipeline_parallel_degree() * draw.Of<int64_t>({1, 2, 2, 3}));
  if (draw.OneIn(8)) drawn->model.set_num_hidden_layers(draw.Of<int64_t>({1, 3, 5}));
  if (p->pipeline_parallel_degree() == 1 && !draw.OneIn(8)) return;
  p->set_pipeline_parallel_schedule(draw.Of({v1::GPIPE, v1::ONE_F_ONE_B, v1::INTERLEAVED_1F1B, v1::LOOPED_BFS,
                                             v1::INTERLEAVED_ZERO_BUBBLE, v1::ZBV_ZERO_BUBBLE, v1::DUALPIPE_V}));
  p->set_pipeline_parallel_microbatch_size(draw.Of<int64_t>({1, 1, 1, 2, 3}));
  if (draw.OneIn(8)) p->set_pipeline_parallel_layers_per_stage(draw.Of<int64_t>({1, 2, 3}));
  if (draw.OneIn(8)) p->set_pipeline_parallel_first_stage_less_layers(1);
  if (draw.OneIn(8)) p->set_pipeline_parallel_last_stage_less_layers(1);
}

void DrawCheckpointing(Draw& draw, v1::ActivationCheckpoint* section) {
  section->set_mode(draw.Of({v1::AC_NONE, v1::AC_NONE, v1::AC_FULL, v1::AC_SELECTIVE}));
  if (section->mode() == v1::AC_SELECTIVE) section->set_selective_ac_option(draw.Of<const char*>({"1", "2", "3", "op", "op"}));
}

void DrawTraining(Draw& draw, v1::Recipe* recipe) {
  auto* training = recipe->mutable_training();
  const auto& p = recipe->parallelism();
  const int64_t ranks = p.data_parallel_replicate_degree() * p.data_parallel_shard_degree();
  training->set_local_batch_size(draw.Of<int64_t>({1, 2, 4, 6, 8}));
  training->set_global_batch_size(training->local_batch_size() * ranks * draw.Of<int64_t>({1, 1, 2}));
  if (draw.OneIn(32)) training->set_global_batch_size(training->global_batch_size() + 1);
  training->set_seq_len(draw.Of<int64_t>({8, 16, 24, 30}));
  training->set_max_norm(draw.Of<double>({0, 0.5}));
  training->set_seed(draw.Of<int64_t>({3, 17}));
  training->set_mixed_precision_param(draw.Of({v1::FLOAT32, v1::FLOAT32, v1::BFLOAT16}));
  if (draw.OneIn(64)) training->set_mixed_precision_reduce(v1::BFLOAT16);
}

// Mostly one that can be, where one can.
void DrawReshardSize(Draw& draw, v1::Parallelism* p) {
  const int64_t ranks = p->data_parallel_shard_degree() * p->context_parallel_degree();
  if (draw.OneIn(64)) return p->set_fsdp_reshard_after_forward_size(draw.Of<int64_t>({1, 2, 3, 4}));
  if (ranks < 4 || p->pipeline_parallel_degree() > 1 || draw.OneIn(8)) return;
  if (p->fsdp_reshard_after_forward() == v1::RESHARD_NEVER) p->set_fsdp_reshard_after_forward(v1::RESHARD_DEFAULT);
  p->set_zero_stage(3);
  p->set_fsdp_reshard_after_forward_size(ranks == 6 ? draw.Of<int64_t>({2, 3}) : ranks == 8 ? draw.Of<int64_t>({2, 4}) : 2);
}

}  // namespace

uint64_t FirstSeed() {
  const char* given = std::getenv("TEST_RANDOM_SEED");
  return given == nullptr ? 1 : std::strtoull(given, nullptr, 10);
}

Case DrawCase(uint64_t seed) {
  Draw draw(seed);
  Case drawn;
  drawn.name = "seed_" + std::to_string(seed);
  drawn.model = DrawModel(draw);
  drawn.recipe = parallel::DefaultRecipe();
  DrawDegrees(draw, &drawn);
  auto* parallelism = drawn.recipe.mutable_parallelism();
  DrawPipeline(draw, &drawn);
  parallelism->set_context_parallel_load_balancer(draw.Of({v1::BALANCE_HEAD_TAIL, v1::BALANCE_NONE}));
  parallelism->set_context_parallel_rotate_method(
      draw.Of({v1::ROTATE_BY_ALL_GATHER, v1::ROTATE_BY_RING, v1::ROTATE_BY_RING, v1::ROTATE_BY_ALL_TO_ALL}));
  parallelism->set_zero_stage(draw.Of<int64_t>({3, 3, 2, 1}));
  parallelism->set_fsdp_prefetch_depth(draw.Of<int64_t>({1, 1, 0, 3}));
  parallelism->set_disable_loss_parallel(draw.OneIn(2));
  parallelism->set_fsdp_reshard_after_forward(
      draw.Of({v1::RESHARD_DEFAULT, v1::RESHARD_DEFAULT, v1::RESHARD_DEFAULT, v1::RESHARD_ALWAYS, v1::RESHARD_NEVER}));
  DrawCheckpointing(draw, drawn.recipe.mutable_activation_checkpoint());
  DrawTraining(draw, &drawn.recipe);
  drawn.recipe.mutable_optimizer()->set_name(draw.Of<const char*>({"AdamW", "AdamW", "Adam", "SGD", "Muon"}));
  parallelism->set_sequence_parallel_gather_in_backward(draw.OneIn(2));
  DrawReshardSize(draw, parallelism);
  if (draw.OneIn(4)) drawn.recipe.mutable_training()->set_dtype(v1::BFLOAT16);
  if (draw.OneIn(8)) drawn.recipe.mutable_optimizer()->set_stochastic_rounding(true);
  if (draw.OneIn(8)) {
    drawn.recipe.mutable_training()->set_mixed_precision_param(v1::FLOAT16);
    drawn.recipe.mutable_training()->set_initial_loss_scale(256);
  }
  auto* training = drawn.recipe.mutable_training();
  if (training->dtype() == v1::BFLOAT16 && draw.OneIn(2)) {
    drawn.recipe.mutable_optimizer()->set_master_weights(true);
    if (training->mixed_precision_param() == v1::FLOAT16) training->set_dtype(v1::FLOAT16);
  }
  parallelism->set_sequence_parallel(parallelism->sequence_parallel_gather_in_backward() || draw.OneIn(2));
  return drawn;
}

std::vector<Case> DrawLegalCases(uint64_t seed, size_t count) {
  std::vector<Case> cases;
  while (cases.size() < count) {
    Case drawn = DrawCase(seed++);
    if (parallel::ResolvedRecipe::Create(drawn.recipe, drawn.model, drawn.world_size).ok()) cases.push_back(std::move(drawn));
  }
  return cases;
}

}  // namespace legoai::integration
