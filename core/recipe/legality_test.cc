#include "core/recipe/legality.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/model/catalog.h"
#include "core/recipe/recipe.h"
#include "core/recipe/testing/small_job.h"
#include "core/schedule/schedule_csv.h"

namespace legoai::parallel {
namespace {

using testing::Degrees;
using testing::SmallLlama;

v1::Model SmallGpt2() {
  v1::Model model = SmallLlama();
  model.set_architecture(v1::GPT2);
  model.set_num_key_value_heads(12);
  return model;
}

std::optional<Violation> BrokenRule(v1::Recipe recipe, const v1::Model& model, int64_t world_size) {
  FillDefaults(&recipe);
  Layout layout;
  return FirstViolation(recipe, model, world_size, &layout);
}

// "rule: field = value", or "legal".
std::string Verdict(const v1::Recipe& recipe, const v1::Model& model, int64_t world_size) {
  const auto violation = BrokenRule(recipe, model, world_size);
  if (!violation) return "legal";
  EXPECT_FALSE(violation->remedy.empty());
  return absl::StrCat(violation->rule, ": ", violation->field, " = ", violation->value);
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
  dropping.set_attn_pdrop(0.25);
  EXPECT_EQ(Verdict(recipe, dropping, 2), "legal");
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
    recipe.mutable_parallelism()->set_context_parallel_degree(1);
    EXPECT_EQ(Verdict(recipe, dropping, 2), "legal") << "nothing is passed on";
  }
}

TEST(FirstViolation, CpWithoutWindow) {
  v1::Model model = SmallLlama();
  model.set_sliding_window(32);
  EXPECT_EQ(Verdict(ContextParallel(2, 1, 48), model, 2), "cp_without_window: parallelism.context_parallel_degree = 2");
  EXPECT_EQ(Verdict(ContextParallel(1, 1, 48), model, 2), "legal");
  model.set_sliding_window(48);
  EXPECT_EQ(Verdict(ContextParallel(2, 1, 48), model, 2), "legal") << "a window as long as the sequence is none";
}

TEST(FirstViolation, SequenceWithinPositions) {
  v1::Recipe recipe = Degrees(1, 1, 1, 1);
  recipe.mutable_training()->set_seq_len(65);
  EXPECT_EQ(Verdict(recipe, SmallGpt2(), 1), "sequence_within_positions: training.seq_len = 65");
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 1), "legal") << "rotary positions go on";
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

TEST(FirstViolation, PpAtMostLayers) {
  EXPECT_EQ(Verdict(Degrees(1, 1, 1, 7), SmallLlama(), 7), "pp_at_most_layers: parallelism.pipeline_parallel_degree = 7");
  EXPECT_EQ(Verdict(Degrees(1, 1, 1, 6), SmallLlama(), 6), "legal");
}

v1::Recipe Looped(int64_t ranks, int64_t layers_per_stage = 0) {
  v1::Recipe recipe = Degrees(1, 1, 1, ranks);
  recipe.mutable_parallelism()->set_pipeline_parallel_schedule(v1::INTERLEAVED_1F1B);
  if (layers_per_stage > 0) recipe.mutable_parallelism()->set_pipeline_parallel_layers_per_stage(layers_per_stage);
  return recipe;
}

// SmallLlama has six layers.
TEST(FirstViolation, PpSchedulePlacesChunks) {
  EXPECT_EQ(Verdict(Looped(2), SmallLlama(), 2), "legal");
  EXPECT_EQ(Verdict(Looped(2, 1), SmallLlama(), 2), "legal");
  const auto two = BrokenRule(Looped(2, 2), SmallLlama(), 2);
  ASSERT_TRUE(two);
  EXPECT_EQ(two->rule, "pp_schedule_places_chunks");
  EXPECT_EQ(two->field, "parallelism.pipeline_parallel_layers_per_stage");
  EXPECT_EQ(
      two->remedy,
      "cuts the model's 6 layers into 3 chunks, and Interleaved1F1B needs several chunks on each of the 2 pipeline ranks: use "
      "one of 1");
  v1::Recipe one = Degrees(1, 1, 1, 2);
  one.mutable_parallelism()->set_pipeline_parallel_layers_per_stage(2);
  const auto broken = BrokenRule(one, SmallLlama(), 2);
  ASSERT_TRUE(broken);
  EXPECT_EQ(
      broken->remedy,
      "cuts the model's 6 layers into 3 chunks, and 1F1B needs one chunk on each of the 2 pipeline ranks: use one of 3, 4, 5");
  one.mutable_parallelism()->set_pipeline_parallel_layers_per_stage(0);
  EXPECT_EQ(Verdict(one, SmallLlama(), 2), "keys_in_range: parallelism.pipeline_parallel_layers_per_stage = 0");
}

TEST(FirstViolation, PpChunksHaveLayers) {
  const auto looped = BrokenRule(Looped(4), SmallLlama(), 4);
  ASSERT_TRUE(looped);
  EXPECT_EQ(looped->rule, "pp_chunks_have_layers");
  EXPECT_EQ(looped->field, "parallelism.pipeline_parallel_degree");
  EXPECT_EQ(looped->remedy,
            "makes 8 chunks with Interleaved1F1B, and the model has 6 layers, one for each at least: use 3 or less");
  v1::Recipe recipe = Degrees(1, 1, 1, 2);
  recipe.mutable_parallelism()->set_pipeline_parallel_first_stage_less_layers(6);
  const auto first = BrokenRule(recipe, SmallLlama(), 2);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->field, "parallelism.pipeline_parallel_first_stage_less_layers");
  EXPECT_EQ(first->remedy, "leaves the first of 2 chunks no layer: use 5 or less");
  recipe.mutable_parallelism()->set_pipeline_parallel_first_stage_less_layers(5);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 2), "legal");
  recipe.mutable_parallelism()->set_pipeline_parallel_first_stage_less_layers(-1);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 2), "keys_in_range: parallelism.pipeline_parallel_first_stage_less_layers = -1");
  recipe = Looped(2);
  recipe.mutable_parallelism()->set_pipeline_parallel_last_stage_less_layers(1000);
  const auto last = BrokenRule(recipe, SmallLlama(), 2);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->field, "parallelism.pipeline_parallel_last_stage_less_layers");
}

using Parts = std::vector<std::vector<std::string>>;

v1::Recipe WithParts(const Parts& parts, v1::PipelineSchedule schedule = v1::ONE_F_ONE_B) {
  v1::Recipe recipe = Degrees(1, 1, 1, 2);
  recipe.mutable_parallelism()->set_pipeline_parallel_schedule(schedule);
  for (const auto& names : parts) {
    *recipe.mutable_parallelism()->add_module_fqns_per_model_part()->mutable_modules() = {names.begin(), names.end()};
  }
  return recipe;
}

const Parts kOfSmallLlama = {{"tok_embeddings", "layers.0"},
                             {"layers.1", "layers.2", "layers.3", "layers.4", "layers.5", "norm", "output"}};

TEST(FirstViolation, PpPartsHoldTheModel) {
  constexpr char kAll[] =
      ": the parts list the modules of the model in their order, tok_embeddings, layers.0 to layers.5, norm and output, each "
      "once";
  EXPECT_EQ(Verdict(WithParts(kOfSmallLlama), SmallLlama(), 2), "legal");
  const auto broken = [&](auto change) {
    Parts parts = kOfSmallLlama;
    change(&parts);
    const auto violation = BrokenRule(WithParts(parts), SmallLlama(), 2);
    EXPECT_TRUE(violation && violation->rule == "pp_parts_hold_the_model");
    return violation.value_or(Violation{});
  };
  const Violation twice = broken([](Parts* parts) { parts->at(1)[0] = "layers.0"; });
  EXPECT_EQ(twice.field, "parallelism.module_fqns_per_model_part[1][0]");
  EXPECT_EQ(twice.value, "layers.0");
  EXPECT_EQ(twice.remedy, std::string("must be layers.1") + kAll);
  const Violation open = broken([](Parts* parts) { parts->at(1).pop_back(); });
  EXPECT_EQ(open.field, "parallelism.module_fqns_per_model_part");
  EXPECT_EQ(open.remedy, std::string("is the last module, and output must follow") + kAll);
  const Violation after = broken([](Parts* parts) { parts->at(1).push_back("layers.6"); });
  EXPECT_EQ(after.field, "parallelism.module_fqns_per_model_part[1][7]");
  EXPECT_EQ(after.remedy, std::string("comes after output") + kAll);
}

TEST(FirstViolation, PpPartsFitTheScheduleAndHaveLayers) {
  const auto interleaved = BrokenRule(WithParts(kOfSmallLlama, v1::INTERLEAVED_1F1B), SmallLlama(), 2);
  ASSERT_TRUE(interleaved);
  EXPECT_EQ(interleaved->rule, "pp_schedule_places_parts");
  EXPECT_EQ(interleaved->value, "2 parts");
  EXPECT_EQ(interleaved->remedy,
            "does not fit: Interleaved1F1B needs several chunks on each of the 2 pipeline ranks: list 4 parts");
  Parts ends = kOfSmallLlama;
  ends[1].insert(ends[1].begin(), "layers.0");
  ends[0].pop_back();
  const auto empty = BrokenRule(WithParts(ends), SmallLlama(), 2);
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->field, "parallelism.module_fqns_per_model_part[0]");
  EXPECT_EQ(empty->value, "tok_embeddings");
  EXPECT_EQ(empty->remedy, "has none of the layers: each part needs one at least");
  Parts four = {
      {"tok_embeddings", "layers.0"}, {"layers.1", "layers.2", "layers.3"}, {"layers.4"}, {"layers.5", "norm", "output"}};
  EXPECT_EQ(Verdict(WithParts(four, v1::LOOPED_BFS), SmallLlama(), 2), "legal");
}

TEST(FirstViolation, PpPartsAloneCutTheModel) {
  v1::Recipe recipe = WithParts(kOfSmallLlama);
  recipe.mutable_parallelism()->set_pipeline_parallel_layers_per_stage(3);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 2), "pp_parts_alone_cut_the_model: parallelism.pipeline_parallel_layers_per_stage = 3");
  recipe = WithParts(kOfSmallLlama);
  recipe.mutable_parallelism()->set_pipeline_parallel_last_stage_less_layers(1);
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 2),
            "pp_parts_alone_cut_the_model: parallelism.pipeline_parallel_last_stage_less_layers = 1");
  recipe = WithParts({{"embedding"}});
  EXPECT_EQ(Verdict(recipe, SmallLlama(), 2), "keys_in_range: parallelism.module_fqns_per_model_part = embedding");
}

// Ends that hold the same weight have a group.
TEST(FirstViolation, EndsOfAPipelineTalkAboutATiedEmbedding) {
  v1::Model model = SmallLlama();
  const auto ends_talk = [&](int64_t pp) {
    Layout layout;
    v1::Recipe recipe = Degrees(1, 1, 1, pp);
    FillDefaults(&recipe);
    EXPECT_FALSE(FirstViolation(recipe, model, pp, &layout));
    return layout.mesh.ends_talk;
  };
  EXPECT_FALSE(ends_talk(2));
  model.set_tie_word_embeddings(true);
  EXPECT_TRUE(ends_talk(2));
  EXPECT_FALSE(ends_talk(1));
}

// In a V embedding and head are on one rank.
TEST(FirstViolation, EndsOfAVDoNotTalk) {
  v1::Model model = SmallLlama();
  model.set_tie_word_embeddings(true);
  for (const auto& [schedule, talk] : {std::pair{v1::ZBV_ZERO_BUBBLE, false}, {v1::INTERLEAVED_1F1B, true}}) {
    Layout layout;
    v1::Recipe recipe = Looped(2);
    recipe.mutable_parallelism()->set_pipeline_parallel_schedule(schedule);
    FillDefaults(&recipe);
    EXPECT_FALSE(FirstViolation(recipe, model, 2, &layout));
    EXPECT_EQ(layout.mesh.ends_talk, talk);
  }
}

// Of eight sequences on two pipeline ranks.
v1::Recipe InV(v1::PipelineSchedule schedule, int64_t microbatch) {
  v1::Recipe recipe = Looped(2);
  recipe.mutable_parallelism()->set_pipeline_parallel_schedule(schedule);
  recipe.mutable_parallelism()->set_pipeline_parallel_microbatch_size(microbatch);
  recipe.mutable_training()->set_local_batch_size(8);
  return recipe;
}

TEST(FirstViolation, PpScheduleHasMicrobatches) {
  EXPECT_EQ(Verdict(InV(v1::ZBV_ZERO_BUBBLE, 8), SmallLlama(), 2), "legal");
  EXPECT_EQ(Verdict(InV(v1::DUALPIPE_V, 2), SmallLlama(), 2), "legal");
  const auto large = BrokenRule(InV(v1::DUALPIPE_V, 4), SmallLlama(), 2);
  ASSERT_TRUE(large);
  EXPECT_EQ(large->rule, "pp_schedule_has_microbatches");
  EXPECT_EQ(large->field, "parallelism.pipeline_parallel_microbatch_size");
  EXPECT_EQ(large->remedy,
            "makes 2 microbatches of a data-parallel rank's 8 sequences, and DualPipeV needs at least 4: use one of 1, "
            "2");
  v1::Recipe small = InV(v1::DUALPIPE_V, 1);
  small.mutable_training()->set_local_batch_size(3);
  const auto few = BrokenRule(small, SmallLlama(), 2);
  ASSERT_TRUE(few);
  EXPECT_EQ(few->field, "training.global_batch_size");
  EXPECT_EQ(few->remedy,
            "makes 3 microbatches of a data-parallel rank's 3 sequences, and DualPipeV needs at least 4: use 6 or more");
  small.mutable_training()->set_global_batch_size(6);
  EXPECT_EQ(Verdict(small, SmallLlama(), 2), "legal");
}

TEST(FirstViolation, ChunksOfAVAreTwoARank) {
  const auto cut = [](int64_t layers_per_stage) {
    v1::Recipe recipe = InV(v1::ZBV_ZERO_BUBBLE, 1);
    recipe.mutable_parallelism()->set_pipeline_parallel_layers_per_stage(layers_per_stage);
    return recipe;
  };
  const auto six = BrokenRule(cut(1), SmallLlama(), 2);
  ASSERT_TRUE(six);
  EXPECT_EQ(six->remedy, "cuts the model's 6 layers into 6 chunks, and ZBVZeroBubble needs two chunks on each of the 2 pipeline "
                         "ranks: leave it out");
}

TEST(FirstViolation, AListedScheduleSaysRanksChunksAndMicrobatches) {
  const auto listed = [](int64_t ranks, int64_t local_batch) {
    v1::Recipe recipe = Degrees(1, 1, 1, ranks);
    recipe.mutable_training()->set_local_batch_size(local_batch);
    const Schedule schedule = MakeSchedule(v1::ZBV_ZERO_BUBBLE, 2, 4, 4).value();
    recipe.mutable_parallelism()->set_pipeline_parallel_schedule_csv(ScheduleToCsv(schedule));
    return recipe;
  };
  const auto remedy = [](const v1::Recipe& recipe, int64_t ranks) {
    const auto broken = BrokenRule(recipe, SmallLlama(), ranks);
    return broken ? broken->rule + ": " + broken->field + ": " + broken->remedy : "legal";
  };
  EXPECT_EQ(remedy(listed(2, 4), 2), "legal");
  EXPECT_EQ(remedy(listed(1, 4), 1), "pp_lists_ranks: parallelism.pipeline_parallel_degree: must be 2, the lines of "
                                     "parallelism.pipeline_parallel_schedule_csv");
  EXPECT_EQ(remedy(listed(2, 8), 2),
            "pp_schedule_has_microbatches: parallelism.pipeline_parallel_microbatch_size: makes 8 microbatches of a "
            "data-parallel rank's 8 sequences, and the listed schedule has 4: use one of 2");
  EXPECT_EQ(remedy(listed(2, 3), 2),
            "pp_schedule_has_microbatches: training.global_batch_size: makes 3 microbatches of a data-parallel rank's 3 "
            "sequences, and the listed schedule has 4: use 4 and a local_batch_size that divides 4");
  v1::Recipe cut = listed(2, 4);
  cut.mutable_parallelism()->set_pipeline_parallel_layers_per_stage(3);
  EXPECT_EQ(remedy(cut, 2), "pp_schedule_places_chunks: parallelism.pipeline_parallel_layers_per_stage: cuts the model's 6 "
                            "layers into 2 chunks, and the listed schedule has 4 chunks: leave it out");
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
