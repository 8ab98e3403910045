#include "tests/integration/case_parts.h"

#include <vector>

namespace legoai::integration {
namespace {

Case WithAdam(Case test_case) {
  test_case.name += "_adam";
  test_case.recipe.mutable_optimizer()->set_name("Adam");
  return test_case;
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

Case HeldInBf16(Case test_case, bool stochastic = false) {
  test_case.name += stochastic ? "_bf16_held_stochastic" : "_bf16_held";
  test_case.recipe.mutable_training()->set_dtype(v1::BFLOAT16);
  test_case.recipe.mutable_optimizer()->set_stochastic_rounding(stochastic);
  return test_case;
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

}  // namespace

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

}  // namespace legoai::integration
