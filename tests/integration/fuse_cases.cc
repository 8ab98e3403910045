#include "tests/integration/fuse_cases.h"

#include <algorithm>
#include <stdexcept>

#include "core/recipe/recipe.h"

namespace legoai::integration {

std::vector<FuseCase> FuseCases() {
  const std::vector<Case> all = ParityCases();
  const auto named = [&](const std::string& name) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Case& test_case) { return test_case.name == name; });
    if (found == all.end()) throw std::runtime_error("no recipe is called " + name);
    return *found;
  };
  std::vector<FuseCase> cases;
  Case one{"llama_alone", TinyLlama(), parallel::DefaultRecipe(), 1};
  one.recipe.mutable_training()->set_seq_len(16);
  one.recipe.mutable_training()->set_local_batch_size(2);
  one.recipe.mutable_training()->set_mixed_precision_param(v1::FLOAT32);
  cases.push_back({one});
  for (const char* name : {"fsdp2", "fsdp2_bf16", "fsdp2_ac", "ddp2_ac_op", "ddp2_accumulate2", "tp2", "cp2_ring", "pp2_1f1b",
                           "pp2_zb_h1", "gpt2_fsdp2", "qwen3_tp2_pp2", "gemma2_fsdp2_ac", "mistral_fsdp2"}) {
    cases.push_back({named(name)});
  }
  FuseCase bucketed{named("fsdp2")}, async{named("tp2"), true};
  bucketed.eager.name = "fsdp2_in_buckets", bucketed.buckets = {"layers.*"};
  async.eager.name = "tp2_async";
  cases.push_back(bucketed);
  cases.push_back(async);
  for (FuseCase& made : cases) {
    made.eager.recipe.mutable_optimizer()->set_name("SGD");
    made.eager.recipe.mutable_optimizer()->set_lr(0.05);
  }
  return cases;
}

v1::Recipe Fused(const FuseCase& fuse_case) {
  v1::Recipe recipe = fuse_case.eager.recipe;
  recipe.mutable_compile()->set_enable(true);
  recipe.mutable_compile()->set_fuse(true);
  recipe.mutable_parallelism()->set_enable_async_tensor_parallel(fuse_case.async);
  if (!fuse_case.buckets.empty()) {
    recipe.mutable_compile()->set_fsdp_bucketing(v1::BUCKET_BY_MODULES);
    for (const std::string& bucket : fuse_case.buckets) recipe.mutable_compile()->add_fsdp_buckets()->add_modules(bucket);
  }
  return recipe;
}

}  // namespace legoai::integration
