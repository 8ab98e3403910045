#include "core/recipe/legality.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "core/model/catalog.h"
#include "core/recipe/recipe.h"
#include "core/recipe/testing/small_job.h"
#include "core/recipe/testing/verdict.h"

namespace legoai::parallel {
namespace {

using testing::BrokenRule;
using testing::Degrees;
using testing::SmallLlama;
using testing::Verdict;

v1::Model SmallGpt2() {
  v1::Model model = SmallLlama();
  model.set_architecture(v1::GPT2);
  model.set_num_key_value_heads(12);
  return model;
}

TEST(Rules, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Rule& rule : Rules()) EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
  EXPECT_FALSE(names.count("keys_in_range"));
}

TEST(FirstViolation, KeysInRange) {
  EXPECT_EQ(Verdict(Degrees(1, 1, 0, 1), SmallLlama(), 1), "keys_in_range: parallelism.tensor_parallel_degree = 0");
}

TEST(FirstViolation, TracedRanksExist) {
  v1::Recipe recipe = Degrees(2, 1, 1, 1);
  recipe.mutable_metrics()->add_trace_ranks(1);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 2), "legal");
  recipe.mutable_metrics()->add_trace_ranks(2);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 2), "traced_ranks_exist: metrics.trace_ranks = 2");
}

TEST(FirstViolation, AsyncTensorParallelHasAProgram) {
  v1::Recipe recipe = Degrees(1, 1, 2, 1);
  recipe.mutable_parallelism()->set_enable_async_tensor_parallel(true);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 2),
            "async_tensor_parallel_has_a_program: parallelism.enable_async_tensor_parallel = true");
  recipe.mutable_compile()->set_enable(true);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 2), "legal");
}

TEST(FirstViolation, FusingHasAProgram) {
  v1::Recipe recipe = Degrees(1, 1, 1, 1);
  recipe.mutable_compile()->set_fuse(true);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 1), "fusing_has_a_program: compile.fuse = true");
  recipe.mutable_compile()->set_enable(true);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 1), "legal");
}

TEST(FirstViolation, DegreesMatchWorldSize) {
  EXPECT_EQ(Verdict(Degrees(2, 2, 2, 2), SmallLlama(), 16), "legal");
  EXPECT_EQ(Verdict(Degrees(2, -1, 2, 2), SmallLlama(), 16), "legal");
  const std::string shown =
      "degrees_match_world_size: parallelism = data_parallel_replicate_degree 2 x data_parallel_shard_degree ";
  EXPECT_EQ(Verdict(Degrees(2, 2, 2, 2), SmallLlama(), 8), shown + "2 x tensor_parallel_degree 2 x pipeline_parallel_degree 2");
  EXPECT_EQ(Verdict(Degrees(2, -1, 3, 1), SmallLlama(), 16),
            shown + "-1 x tensor_parallel_degree 3 x pipeline_parallel_degree 1");
  EXPECT_EQ(Verdict(Degrees(2, -1, 1, 1), SmallLlama(), 1), shown + "-1 x tensor_parallel_degree 1 x pipeline_parallel_degree 1");
  // Degrees whose product would wrap around to the world size.
  EXPECT_NE(Verdict(Degrees(1 << 16, 1 << 16, 1 << 16, 1 << 16), SmallLlama(), 0), "legal");
  EXPECT_NE(Verdict(Degrees(1'000'000'000, 1'000'000'000, 1'000'000'000, 1), SmallLlama(), 8), "legal");
}

TEST(FirstViolation, TpOfEveryArchitecture) {
  EXPECT_EQ(Verdict(Degrees(1, 1, 2, 1), SmallGpt2(), 2), "legal");
  EXPECT_EQ(Verdict(Degrees(1, 1, 2, 1), SmallLlama(), 2), "legal");
}

TEST(FirstViolation, TpDividesHeads) {
  v1::Model model = SmallLlama();
  model.set_num_attention_heads(11);
  EXPECT_EQ(Verdict(Degrees(1, 1, 2, 1), model, 2), "tp_divides_heads: parallelism.tensor_parallel_degree = 2");
}

TEST(FirstViolation, TpDividesKvHeads) {
  EXPECT_EQ(Verdict(Degrees(1, 1, 4, 1), SmallLlama(), 4), "tp_divides_kv_heads: parallelism.tensor_parallel_degree = 4");
  EXPECT_EQ(Verdict(Degrees(1, 1, 12, 1), SmallLlama(), 12), "legal") << "two ranks share each of the six";
  const auto violation = BrokenRule(Degrees(1, 1, 4, 1), SmallLlama(), 4);
  EXPECT_EQ(violation->remedy,
            "must divide the model's 6 key-value heads, or be a multiple of them: use one of 1, 2, 3, 6, 12, with other degrees, "
            "batches or ranks");
  EXPECT_EQ(BrokenRule(Degrees(1, -1, 4, 1), SmallLlama(), 4)->remedy,
            "must divide the model's 6 key-value heads, or be a multiple of them: use one of 1, 2");
}

// The degrees that a remedy offers: "...: use one of 1, 2", and whether all else may stay as it is.
std::pair<std::vector<int64_t>, bool> Offered(const std::string& remedy) {
  const std::string before = ": use one of ";
  const size_t at = remedy.find(before), with = remedy.find(", with other");
  std::vector<int64_t> degrees;
  std::istringstream list(remedy.substr(at + before.size(), with == std::string::npos ? with : with - at - before.size()));
  for (std::string degree; std::getline(list, degree, ',');) degrees.push_back(std::stoll(degree));
  return {degrees, with == std::string::npos};
}

// Brute force on random models: what is offered is legal when tried, and nothing that is legal is left out.
TEST(FirstViolation, OffersTensorParallelDegreesThatAreLegal) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto pick = [&random](std::initializer_list<int64_t> of) { return of.begin()[random() % of.size()]; };
  int refusals = 0, as_is = 0;
  for (int i = 0; i < 5000; ++i) {
    v1::Model model = SmallLlama();
    model.set_num_key_value_heads(pick({1, 2, 3, 4, 6}));
    model.set_num_attention_heads(model.num_key_value_heads() * pick({1, 2, 3}));
    model.set_intermediate_size(pick({240, 96, 60, 35}));
    model.set_vocab_size(pick({256, 240, 255}));
    const int64_t world = pick({2, 4, 6, 8, 12, 24});
    v1::Recipe recipe = Degrees(1, pick({-1, -1, 1, 2}), pick({2, 3, 4, 6, 8}), pick({1, 1, 2}));
    recipe.mutable_training()->set_seq_len(pick({48, 36}));
    recipe.mutable_training()->set_global_batch_size(pick({-1, 16, 48}));
    const auto violation = BrokenRule(recipe, model, world);
    if (!violation || violation->remedy.find(": use one of ") == std::string::npos) continue;
    ++refusals;
    const auto [offered, all_else_stays] = Offered(violation->remedy);
    as_is += all_else_stays;
    ASSERT_FALSE(offered.empty()) << violation->remedy;
    std::vector<int64_t> legal;
    for (int64_t degree = 1; degree <= 64; ++degree) {
      v1::Recipe tried = recipe;
      tried.mutable_parallelism()->set_tensor_parallel_degree(degree);
      if (!all_else_stays) {
        tried.mutable_parallelism()->set_data_parallel_shard_degree(1);
        tried.mutable_parallelism()->set_pipeline_parallel_degree(1);
        tried.mutable_training()->set_global_batch_size(-1);
      }
      if (!BrokenRule(tried, model, all_else_stays ? world : degree)) legal.push_back(degree);
    }
    EXPECT_EQ(offered, legal) << violation->remedy << "\n" << recipe.ShortDebugString() << model.ShortDebugString() << world;
  }
  EXPECT_GT(refusals, 500);
  EXPECT_GT(as_is, 100);
}

TEST(FirstViolation, TiedEmbeddingsTakeAPipeline) {
  v1::Model model = SmallLlama();
  model.set_tie_word_embeddings(true);
  EXPECT_EQ(Verdict(Degrees(1, 1, 1, 6), model, 6), "legal");
  EXPECT_EQ(Verdict(Degrees(1, 1, 1, 7), model, 7), "pp_at_most_layers: parallelism.pipeline_parallel_degree = 7");
}

TEST(FirstViolation, TpDividesIntermediate) {
  v1::Model model = SmallLlama();
  model.set_intermediate_size(241);
  EXPECT_EQ(Verdict(Degrees(1, 1, 2, 1), model, 2), "tp_divides_intermediate: parallelism.tensor_parallel_degree = 2");
}

// Loss parallel takes uneven parts, but not none.
TEST(FirstViolation, TpDividesVocab) {
  v1::Model model = SmallLlama();
  model.set_vocab_size(255);
  v1::Recipe recipe = Degrees(1, 1, 2, 1);
  EXPECT_EQ(Verdict(recipe, model, 2), "legal");
  recipe.mutable_parallelism()->set_disable_loss_parallel(true);
  EXPECT_EQ(Verdict(recipe, model, 2), "tp_divides_vocab: parallelism.tensor_parallel_degree = 2");
  model.set_vocab_size(4);
  EXPECT_EQ(Verdict(Degrees(1, 1, 3, 1), model, 3), "tp_divides_vocab: parallelism.tensor_parallel_degree = 3");
}

TEST(FirstViolation, TpDividesSequence) {
  v1::Recipe recipe = Degrees(1, 1, 2, 1);
  recipe.mutable_training()->set_seq_len(47);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 2), "tp_divides_sequence: training.seq_len = 47");
  v1::Recipe whole = recipe;
  whole.mutable_parallelism()->set_sequence_parallel(false);
  EXPECT_EQ(Verdict(whole, SmallLlama(), 2), "legal") << "no rank has a part of it";
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 1).substr(0, 24), "degrees_match_world_size");
}

v1::Recipe ContextParallel(int64_t cp, int64_t tp, int64_t seq) {
  v1::Recipe recipe = Degrees(1, -1, tp, 1);
  recipe.mutable_training()->set_seq_len(seq);
  recipe.mutable_parallelism()->set_context_parallel_degree(cp);
  return recipe;
}

TEST(FirstViolation, CpDividesSequence) {
  v1::Recipe recipe = ContextParallel(4, 2, 48);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 8), "legal");
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 4).substr(0, 24), "degrees_match_world_size");
  recipe.mutable_training()->set_seq_len(40);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 8), "cp_divides_sequence: training.seq_len = 40");
  EXPECT_EQ(BrokenRule(recipe, SmallLlama(), 8)->remedy,
            "must be a multiple of 16, 2 x context_parallel_degree 4 x tensor_parallel_degree 2: use 32");
  recipe.mutable_training()->set_seq_len(32);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 8), "legal") << "what was offered";
  recipe.mutable_training()->set_seq_len(40);
  recipe.mutable_parallelism()->set_context_parallel_load_balancer(v1::BALANCE_NONE);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 8), "legal") << "one part for each rank";
  EXPECT_EQ(BrokenRule(ContextParallel(4, 1, 6), SmallLlama(), 4)->remedy,
            "must be a multiple of 8, 2 x context_parallel_degree 4: use 8");
}

TEST(FirstViolation, CpGathersKeys) {
  v1::Recipe recipe = ContextParallel(2, 1, 48);
  v1::Model dropping = SmallLlama();
  v1::Model capping = SmallLlama();
  capping.set_attn_logit_softcapping(50);
  dropping.set_attn_pdrop(0.25);
  EXPECT_EQ(Verdict(recipe, dropping, 2), "legal");
  EXPECT_EQ(Verdict(recipe, capping, 2), "legal");
  for (const auto& [method, name] :
       {std::pair{v1::ROTATE_BY_RING, "ring"}, std::pair{v1::ROTATE_BY_ALL_TO_ALL, "alltoall"}}) {
    recipe.mutable_parallelism()->set_context_parallel_degree(2);
    recipe.mutable_parallelism()->set_context_parallel_rotate_method(method);
    EXPECT_EQ(Verdict(recipe, SmallLlama(), 2), "legal");
    EXPECT_EQ(Verdict(recipe, dropping, 2),
              std::string("cp_gathers_keys: parallelism.context_parallel_rotate_method = ") + name);
    EXPECT_EQ(BrokenRule(recipe, dropping, 2)->remedy,
              "cannot go with the model's dropout of attention's probabilities, attn_pdrop = 0.25, for which all keys of a query "
              "must be there: use \"allgather\"");
    EXPECT_EQ(BrokenRule(recipe, capping, 2)->remedy,
              "cannot go with the model's capped scores, attn_logit_softcapping = 50, for which all keys of a query must be "
              "there: use \"allgather\"");
    recipe.mutable_parallelism()->set_context_parallel_degree(1);
    EXPECT_EQ(Verdict(recipe, dropping, 2), "legal") << "nothing is passed on";
  }
}

TEST(FirstViolation, CpWithoutWindow) {
  v1::Model model = SmallLlama();
  model.set_sliding_window(32);
  EXPECT_EQ(Verdict(ContextParallel(2, 1, 48), model, 2), "cp_without_window: parallelism.context_parallel_degree = 2");
  EXPECT_EQ(Verdict(ContextParallel(1, 1, 48), model, 2), "legal");
  v1::Model capping = model;
  capping.set_attn_logit_softcapping(50);
  EXPECT_EQ(Verdict(ContextParallel(2, 1, 48), capping, 2), "legal") << "the mask of its scores has the window";
  model.set_sliding_window(48);
  EXPECT_EQ(Verdict(ContextParallel(2, 1, 48), model, 2), "legal") << "a window as long as the sequence is none";
}

TEST(FirstViolation, SequenceWithinPositions) {
  v1::Recipe recipe = Degrees(1, 1, 1, 1);
  recipe.mutable_training()->set_seq_len(65);
  EXPECT_EQ(Verdict(recipe, SmallGpt2(), 1), "sequence_within_positions: training.seq_len = 65");
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 1), "legal") << "rotary positions go on";
}

TEST(FirstViolation, CheckpointingIsPlanned) {
  v1::Recipe recipe = Degrees(1, 1, 1, 1);
  recipe.mutable_activation_checkpoint()->set_mode(v1::AC_AUTO);
  recipe.mutable_activation_checkpoint()->set_memory_budget_gib(20);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 1), "checkpointing_is_planned: activation_checkpoint.mode = auto");
}

TEST(FirstViolation, KeepPolicyNamesModules) {
  v1::Recipe recipe = Degrees(1, 1, 1, 1);
  auto* section = recipe.mutable_activation_checkpoint();
  section->set_mode(v1::AC_SELECTIVE);
  section->set_selective_ac_option("policy");
  section->set_selective_ac_policy("mlp.gate_proj aten::mm all");
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 1), "legal");
  EXPECT_EQ(Verdict(recipe, SmallGpt2(), 1),
            "keep_policy_names_modules: activation_checkpoint.selective_ac_policy = mlp.gate_proj");
  section->set_selective_ac_policy("mlp.* aten::mm all; attention.* aten::mm odd");
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 1),
            "keep_policy_names_modules: activation_checkpoint.selective_ac_policy = attention.*");
  section->set_selective_ac_policy("0-99:mlp.* aten::mm all");
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 1), "keep_policy_names_modules: activation_checkpoint.selective_ac_policy = 0-99")
      << "of a larger model";
  section->set_selective_ac_policy("0:* * all");
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 1), "legal");
  section->set_selective_ac_option("op");
  section->clear_selective_ac_policy();
  for (const char* name : {"q_proj", "mlp.up", "moe.router.gate"}) {
    section->add_per_op_sac_force_recompute_mm_shapes_by_fqns(name);
    EXPECT_EQ(Verdict(recipe, SmallLlama(), 1), "legal") << name;
  }
  section->add_per_op_sac_force_recompute_mm_shapes_by_fqns("attention.wq");
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 1),
            "keep_policy_names_modules: activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns = attention.wq");
  section->set_mode(v1::AC_FULL);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 1), "legal") << "it is not looked at";
}

// What README.md and docs/recipe.md say of them.
TEST(FirstViolation, ModelsThatTakeNotEveryTechnique) {
  auto verdict = [](const std::string& name, int64_t tp, int64_t pp, int64_t seq_len = 1024) {
    v1::Recipe recipe = Degrees(1, -1, tp, pp);
    recipe.mutable_training()->set_seq_len(seq_len);
    const auto model = model::ResolveModel(name);
    EXPECT_TRUE(model.ok()) << model.status();
    return Verdict(recipe, *model, 4);
  };
  for (const char* name : {"gpt2", "gpt2-xl"}) {
    EXPECT_EQ(verdict(name, 1, 1), "legal");
    const bool divides = std::string(name) == "gpt2";  // gpt2-xl has 25 heads
    EXPECT_EQ(verdict(name, 2, 1), divides ? "legal" : "tp_divides_heads: parallelism.tensor_parallel_degree = 2");
    EXPECT_EQ(verdict(name, 1, 2), "legal");
    EXPECT_EQ(verdict(name, 1, 1, 1025), "sequence_within_positions: training.seq_len = 1025");
  }
  for (const char* name : {"llama3-1b", "llama3-3b"}) {
    EXPECT_EQ(verdict(name, 2, 1), "legal");
    EXPECT_EQ(verdict(name, 1, 2), "legal");
  }
  EXPECT_EQ(verdict("llama3-8b", 2, 2), "legal");
  v1::Recipe ring = ContextParallel(2, 1, 1024);
  ring.mutable_parallelism()->set_context_parallel_rotate_method(v1::ROTATE_BY_RING);
  EXPECT_EQ(Verdict(ring, *model::ResolveModel("gpt2"), 2), "cp_gathers_keys: parallelism.context_parallel_rotate_method = ring");
}

TEST(FirstViolation, PpWithoutReshard) {
  v1::Recipe recipe = Degrees(1, 1, 1, 2);
  recipe.mutable_parallelism()->set_fsdp_reshard_after_forward(v1::RESHARD_ALWAYS);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 2), "pp_without_reshard: parallelism.fsdp_reshard_after_forward = always");
  recipe.mutable_parallelism()->set_fsdp_reshard_after_forward(v1::RESHARD_NEVER);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 2), "legal");
}

TEST(FirstViolation, ZeroStageKeepsParameters) {
  v1::Recipe recipe = Degrees(1, 2, 1, 1);
  recipe.mutable_parallelism()->set_fsdp_reshard_after_forward(v1::RESHARD_ALWAYS);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 2), "legal");
  recipe.mutable_parallelism()->set_zero_stage(2);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 2), "zero_stage_keeps_parameters: parallelism.zero_stage = 2");
  recipe.mutable_parallelism()->set_fsdp_reshard_after_forward(v1::RESHARD_DEFAULT);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 2), "legal");
}

TEST(FirstViolation, ReshardSize) {
  const auto verdict = [](int64_t size, int64_t shard, int64_t cp, const std::function<void(v1::Parallelism*)>& change = {}) {
    v1::Recipe recipe = Degrees(1, shard, 1, 1);
    recipe.mutable_parallelism()->set_context_parallel_degree(cp);
    recipe.mutable_parallelism()->set_fsdp_reshard_after_forward_size(size);
    if (change) change(recipe.mutable_parallelism());
    FillDefaults(&recipe);
    const int64_t world = shard * cp * recipe.parallelism().pipeline_parallel_degree();
    Layout layout;
    const auto violation = FirstViolation(recipe, SmallLlama(), world, &layout);
    if (!violation) return "legal, groups of " + std::to_string(layout.mesh.reshard);
    return violation->rule + ": " + violation->remedy.substr(violation->remedy.rfind(": ") + 2);
  };
  const std::string parts = "reshard_size_parts_the_shard_group: use ", left = "reshard_size_has_what_to_reshard: use 0";
  EXPECT_EQ(verdict(0, 8, 1), "legal, groups of 1");
  EXPECT_EQ(verdict(4, 8, 1), "legal, groups of 4");
  EXPECT_EQ(verdict(2, 4, 2), "legal, groups of 2");
  EXPECT_EQ(verdict(1, 8, 1), parts + "2");
  EXPECT_EQ(verdict(8, 8, 1), parts + "4");
  EXPECT_EQ(verdict(3, 8, 1), parts + "2");
  EXPECT_EQ(verdict(5, 6, 2), parts + "4") << "of 12 ranks";
  EXPECT_EQ(verdict(1000, 6, 2), parts + "6");
  EXPECT_EQ(verdict(2, 1, 1), parts + "0") << "one rank has no such groups";
  EXPECT_EQ(verdict(2, 3, 1), parts + "0");
  EXPECT_EQ(verdict(2, 4, 1, [](auto* p) { p->set_zero_stage(2); }), left);
  EXPECT_EQ(verdict(2, 4, 1, [](auto* p) { p->set_fsdp_reshard_after_forward(v1::RESHARD_NEVER); }), left);
  EXPECT_EQ(verdict(2, 4, 1, [](auto* p) { p->set_fsdp_reshard_after_forward(v1::RESHARD_ALWAYS); }), "legal, groups of 2");
  EXPECT_EQ(verdict(2, 4, 1, [](auto* p) { p->set_pipeline_parallel_degree(2); }), left);
}

TEST(FirstViolation, MicrobatchDividesLocalBatch) {
  v1::Recipe recipe = Degrees(1, 1, 1, 2);
  recipe.mutable_parallelism()->set_pipeline_parallel_microbatch_size(3);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 2),
            "microbatch_divides_local_batch: parallelism.pipeline_parallel_microbatch_size = 3");
  recipe.mutable_parallelism()->set_pipeline_parallel_degree(1);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 1), "legal") << "not used without pipeline";
}

TEST(FirstViolation, LocalBatchesMakeGlobalBatch) {
  v1::Recipe recipe = Degrees(2, 2, 1, 1);
  recipe.mutable_training()->set_global_batch_size(24);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 4), "local_batches_make_global_batch: training.global_batch_size = 24");
  recipe.mutable_training()->set_global_batch_size(32);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 4), "legal");
}

// The same verdict as a direct statement of what is legal, on random small cases; and the rule that is named is one that fails.
TEST(FirstViolation, AgreesWithADirectStatement) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto pick = [&random](std::initializer_list<int64_t> of) { return of.begin()[random() % of.size()]; };
  int legal_cases = 0;
  for (int i = 0; i < 20000; ++i) {
    const int64_t r = pick({1, 2, 3}), s = pick({-1, 1, 2, 3}), tp = pick({1, 1, 2, 3, 4}), pp = pick({1, 1, 2, 5, 7});
    const int64_t world = pick({1, 2, 4, 6, 8, 12}), batch = pick({1, 2, 4, 6}), micro = pick({1, 2, 3}),
                  global = pick({-1, 8, 24, 30});
    v1::Recipe recipe = Degrees(r, s, tp, pp);
    recipe.mutable_training()->set_local_batch_size(batch);
    recipe.mutable_training()->set_global_batch_size(global);
    recipe.mutable_training()->set_seq_len(pick({48, 50, 128}));
    recipe.mutable_parallelism()->set_pipeline_parallel_microbatch_size(micro);
    v1::Model model = random() % 4 == 0 ? SmallGpt2() : SmallLlama();
    model.set_tie_word_embeddings(random() % 3 == 0);
    const int64_t seq = recipe.training().seq_len();

    bool legal = false;
    for (int64_t shard = 1; shard <= world; ++shard) {
      if (r * shard * tp * pp != world || (s != -1 && s != shard)) continue;
      const bool tp_fits =
          12 % tp == 0 && (model.num_key_value_heads() % tp == 0 || tp % model.num_key_value_heads() == 0) && seq % tp == 0;
      const bool pp_fits = pp == 1 || (pp <= 6 && batch % micro == 0);
      const bool batch_fits = global == -1 || global % (r * shard * batch) == 0;
      const bool positions_fit = model.architecture() == v1::LLAMA || seq <= 64;
      legal = tp_fits && pp_fits && batch_fits && positions_fit;
    }
    ASSERT_EQ(Verdict(recipe, model, world) == "legal", legal)
        << recipe.ShortDebugString() << " world " << world << ": " << Verdict(recipe, model, world);
    legal_cases += legal;
  }
  EXPECT_GT(legal_cases, 100);
}

}  // namespace
}  // namespace legoai::parallel
