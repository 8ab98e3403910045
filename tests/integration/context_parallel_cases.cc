#include "tests/integration/case_parts.h"

#include <vector>

namespace legoai::integration {

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

}  // namespace legoai::integration
