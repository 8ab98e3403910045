#include "tests/integration/cases.h"

#include <string>
#include <vector>

#include "tests/integration/case_parts.h"

namespace legoai::integration {
namespace {

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
