#include "tests/integration/cases.h"

#include <string>
#include <tuple>
#include <vector>

#include "core/model/catalog.h"
#include "core/recipe/chunks.h"
#include "core/recipe/recipe.h"
#include "core/schedule/schedule_csv.h"

namespace legoai::integration {
namespace {

constexpr int64_t kGlobalBatch = 8, kSequence = 16;
constexpr double kMaxNorm = 0.5;  // below the gradients' norms, so that they are clipped

struct Layout {
  const char* name;
  int64_t replicate = 1, shard = 1, cp = 1, tp = 1, pp = 1;
  v1::PipelineSchedule schedule = v1::ONE_F_ONE_B;
  bool loss_parallel = true;
  int64_t layers_per_stage = 0, first_less = 0, last_less = 0;  // 0: not said
  int64_t microbatch = 1;
  v1::ContextParallelBalance balance = v1::BALANCE_HEAD_TAIL;
  v1::ContextParallelRotation rotation = v1::ROTATE_BY_ALL_GATHER;
  int64_t world() const { return replicate * shard * cp * tp * pp; }
};

Case Make(const Layout& layout, const v1::Model& model) {
  Case result;
  result.name = layout.name;
  result.model = model;
  result.world_size = layout.world();
  v1::Recipe& recipe = result.recipe;
  recipe = parallel::DefaultRecipe();
  auto* training = recipe.mutable_training();
  training->set_global_batch_size(kGlobalBatch);
  training->set_local_batch_size(kGlobalBatch / (layout.replicate * layout.shard));
  training->set_seq_len(kSequence);
  training->set_max_norm(kMaxNorm);
  training->set_mixed_precision_param(v1::FLOAT32);
  training->set_seed(17);
  auto* parallelism = recipe.mutable_parallelism();
  parallelism->set_data_parallel_replicate_degree(layout.replicate);
  parallelism->set_data_parallel_shard_degree(layout.shard);
  parallelism->set_context_parallel_degree(layout.cp);
  parallelism->set_context_parallel_load_balancer(layout.balance);
  parallelism->set_context_parallel_rotate_method(layout.rotation);
  parallelism->set_tensor_parallel_degree(layout.tp);
  parallelism->set_pipeline_parallel_degree(layout.pp);
  parallelism->set_pipeline_parallel_schedule(layout.schedule);
  parallelism->set_pipeline_parallel_microbatch_size(layout.microbatch);
  if (layout.layers_per_stage > 0) parallelism->set_pipeline_parallel_layers_per_stage(layout.layers_per_stage);
  parallelism->set_pipeline_parallel_first_stage_less_layers(layout.first_less);
  parallelism->set_pipeline_parallel_last_stage_less_layers(layout.last_less);
  parallelism->set_disable_loss_parallel(!layout.loss_parallel);
  return result;
}

Case Checkpointed(Case test_case) {
  test_case.name += "_ac";
  test_case.recipe.mutable_activation_checkpoint()->set_mode(v1::AC_FULL);
  return test_case;
}

Case EverySecondCheckpointed(Case test_case) {
  test_case.name += "_ac2";
  test_case.recipe.mutable_activation_checkpoint()->set_mode(v1::AC_SELECTIVE);
  return test_case;
}

Case KeepingOperators(Case test_case) {
  test_case.name += "_ac_op";
  test_case.recipe.mutable_activation_checkpoint()->set_mode(v1::AC_SELECTIVE);
  test_case.recipe.mutable_activation_checkpoint()->set_selective_ac_option("op");
  return test_case;
}

Case Accumulated(Case test_case) {
  test_case.name += "_accumulate2";
  auto* training = test_case.recipe.mutable_training();
  training->set_local_batch_size(training->local_batch_size() / 2);
  return test_case;
}

Case Bf16(Case test_case) {
  test_case.name += "_bf16";
  test_case.recipe.mutable_training()->set_mixed_precision_param(v1::BFLOAT16);
  return test_case;
}

// Parts of the model that end before the layers of `cuts`, and the last one.
void ListParts(const std::vector<int64_t>& cuts, Case* test_case) {
  auto* parallelism = test_case->recipe.mutable_parallelism();
  v1::ModelPart* part = parallelism->add_module_fqns_per_model_part();
  for (const std::string& name : parallel::ModuleNames(test_case->model.num_hidden_layers())) {
    for (const int64_t cut : cuts) {
      if (name == "layers." + std::to_string(cut)) part = parallelism->add_module_fqns_per_model_part();
    }
    part->add_modules(name);
  }
}

// Six layers: four chunks of one or two layers, or six.
void AddPipelinesOfSeveralChunks(std::vector<Case>* cases) {
  const v1::PipelineSchedule interleaved = v1::INTERLEAVED_1F1B, looped = v1::LOOPED_BFS;
  const std::vector<Layout> layouts = {
      {.name = "pp2_interleaved", .pp = 2, .schedule = interleaved},
      {.name = "pp2_looped", .pp = 2, .schedule = looped},
      {.name = "fsdp2_pp2_interleaved", .shard = 2, .pp = 2, .schedule = interleaved},
      {.name = "tp2_pp2_interleaved", .tp = 2, .pp = 2, .schedule = interleaved},
      {.name = "fsdp2_tp2_pp2_interleaved", .shard = 2, .tp = 2, .pp = 2, .schedule = interleaved},
      {.name = "fsdp2_tp2_pp2_looped", .shard = 2, .tp = 2, .pp = 2, .schedule = looped},
  };
  for (const Layout& layout : layouts) {
    cases->push_back(Make(layout, DeepLlama()));
    cases->push_back(Checkpointed(cases->back()));
  }
  for (size_t index : {2, 4}) cases->push_back(Bf16(Make(layouts[index], DeepLlama())));
  const std::vector<Layout> others = {
      {.name = "pp2_interleaved_3_chunks", .pp = 2, .schedule = interleaved, .layers_per_stage = 1},
      {.name = "pp3_interleaved_uneven_rounds", .pp = 3, .schedule = interleaved},
      {.name = "pp3_interleaved_fewer_microbatches_than_ranks", .pp = 3, .schedule = interleaved, .microbatch = 4},
      {.name = "pp2_interleaved_shorter_ends", .pp = 2, .schedule = interleaved, .first_less = 1, .last_less = 1},
      {.name = "pp4_1f1b_shorter_ends", .pp = 4, .first_less = 1, .last_less = 1},
      {.name = "hsdp2x2_pp2_interleaved", .replicate = 2, .shard = 2, .pp = 2, .schedule = interleaved},
      {.name = "ddp2_pp2_looped", .replicate = 2, .pp = 2, .schedule = looped},
      {.name = "pp3_looped", .pp = 3, .schedule = looped},
  };
  for (const Layout& layout : others) cases->push_back(Make(layout, DeepLlama()));
  cases->push_back(Accumulated(Make({.name = "fsdp2_pp2_looped", .shard = 2, .pp = 2, .schedule = looped}, DeepLlama())));
  cases->push_back(Accumulated(Make(layouts[2], DeepLlama())));
  for (const auto& [name, schedule, cuts] :
       {std::tuple<const char*, v1::PipelineSchedule, std::vector<int64_t>>{"pp2_parts", v1::ONE_F_ONE_B, {4}},
        {"pp2_looped_parts", looped, {1, 4, 5}}}) {
    cases->push_back(Make({.name = name, .pp = 2, .schedule = schedule}, DeepLlama()));
    ListParts(cuts, &cases->back());
  }
  const v1::PipelineSchedule zero = v1::INTERLEAVED_ZERO_BUBBLE;
  const std::vector<Layout> zero_bubbles = {
      {.name = "pp2_zb_h1", .pp = 2, .schedule = zero, .layers_per_stage = 3},
      {.name = "pp3_zb_h1", .pp = 3, .schedule = zero, .layers_per_stage = 2},
      {.name = "fsdp2_pp2_zb_h1", .shard = 2, .pp = 2, .schedule = zero, .layers_per_stage = 3},
      {.name = "fsdp2_tp2_pp2_interleaved_zb", .shard = 2, .tp = 2, .pp = 2, .schedule = zero},
      {.name = "ddp2_pp2_interleaved_zb", .replicate = 2, .pp = 2, .schedule = zero},
  };
  for (const Layout& layout : zero_bubbles) cases->push_back(Make(layout, DeepLlama()));
  for (size_t index : {1, 3}) cases->push_back(Checkpointed(Make(zero_bubbles[index], DeepLlama())));
  for (size_t index : {2, 3}) cases->push_back(Bf16(Make(zero_bubbles[index], DeepLlama())));
  cases->push_back(Accumulated(Make(zero_bubbles[2], DeepLlama())));
  v1::Model gpt2 = UntiedGpt2();
  gpt2.set_name("tiny-gpt2-untied-deep");
  gpt2.set_num_hidden_layers(6);
  cases->push_back(Make({.name = "gpt2_untied_pp2_zb_h1", .pp = 2, .schedule = zero, .layers_per_stage = 3}, gpt2));
  cases->push_back(Make({.name = "gpt2_untied_pp2_interleaved", .pp = 2, .schedule = interleaved}, gpt2));
}

Case WithAdam(Case test_case) {
  test_case.name += "_adam";
  test_case.recipe.mutable_optimizer()->set_name("Adam");
  return test_case;
}

Case WithZeroStage(int64_t stage, Case test_case) {
  test_case.name += "_zero" + std::to_string(stage);
  test_case.recipe.mutable_parallelism()->set_zero_stage(stage);
  return test_case;
}

Case Prefetching(int64_t depth, Case test_case) {
  test_case.name += "_prefetch" + std::to_string(depth);
  test_case.recipe.mutable_parallelism()->set_fsdp_prefetch_depth(depth);
  return test_case;
}

// Parameters stay whole from step to step.
void AddZeroStages(std::vector<Case>* cases) {
  const Layout fsdp2{.name = "fsdp2", .shard = 2}, hsdp{.name = "hsdp2x2", .replicate = 2, .shard = 2};
  for (const int64_t stage : {1, 2}) {
    cases->push_back(WithZeroStage(stage, Make(fsdp2, TinyLlama())));
    cases->push_back(WithZeroStage(stage, Accumulated(Make(fsdp2, TinyLlama()))));
  }
  cases->push_back(WithZeroStage(1, Checkpointed(Make(hsdp, TinyLlama()))));
  cases->push_back(WithZeroStage(2, Bf16(Make(hsdp, TinyLlama()))));
  cases->push_back(WithZeroStage(1, Accumulated(Bf16(Make(fsdp2, TinyLlama())))));
  cases->push_back(WithZeroStage(2, Make({.name = "gpt2_fsdp4", .shard = 4}, TinyGpt2())));
  cases->push_back(WithZeroStage(2, Make({.name = "fsdp2_tp2_pp2_interleaved",
                                          .shard = 2,
                                          .tp = 2,
                                          .pp = 2,
                                          .schedule = v1::INTERLEAVED_1F1B},
                                         DeepLlama())));
  for (const int64_t depth : {0, 2}) cases->push_back(Prefetching(depth, Make({.name = "fsdp4", .shard = 4}, DeepLlama())));
  cases->push_back(Prefetching(3, WithZeroStage(2, Make(fsdp2, DeepLlama()))));
}

Case WithSgd(Case test_case, double momentum, bool nesterov) {
  test_case.name += momentum > 0 ? "_sgd_momentum" : "_sgd";
  auto* optimizer = test_case.recipe.mutable_optimizer();
  optimizer->set_name("SGD");
  optimizer->set_lr(0.08);  // far enough for the loss to tell
  if (momentum > 0) optimizer->set_momentum(momentum);
  if (nesterov) optimizer->set_nesterov(true);
  return test_case;
}

Case WithMuon(Case test_case) {
  test_case.name += "_muon";
  test_case.recipe.mutable_optimizer()->set_name("Muon");
  test_case.recipe.mutable_optimizer()->set_muon_lr(8e-3);
  return test_case;
}

// Muon's matrices whole on one rank of those that hold parts: three blocks have 3, 6 or 9 of a shape.
void AddOtherOptimizers(std::vector<Case>* cases) {
  cases->push_back(WithAdam(Make({.name = "fsdp2", .shard = 2}, TinyLlama())));
  cases->push_back(WithAdam(Make({.name = "gpt2_tp2_pp2", .tp = 2, .pp = 2}, TinyGpt2())));
  cases->push_back(WithSgd(Make({.name = "ddp2", .replicate = 2}, TinyLlama()), 0, false));
  cases->push_back(WithSgd(Make({.name = "fsdp2_tp2", .shard = 2, .tp = 2}, TinyLlama()), 0.9, false));
  cases->push_back(WithSgd(Make({.name = "gpt2_fsdp2_pp2", .shard = 2, .pp = 2}, TinyGpt2()), 0.9, true));
  const std::vector<Layout> layouts = {
      {.name = "ddp2", .replicate = 2}, {.name = "fsdp2", .shard = 2},
      {.name = "tp2", .tp = 2},         {.name = "fsdp2_tp2", .shard = 2, .tp = 2},
      {.name = "pp2", .pp = 2},         {.name = "fsdp2_tp2_pp2", .shard = 2, .tp = 2, .pp = 2},
  };
  for (const Layout& layout : layouts) cases->push_back(WithMuon(Make(layout, TinyLlama())));
  cases->push_back(WithMuon(Make({.name = "tp4_kv2", .tp = 4}, SharedHeadsLlama())));
  cases->push_back(WithMuon(Make({.name = "hsdp2x2", .replicate = 2, .shard = 2}, TinyLlama())));
  cases->push_back(WithMuon(Make({.name = "gpt2_pp2", .pp = 2}, TinyGpt2())));
  cases->back().recipe.mutable_optimizer()->set_muon_adjust_lr_fn("match_rms_adamw");
  cases->back().recipe.mutable_optimizer()->clear_muon_lr();
}

Case HeldInBf16(Case test_case, bool stochastic = false) {
  test_case.name += stochastic ? "_bf16_held_stochastic" : "_bf16_held";
  test_case.recipe.mutable_training()->set_dtype(v1::BFLOAT16);
  test_case.recipe.mutable_optimizer()->set_stochastic_rounding(stochastic);
  return test_case;
}

// Parameters and the optimizer's state in bf16; computed with in bf16, or in fp32.
void AddHeldInBf16(std::vector<Case>* cases) {
  const Layout fsdp2{.name = "fsdp2", .shard = 2}, fsdp2_tp2{.name = "fsdp2_tp2", .shard = 2, .tp = 2};
  cases->push_back(HeldInBf16(Bf16(Accumulated(Make({.name = "ddp2", .replicate = 2}, TinyLlama())))));
  cases->push_back(HeldInBf16(Bf16(Make(fsdp2, TinyLlama()))));
  cases->push_back(HeldInBf16(Make(fsdp2, TinyLlama()), true));
  cases->push_back(HeldInBf16(Checkpointed(Bf16(Make(fsdp2_tp2, TinyLlama()))), true));
  cases->push_back(HeldInBf16(Bf16(Make({.name = "gpt2_tp2_pp2", .tp = 2, .pp = 2}, TinyGpt2())), true));
  cases->push_back(HeldInBf16(WithZeroStage(1, Bf16(Make({.name = "hsdp2x2", .replicate = 2, .shard = 2}, TinyLlama()))), true));
  cases->push_back(HeldInBf16(WithZeroStage(2, Accumulated(Bf16(Make(fsdp2, TinyLlama()))))));
  cases->push_back(HeldInBf16(Bf16(Make({.name = "cp2", .cp = 2}, TinyLlama())), true));
  cases->push_back(HeldInBf16(WithAdam(Make({.name = "pp2", .pp = 2}, TinyLlama()))));
  cases->push_back(HeldInBf16(WithSgd(Bf16(Make({.name = "ddp2", .replicate = 2}, TinyLlama())), 0.9, true), true));
  cases->push_back(HeldInBf16(WithMuon(Make({.name = "ddp2", .replicate = 2}, TinyLlama()))));
  cases->push_back(HeldInBf16(WithMuon(Bf16(Make(fsdp2_tp2, TinyLlama()))), true));
}

// In 16 bits beside masters in fp32.
Case WithMasters(Case test_case) {
  test_case.name += "_masters";
  const bool float16 = test_case.recipe.training().mixed_precision_param() == v1::FLOAT16;
  test_case.recipe.mutable_training()->set_dtype(float16 ? v1::FLOAT16 : v1::BFLOAT16);
  test_case.recipe.mutable_optimizer()->set_master_weights(true);
  return test_case;
}

// With a scale that doubles after every fifth step.
Case InFloat16(Case test_case) {
  test_case.name += "_float16";
  auto* training = test_case.recipe.mutable_training();
  training->set_mixed_precision_param(v1::FLOAT16);
  training->set_initial_loss_scale(64);
  training->set_loss_scale_growth_interval(5);
  return test_case;
}

void AddFloat16(std::vector<Case>* cases) {
  cases->push_back(InFloat16(Make({.name = "ddp2", .replicate = 2}, TinyLlama())));
  cases->push_back(InFloat16(Accumulated(Make({.name = "fsdp2", .shard = 2}, TinyLlama()))));
  cases->push_back(InFloat16(Checkpointed(Make({.name = "fsdp2_tp2", .shard = 2, .tp = 2}, TinyLlama()))));
  cases->push_back(InFloat16(Make({.name = "gpt2_tp2_pp2", .tp = 2, .pp = 2}, TinyGpt2())));
  cases->push_back(InFloat16(WithMuon(Make({.name = "fsdp2", .shard = 2}, TinyLlama()))));
  cases->push_back(InFloat16(WithSgd(Make({.name = "cp2", .cp = 2}, TinyLlama()), 0.9, false)));
  cases->push_back(InFloat16(Make({.name = "mistral_fsdp2", .shard = 2}, TinyMistral())));
  cases->push_back(InFloat16(WithZeroStage(1, Make({.name = "gemma_fsdp2", .shard = 2}, TinyGemma()))));
}

void AddMasterWeights(std::vector<Case>* cases) {
  const Layout fsdp2{.name = "fsdp2", .shard = 2}, fsdp2_tp2{.name = "fsdp2_tp2", .shard = 2, .tp = 2};
  const Layout ddp2{.name = "ddp2", .replicate = 2}, hsdp{.name = "hsdp2x2", .replicate = 2, .shard = 2};
  cases->push_back(WithMasters(Bf16(Accumulated(Make(ddp2, TinyLlama())))));
  cases->push_back(WithMasters(Bf16(Make(fsdp2, TinyLlama()))));
  cases->push_back(WithMasters(Make(fsdp2, TinyLlama())));
  cases->push_back(WithMasters(Checkpointed(Bf16(Make(fsdp2_tp2, TinyLlama())))));
  cases->push_back(WithMasters(WithZeroStage(1, Bf16(Make(hsdp, TinyLlama())))));
  cases->push_back(WithMasters(WithZeroStage(2, Accumulated(Bf16(Make(fsdp2, TinyLlama()))))));
  cases->push_back(WithMasters(WithAdam(Bf16(Make({.name = "gpt2_tp2_pp2", .tp = 2, .pp = 2}, TinyGpt2())))));
  cases->push_back(WithMasters(Bf16(Make({.name = "cp2_ring", .cp = 2, .rotation = v1::ROTATE_BY_RING}, TinyLlama()))));
  cases->push_back(WithMasters(WithSgd(Bf16(Make(ddp2, TinyLlama())), 0.9, true)));
  cases->push_back(WithMasters(WithMuon(Bf16(Make(fsdp2_tp2, TinyLlama())))));
  cases->push_back(WithMasters(InFloat16(Make(hsdp, TinyLlama()))));
  cases->push_back(WithMasters(InFloat16(WithMuon(Make({.name = "pp2", .pp = 2}, TinyLlama())))));
}

// Of products and attention the outputs are kept.
void AddKeptOperators(std::vector<Case>* cases) {
  const std::vector<Layout> layouts = {
      {.name = "ddp2", .replicate = 2},
      {.name = "fsdp2", .shard = 2},
      {.name = "tp2_pp2", .tp = 2, .pp = 2},
      {.name = "fsdp2_tp2_pp2", .shard = 2, .tp = 2, .pp = 2},
  };
  for (const Layout& layout : layouts) cases->push_back(KeepingOperators(Make(layout, TinyLlama())));
  for (size_t index : {1, 3}) cases->push_back(KeepingOperators(Bf16(Make(layouts[index], TinyLlama()))));
  cases->push_back(KeepingOperators(Accumulated(Make(layouts[1], TinyLlama()))));
  Case policy = KeepingOperators(Make({.name = "fsdp2_policy", .shard = 2}, TinyLlama()));
  policy.recipe.mutable_activation_checkpoint()->set_selective_ac_option("policy");
  policy.recipe.mutable_activation_checkpoint()->set_selective_ac_policy("mlp.* aten::mm all; self_attn lego::attention 1");
  cases->push_back(policy);
  // By blocks; under a pipeline the stages keep different ones.
  for (const Layout& layout : {Layout{.name = "fsdp2_blocks", .shard = 2}, Layout{.name = "pp2_blocks", .pp = 2}}) {
    Case blocks = KeepingOperators(Make(layout, TinyLlama()));
    blocks.recipe.mutable_activation_checkpoint()->set_selective_ac_option("policy");
    blocks.recipe.mutable_activation_checkpoint()->set_selective_ac_policy(
        "0:self_attn lego::attention all; 1:mlp.* aten::mm all; 1:* aten::add 2; 2:* * all");
    cases->push_back(blocks);
  }
  Case forced = KeepingOperators(Make({.name = "tp2_forced", .tp = 2}, TinyLlama()));
  forced.recipe.mutable_activation_checkpoint()->add_per_op_sac_force_recompute_mm_shapes_by_fqns("q_proj");
  cases->push_back(forced);
  cases->push_back(KeepingOperators(Make({.name = "gpt2_ddp2", .replicate = 2}, TinyGpt2())));
  cases->push_back(KeepingOperators(Make({.name = "gpt2_fsdp2_tp4", .shard = 2, .tp = 4}, TinyGpt2())));
  cases->push_back(KeepingOperators(Make({.name = "tp4_kv2", .tp = 4}, SharedHeadsLlama())));
  cases->push_back(KeepingOperators(Make({.name = "pp2_interleaved", .pp = 2, .schedule = v1::INTERLEAVED_1F1B}, DeepLlama())));
  cases->push_back(KeepingOperators(
      Make({.name = "fsdp2_pp2_zb_h1", .shard = 2, .pp = 2, .schedule = v1::INTERLEAVED_ZERO_BUBBLE, .layers_per_stage = 3},
           DeepLlama())));
}

// Two key-value heads on four ranks, or one on all.
void AddSharedKeyValueHeads(std::vector<Case>* cases) {
  v1::Model model = SharedHeadsLlama();
  cases->push_back(Make({.name = "tp4_kv2", .tp = 4}, model));
  cases->push_back(Checkpointed(cases->back()));
  cases->push_back(Make({.name = "fsdp2_tp4_kv2", .shard = 2, .tp = 4}, model));
  model.set_num_key_value_heads(1);
  cases->push_back(Make({.name = "fsdp2_tp4_kv1", .shard = 2, .tp = 4}, model));
}

// Each rank has parts of every sequence of 16 tokens.
void AddContextParallel(std::vector<Case>* cases) {
  const std::vector<Layout> layouts = {
      {.name = "cp2", .cp = 2},
      {.name = "cp4", .cp = 4},
      {.name = "cp4_unbalanced", .cp = 4, .balance = v1::BALANCE_NONE},
      {.name = "fsdp2_cp2", .shard = 2, .cp = 2},
      {.name = "ddp2_cp2", .replicate = 2, .cp = 2},
      {.name = "hsdp2x2_cp2", .replicate = 2, .shard = 2, .cp = 2},
      {.name = "cp2_tp2", .cp = 2, .tp = 2},
      {.name = "cp4_tp2_unbalanced", .cp = 4, .tp = 2, .balance = v1::BALANCE_NONE},
      {.name = "fsdp2_cp2_tp2", .shard = 2, .cp = 2, .tp = 2},
      {.name = "cp2_pp2", .cp = 2, .pp = 2},
      {.name = "cp2_tp2_pp2", .cp = 2, .tp = 2, .pp = 2},
  };
  for (const Layout& layout : layouts) cases->push_back(Make(layout, TinyLlama()));
  for (size_t index : {0, 8}) cases->push_back(Checkpointed(Make(layouts[index], TinyLlama())));
  for (size_t index : {1, 6, 9}) cases->push_back(KeepingOperators(Make(layouts[index], TinyLlama())));
  cases->push_back(EverySecondCheckpointed(Make(layouts[2], TinyLlama())));
  cases->push_back(Bf16(Make(layouts[8], TinyLlama())));
  cases->push_back(KeepingOperators(Bf16(Make(layouts[3], TinyLlama()))));
  cases->push_back(Accumulated(Make(layouts[3], TinyLlama())));
  cases->push_back(Make({.name = "cp2_tp4_kv2", .cp = 2, .tp = 4}, SharedHeadsLlama()));
  cases->push_back(Make({.name = "fsdp2_cp2_pp2_interleaved", .shard = 2, .cp = 2, .pp = 2, .schedule = v1::INTERLEAVED_1F1B},
                        DeepLlama()));
  cases->push_back(Make({.name = "cp2_pp2_interleaved_zb", .cp = 2, .pp = 2, .schedule = v1::INTERLEAVED_ZERO_BUBBLE},
                        DeepLlama()));
  for (size_t index : {0, 2, 8, 9}) {
    Case test_case = Make(layouts[index], TinyGpt2());
    test_case.name = "gpt2_" + test_case.name;
    cases->push_back(test_case);
    if (index == 0) cases->push_back(Checkpointed(test_case)), cases->push_back(KeepingOperators(test_case));
  }
  v1::Model sure = TinyGpt2();
  sure.set_name("tiny-gpt2-sure");
  sure.set_attn_pdrop(0);
  cases->push_back(Make({.name = "gpt2_cp4_of_kept_probabilities", .cp = 4}, sure));
}

// Keys and values go round. Of three ranks and no balance each has 4 of 12 tokens.
void AddRings(std::vector<Case>* cases) {
  const auto ring = v1::ROTATE_BY_RING;
  const auto none = v1::BALANCE_NONE;
  const std::vector<Layout> layouts = {
      {.name = "cp2_ring", .cp = 2, .rotation = ring},
      {.name = "cp4_ring", .cp = 4, .rotation = ring},
      {.name = "cp4_ring_unbalanced", .cp = 4, .balance = none, .rotation = ring},
      {.name = "fsdp2_cp2_ring", .shard = 2, .cp = 2, .rotation = ring},
      {.name = "hsdp2x2_cp2_ring", .replicate = 2, .shard = 2, .cp = 2, .rotation = ring},
      {.name = "fsdp2_cp2_tp2_alltoall", .shard = 2, .cp = 2, .tp = 2, .rotation = v1::ROTATE_BY_ALL_TO_ALL},
      {.name = "cp2_pp2_ring_unbalanced", .cp = 2, .pp = 2, .balance = none, .rotation = ring},
      {.name = "cp2_tp2_pp2_ring", .cp = 2, .tp = 2, .pp = 2, .rotation = ring},
  };
  for (const Layout& layout : layouts) cases->push_back(Make(layout, TinyLlama()));
  for (size_t index : {1, 5}) cases->push_back(Checkpointed(Make(layouts[index], TinyLlama())));
  for (size_t index : {1, 2, 7}) cases->push_back(KeepingOperators(Make(layouts[index], TinyLlama())));
  cases->push_back(Bf16(Make(layouts[1], TinyLlama())));
  cases->push_back(EverySecondCheckpointed(Bf16(Make(layouts[3], TinyLlama()))));
  cases->push_back(Accumulated(Make(layouts[3], TinyLlama())));
  cases->push_back(Make({.name = "cp2_tp4_kv2_ring", .cp = 2, .tp = 4, .rotation = ring}, SharedHeadsLlama()));
  cases->push_back(Make({.name = "fsdp2_cp2_pp2_interleaved_ring", .shard = 2, .cp = 2, .pp = 2,
                         .schedule = v1::INTERLEAVED_1F1B, .rotation = ring},
                        DeepLlama()));
  cases->push_back(Make({.name = "cp3_ring", .cp = 3, .balance = none, .rotation = ring}, TinyLlama()));
  cases->back().recipe.mutable_training()->set_seq_len(12);
  v1::Model sure = TinyGpt2();
  sure.set_name("tiny-gpt2-sure");
  sure.set_attn_pdrop(0);
  cases->push_back(Make({.name = "gpt2_cp4_ring_of_kept_probabilities", .cp = 4, .rotation = ring}, sure));
}

Case GatheringAgain(Case test_case) {
  test_case.name += "_again";
  test_case.recipe.mutable_parallelism()->set_sequence_parallel_gather_in_backward(true);
  return test_case;
}

// Inputs of column-parallel products, gathered once more in backward: in every kind of checkpointing and of backward.
void AddInputsGatheredAgain(std::vector<Case>* cases) {
  const v1::PipelineSchedule zero_bubble = v1::INTERLEAVED_ZERO_BUBBLE;
  const Layout tp2{.name = "tp2", .tp = 2}, fsdp2_tp2{.name = "fsdp2_tp2", .shard = 2, .tp = 2};
  for (const Layout& layout : {tp2, fsdp2_tp2}) {
    cases->push_back(GatheringAgain(Make(layout, TinyLlama())));
    cases->push_back(GatheringAgain(Checkpointed(Make(layout, TinyLlama()))));
    cases->push_back(GatheringAgain(KeepingOperators(Bf16(Make(layout, TinyLlama())))));
  }
  Case policy = GatheringAgain(KeepingOperators(Make({.name = "tp2_policy", .tp = 2}, TinyLlama())));
  policy.recipe.mutable_activation_checkpoint()->set_selective_ac_option("policy");
  policy.recipe.mutable_activation_checkpoint()->set_selective_ac_policy("mlp.* aten::mm all; self_attn lego::attention 1");
  cases->push_back(policy);
  cases->push_back(GatheringAgain(EverySecondCheckpointed(Accumulated(Make(tp2, TinyLlama())))));
  cases->push_back(GatheringAgain(Make({.name = "tp2_gathered_loss", .tp = 2, .loss_parallel = false}, TinyLlama())));
  cases->push_back(GatheringAgain(Make({.name = "gpt2_fsdp2_tp4", .shard = 2, .tp = 4}, TinyGpt2())));
  cases->push_back(GatheringAgain(Make({.name = "cp2_tp2", .cp = 2, .tp = 2}, TinyLlama())));
  cases->push_back(GatheringAgain(Make({.name = "tp2_pp2_1f1b", .tp = 2, .pp = 2, .microbatch = 2}, TinyLlama())));
  cases->push_back(GatheringAgain(KeepingOperators(
      Make({.name = "fsdp2_tp2_pp2_zb_h1", .shard = 2, .tp = 2, .pp = 2, .schedule = zero_bubble, .layers_per_stage = 3},
           DeepLlama()))));
  cases->push_back(GatheringAgain(
      Bf16(Make({.name = "tp2_pp2_zbv", .tp = 2, .pp = 2, .schedule = v1::ZBV_ZERO_BUBBLE, .microbatch = 2}, DeepLlama()))));
  cases->push_back(GatheringAgain(
      Checkpointed(Make({.name = "gpt2_tp2_pp2_dualpipev", .tp = 2, .pp = 2, .schedule = v1::DUALPIPE_V}, DeepGpt2()))));
}

Case WithWholeTokens(Case test_case) {
  test_case.name += "_whole";
  test_case.recipe.mutable_parallelism()->set_sequence_parallel(false);
  return test_case;
}

// Megatron's: heads share keys and values, and attention and feed-forward lie side by side.
v1::Model TinyGptOfSides() {
  v1::Model model = TinyGpt2();
  model.set_name("tiny-gpt-sides");
  model.set_num_key_value_heads(model.num_attention_heads() / 2);
  model.set_parallel_block(true);
  model.set_attn_pdrop(0);
  model.set_resid_pdrop(0);
  return model;
}

// Tensor parallel without sequence parallel, and regions that end in one sum, both ways.
void AddWholeTokens(std::vector<Case>* cases) {
  const Layout tp2{.name = "tp2", .tp = 2}, fsdp2_tp2{.name = "fsdp2_tp2", .shard = 2, .tp = 2};
  cases->push_back(WithWholeTokens(Make(tp2, TinyLlama())));
  cases->push_back(WithWholeTokens(Checkpointed(Make(fsdp2_tp2, TinyLlama()))));
  cases->push_back(WithWholeTokens(KeepingOperators(Bf16(Make(fsdp2_tp2, TinyLlama())))));
  cases->push_back(WithWholeTokens(Make({.name = "tp2_gathered_loss", .tp = 2, .loss_parallel = false}, TinyLlama())));
  cases->push_back(WithWholeTokens(Accumulated(Make({.name = "gpt2_fsdp2_tp4", .shard = 2, .tp = 4}, TinyGpt2()))));
  cases->push_back(WithWholeTokens(Make({.name = "cp2_tp2", .cp = 2, .tp = 2}, TinyLlama())));
  cases->push_back(WithWholeTokens(Make({.name = "tp2_pp2", .tp = 2, .pp = 2, .microbatch = 2}, TinyLlama())));
  cases->push_back(WithWholeTokens(
      Checkpointed(Make({.name = "gpt2_tp2_pp2_dualpipev", .tp = 2, .pp = 2, .schedule = v1::DUALPIPE_V}, DeepGpt2()))));
  cases->push_back(Make({.name = "gpt_sides_fsdp2", .shard = 2}, TinyGptOfSides()));
  cases->push_back(Checkpointed(Make({.name = "gpt_sides_fsdp2_tp2", .shard = 2, .tp = 2}, TinyGptOfSides())));
  cases->push_back(KeepingOperators(Make({.name = "gpt_sides_tp2", .tp = 2}, TinyGptOfSides())));
  cases->push_back(GatheringAgain(Make({.name = "gpt_sides_tp2", .tp = 2}, TinyGptOfSides())));
  cases->push_back(WithWholeTokens(Bf16(Make({.name = "gpt_sides_tp2_pp2", .tp = 2, .pp = 2}, TinyGptOfSides()))));
}

Case ReshardedOver(int64_t ranks, Case test_case) {
  test_case.name += "_reshard" + std::to_string(ranks);
  test_case.recipe.mutable_parallelism()->set_fsdp_reshard_after_forward_size(ranks);
  return test_case;
}

void AddReshardSizes(std::vector<Case>* cases) {
  const Layout fsdp4{.name = "fsdp4", .shard = 4};
  cases->push_back(ReshardedOver(2, Make(fsdp4, TinyLlama())));
  cases->push_back(ReshardedOver(2, Checkpointed(Make(fsdp4, TinyLlama()))));
  cases->push_back(ReshardedOver(2, Bf16(Accumulated(Make(fsdp4, TinyLlama())))));
  cases->push_back(ReshardedOver(2, Prefetching(2, KeepingOperators(Make(fsdp4, DeepLlama())))));
  cases->push_back(ReshardedOver(2, Make({.name = "gpt2_fsdp4", .shard = 4}, TinyGpt2())));
  cases->push_back(ReshardedOver(4, Bf16(Make({.name = "fsdp8", .shard = 8}, TinyLlama()))));
  cases->push_back(ReshardedOver(2, Make({.name = "hsdp2x4", .replicate = 2, .shard = 4}, TinyLlama())));
  cases->push_back(ReshardedOver(2, Make({.name = "fsdp2_cp2", .shard = 2, .cp = 2}, TinyLlama())));
  cases->push_back(ReshardedOver(2, GatheringAgain(Bf16(Make({.name = "fsdp4_tp2", .shard = 4, .tp = 2}, TinyLlama())))));
}

// The embedding is on the first rank and, as the head, on the last.
void AddPipelinesOfTiedModels(std::vector<Case>* cases) {
  v1::Model llama = DeepLlama();
  llama.set_name("tiny-llama-deep-tied");
  llama.set_tie_word_embeddings(true);
  for (const Layout& layout :
       {Layout{.name = "tied_pp2", .pp = 2}, Layout{.name = "tied_fsdp2_tp2_pp2", .shard = 2, .tp = 2, .pp = 2}}) {
    cases->push_back(Make(layout, llama));
    cases->push_back(Checkpointed(cases->back()));
  }
  const std::vector<Layout> others = {
      {.name = "tied_pp3_gpipe", .pp = 3, .schedule = v1::GPIPE},
      {.name = "tied_fsdp2_pp3_interleaved", .shard = 2, .pp = 3, .schedule = v1::INTERLEAVED_1F1B},
      {.name = "tied_hsdp2x2_pp2_looped", .replicate = 2, .shard = 2, .pp = 2, .schedule = v1::LOOPED_BFS},
  };
  for (const Layout& layout : others) cases->push_back(Make(layout, llama));
  cases->push_back(Bf16(Make({.name = "tied_fsdp2_pp2", .shard = 2, .pp = 2}, llama)));
  cases->push_back(Accumulated(Make({.name = "tied_ddp2_pp2", .replicate = 2, .pp = 2}, llama)));
  cases->push_back(Make({.name = "gpt2_tp2_pp2", .tp = 2, .pp = 2}, TinyGpt2()));
  cases->push_back(Checkpointed(Make({.name = "gpt2_fsdp2_pp3", .shard = 2, .pp = 3}, TinyGpt2())));
}

// Two chunks a rank, down the ranks and up again: the first rank has embedding and head. And schedules from files: a V that turns
// twice, so that its last chunk is the last rank's, and one whose ranks part backwards or not as each likes.
void AddPipelinesInAV(std::vector<Case>* cases) {
  const v1::PipelineSchedule zbv = v1::ZBV_ZERO_BUBBLE, dual = v1::DUALPIPE_V;
  v1::Model tied = DeepLlama();
  tied.set_name("tiny-llama-deep-tied");
  tied.set_tie_word_embeddings(true);
  const v1::Model gpt2 = DeepGpt2();
  v1::Model eight = DeepLlama();
  eight.set_name("tiny-llama-8");
  eight.set_num_hidden_layers(8);
  cases->push_back(Make({.name = "pp2_zbv", .pp = 2, .schedule = zbv}, DeepLlama()));
  cases->push_back(Checkpointed(Make({.name = "fsdp2_pp2_zbv", .shard = 2, .pp = 2, .schedule = zbv}, DeepLlama())));
  cases->push_back(Bf16(Make({.name = "fsdp2_tp2_pp2_zbv", .shard = 2, .tp = 2, .pp = 2, .schedule = zbv}, DeepLlama())));
  cases->push_back(Make({.name = "pp4_zbv", .pp = 4, .schedule = zbv}, eight));
  cases->push_back(Make({.name = "hsdp2x2_pp2_zbv", .replicate = 2, .shard = 2, .pp = 2, .schedule = zbv}, DeepLlama()));
  cases->push_back(
      Make({.name = "pp2_zbv_shorter_ends", .pp = 2, .schedule = zbv, .first_less = 1, .last_less = 1}, DeepLlama()));
  cases->push_back(Accumulated(Make({.name = "tied_fsdp2_pp2_zbv", .shard = 2, .pp = 2, .schedule = zbv}, tied)));
  cases->push_back(Bf16(Make({.name = "tied_ddp2_tp2_pp2_zbv", .replicate = 2, .tp = 2, .pp = 2, .schedule = zbv}, tied)));
  cases->push_back(Make({.name = "gpt2_pp2_zbv", .pp = 2, .schedule = zbv}, gpt2));
  cases->push_back(KeepingOperators(Make({.name = "gpt2_tp2_pp3_zbv", .tp = 2, .pp = 3, .schedule = zbv}, gpt2)));
  cases->push_back(Make({.name = "pp3_dualpipev", .pp = 3, .schedule = dual}, DeepLlama()));
  cases->push_back(
      Checkpointed(Make({.name = "fsdp2_tp2_pp2_dualpipev", .shard = 2, .tp = 2, .pp = 2, .schedule = dual}, DeepLlama())));
  cases->push_back(Bf16(Make({.name = "tied_fsdp2_pp2_dualpipev", .shard = 2, .pp = 2, .schedule = dual}, tied)));
  const auto listed = [&](const Layout& layout, const v1::Model& model, const parallel::Schedule& schedule) {
    cases->push_back(Make(layout, model));
    cases->back().recipe.mutable_parallelism()->set_pipeline_parallel_schedule_csv(parallel::ScheduleToCsv(schedule));
  };
  listed({.name = "tied_pp2_listed_turns_twice", .pp = 2}, tied, parallel::BreadthFirst({2, 6, true}, 8, true));
  parallel::Schedule mixed = parallel::MakeSchedule(v1::ONE_F_ONE_B, 2, 2, 4).value();
  mixed.ranks[1] = parallel::MakeSchedule(v1::INTERLEAVED_ZERO_BUBBLE, 2, 2, 4)->ranks[1];
  listed({.name = "fsdp2_pp2_listed_mixed", .shard = 2, .pp = 2}, DeepLlama(), mixed);
}

// With dropout, and 61 tokens of vocabulary, which no degree divides.
void AddTensorParallelOfGpt2(std::vector<Case>* cases) {
  for (const Layout& layout : {Layout{.name = "gpt2_tp2", .tp = 2}, Layout{.name = "gpt2_fsdp2_tp4", .shard = 2, .tp = 4}}) {
    cases->push_back(Make(layout, TinyGpt2()));
    cases->push_back(Checkpointed(cases->back()));
  }
  cases->push_back(Bf16(Make({.name = "gpt2_fsdp2_tp2", .shard = 2, .tp = 2}, TinyGpt2())));
  cases->push_back(Make({.name = "gpt2_untied_tp2_pp2", .tp = 2, .pp = 2}, UntiedGpt2()));
  v1::Model even = TinyGpt2();
  even.set_name("tiny-gpt2-even");
  even.set_vocab_size(62);
  cases->push_back(Make({.name = "gpt2_tp2_gathered_loss", .tp = 2, .loss_parallel = false}, even));
}

// Families that differ from Llama by a switch or two.
void AddOtherFamilies(std::vector<Case>* cases) {
  cases->push_back(Make({.name = "mistral_fsdp2", .shard = 2}, TinyMistral()));
  cases->push_back(KeepingOperators(cases->back()));
  cases->push_back(Bf16(Make({.name = "mistral_fsdp2_tp2", .shard = 2, .tp = 2}, TinyMistral())));
  cases->push_back(Make({.name = "qwen2_fsdp2_tp2", .shard = 2, .tp = 2}, TinyQwen2()));
  v1::Model shared = TinyQwen2();
  shared.set_name("tiny-qwen2-56");
  shared.set_intermediate_size(56);
  cases->push_back(Checkpointed(Make({.name = "qwen2_tp4_kv2", .tp = 4}, shared)));
  cases->push_back(Make({.name = "qwen3_tp2_pp2", .tp = 2, .pp = 2}, TinyQwen3()));
  cases->push_back(KeepingOperators(Make({.name = "qwen3_fsdp2_tp2", .shard = 2, .tp = 2}, TinyQwen3())));
  cases->push_back(Make({.name = "gemma_tied_pp2", .pp = 2}, TinyGemma()));
  cases->push_back(Make({.name = "gemma_tp4_kv1", .tp = 4}, TinyGemma()));
  cases->push_back(Checkpointed(Bf16(Make({.name = "gemma_fsdp2_tp2_pp2", .shard = 2, .tp = 2, .pp = 2}, TinyGemma()))));
}

void AddGemma2(std::vector<Case>* cases) {
  const v1::Model model = TinyGemma2();
  v1::Model untied = model;
  untied.set_name("tiny-gemma2-untied");
  untied.set_tie_word_embeddings(false);
  untied.set_num_hidden_layers(4);
  cases->push_back(Checkpointed(Make({.name = "gemma2_fsdp2", .shard = 2}, model)));
  cases->push_back(Make({.name = "gemma2_tp4_kv2", .tp = 4}, model));
  cases->push_back(KeepingOperators(Bf16(Make({.name = "gemma2_fsdp2_tp2", .shard = 2, .tp = 2}, model))));
  cases->push_back(WithWholeTokens(Make({.name = "gemma2_tp2_gathered_loss", .tp = 2, .loss_parallel = false}, model)));
  cases->push_back(Make({.name = "gemma2_cp2", .cp = 2}, model));
  cases->push_back(Checkpointed(Bf16(Make({.name = "gemma2_cp2_tp2", .cp = 2, .tp = 2}, model))));
  cases->push_back(Make({.name = "gemma2_tied_pp2", .pp = 2}, model));
  cases->push_back(Make({.name = "gemma2_pp4", .pp = 4}, untied));
  const Layout zero_bubble{.name = "gemma2_tp2_pp2_zb", .tp = 2, .pp = 2, .schedule = v1::INTERLEAVED_ZERO_BUBBLE};
  cases->push_back(Checkpointed(Make(zero_bubble, untied)));
}

}  // namespace

std::vector<Case> ParityCases() {
  const std::vector<Layout> layouts = {
      {.name = "ddp2", .replicate = 2},
      {.name = "fsdp2", .shard = 2},
      {.name = "fsdp4", .shard = 4},
      {.name = "hsdp2x2", .replicate = 2, .shard = 2},
      {.name = "tp2", .tp = 2},
      {.name = "tp2_gathered_loss", .tp = 2, .loss_parallel = false},
      {.name = "pp2_gpipe", .pp = 2, .schedule = v1::GPIPE},
      {.name = "pp2_1f1b", .pp = 2},
      {.name = "fsdp2_tp2", .shard = 2, .tp = 2},
      {.name = "fsdp2_pp2", .shard = 2, .pp = 2},
      {.name = "tp2_pp2", .tp = 2, .pp = 2},
      {.name = "fsdp2_tp2_pp2", .shard = 2, .tp = 2, .pp = 2},
  };
  std::vector<Case> cases;
  for (const Layout& layout : layouts) {
    cases.push_back(Make(layout, TinyLlama()));
    cases.push_back(Checkpointed(cases.back()));
  }
  for (const char* name : {"fsdp2", "ddp2"}) {
    const Layout layout{.name = name, .replicate = name[0] == 'd' ? 2 : 1, .shard = name[0] == 'f' ? 2 : 1};
    cases.push_back(Accumulated(Make(layout, TinyLlama())));
  }
  for (size_t index : {1, 3, 8, 11}) cases.push_back(Bf16(Make(layouts[index], TinyLlama())));
  for (size_t index : {0, 1, 2, 3}) {
    Case test_case = Make(layouts[index], TinyGpt2());
    test_case.name = "gpt2_" + test_case.name;
    cases.push_back(test_case);
    cases.push_back(Checkpointed(test_case));
  }
  AddPipelinesOfSeveralChunks(&cases);
  AddPipelinesOfTiedModels(&cases);
  AddPipelinesInAV(&cases);
  AddTensorParallelOfGpt2(&cases);
  AddSharedKeyValueHeads(&cases);
  AddKeptOperators(&cases);
  AddZeroStages(&cases);
  AddInputsGatheredAgain(&cases);
  AddWholeTokens(&cases);
  AddReshardSizes(&cases);
  AddContextParallel(&cases);
  AddRings(&cases);
  AddOtherFamilies(&cases);
  AddGemma2(&cases);
  for (const Layout& layout : {Layout{.name = "fsdp2", .shard = 2}, Layout{.name = "tp2_pp2", .tp = 2, .pp = 2}}) {
    cases.push_back(EverySecondCheckpointed(Make(layout, TinyLlama())));
  }
  cases.push_back(
      EverySecondCheckpointed(Make({.name = "pp2_interleaved", .pp = 2, .schedule = v1::INTERLEAVED_1F1B}, DeepLlama())));
  cases.push_back(EverySecondCheckpointed(Make({.name = "gpt2_ddp2", .replicate = 2}, TinyGpt2())));
  AddOtherOptimizers(&cases);
  AddHeldInBf16(&cases);
  AddFloat16(&cases);
  AddMasterWeights(&cases);
  // Not on the list, but legal.
  cases.push_back(Make({.name = "ddp2_tp2", .replicate = 2, .tp = 2}, TinyLlama()));
  cases.push_back(Checkpointed(Make({.name = "ddp2_pp2", .replicate = 2, .pp = 2}, TinyLlama())));
  cases.push_back(Checkpointed(Make({.name = "gpt2_untied_pp2", .pp = 2}, UntiedGpt2())));
  return cases;
}

}  // namespace legoai::integration
