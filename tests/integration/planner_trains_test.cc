// What the planner chooses trains, and what trains the planner can choose.
//   TEST_RANDOM_SEED=7 draws others; a test's name has its seed.
#include <c10/util/BFloat16.h>
#include <google/protobuf/util/field_comparator.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "planner/last_choices.h"
#include "planner/legal.h"
#include "planner/space.h"
#include "proto/legoai/v1/options.pb.h"
#include "tests/integration/random_cases.h"
#include "tests/integration/train_in_processes.h"

namespace legoai::integration {
namespace {

using google::protobuf::FieldDescriptor;
using parallel::ResolvedRecipe;

constexpr uint64_t kPlans = 40, kRecipes = 300;

// So many CPU ranks, on which no precision is the faster one.
v1::Cluster ClusterOf(int64_t ranks) {
  v1::Cluster cluster = sim::ParseCluster("cpu:" + std::to_string(ranks) + "x1").value();
  cluster.mutable_device()->set_memory_bytes(int64_t{8} << 30);
  cluster.mutable_device()->set_reserve_bytes(0);
  cluster.mutable_device()->clear_peak_flops();
  for (const v1::DType dtype : {v1::FLOAT32, v1::BFLOAT16, v1::FLOAT16}) {
    v1::PeakFlops* const peak = cluster.mutable_device()->add_peak_flops();
    peak->set_dtype(dtype);
    peak->set_flops_per_second(1e11);
  }
  return cluster;
}

// A job as a user may have it: what the planner does not decide is drawn.
v1::PlanRequest DrawRequest(uint64_t seed) {
  std::mt19937_64 random(seed);
  Case drawn = DrawCase(seed);
  v1::PlanRequest request;
  *request.mutable_model() = drawn.model;
  request.mutable_model()->set_num_hidden_layers(2 + 2 * static_cast<int64_t>(random() % 4));
  const int64_t ranks = std::array<int64_t, 6>{1, 2, 3, 4, 6, 8}[random() % 6];
  *request.mutable_cluster() = ClusterOf(ranks);
  request.set_global_batch(ranks * (int64_t{1} << random() % 3));
  request.set_seq_len(drawn.recipe.training().seq_len());
  *request.mutable_base() = drawn.recipe;
  v1::Parallelism* const p = request.mutable_base()->mutable_parallelism();
  p->clear_pipeline_parallel_layers_per_stage();
  p->clear_pipeline_parallel_first_stage_less_layers();
  p->clear_pipeline_parallel_last_stage_less_layers();
  return request;
}

class PlannedRecipe : public testing::TestWithParam<uint64_t> {};

TEST_P(PlannedRecipe, TrainsLikeOneProcess) {
  const v1::PlanRequest request = DrawRequest(GetParam());
  const auto space = planner::PruneSpace(request);
  ASSERT_TRUE(space.ok()) << space.status();
  if (space->survivors.empty()) GTEST_SKIP() << "the model and the sequence allow nothing";
  std::mt19937_64 random(GetParam());
  const v1::Recipe& recipe = space->survivors[random() % space->survivors.size()].recipe;
  const Case chosen = {.name = "planned", .model = request.model(), .recipe = recipe,
                       .world_size = request.cluster().devices_per_node(), .dropout_seed = {}};
  SCOPED_TRACE(testing::Message() << chosen.world_size << " ranks, one of " << space->survivors.size() << " recipes, "
                                  << chosen.model.ShortDebugString() << "\n" << recipe.DebugString());
  ExpectLossesOfOneProcess(chosen);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PlannedRecipe, testing::Range(FirstSeed(), FirstSeed() + kPlans),
                         [](const auto& info) { return std::to_string(info.param); });

TEST(PlannedRecipes, AreOftenEnoughPossibleAndOnSeveralRanks) {
  uint64_t possible = 0, several = 0;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + kPlans; ++seed) {
    const v1::PlanRequest request = DrawRequest(seed);
    const auto space = planner::PruneSpace(request);
    ASSERT_TRUE(space.ok()) << space.status();
    possible += !space->survivors.empty();
    several += !space->survivors.empty() && request.cluster().devices_per_node() > 1;
  }
  EXPECT_GE(possible, kPlans * 3 / 4);
  EXPECT_GE(several, kPlans / 2);
}

// All that a step does differently for another recipe, but for what both take from the same base.
struct Layout {
  mesh::Mesh mesh;
  bool whole_parameters, reduces_each;
  parallel::Placement placement;
  std::vector<std::pair<int64_t, int64_t>> layers;  // of each chunk
  v1::PipelineSchedule schedule;  // says nothing without a pipeline
  int64_t microbatch_size, microbatches;
  std::string checkpointing;
  v1::DType precision;
  bool operator==(const Layout&) const = default;
};

Layout LayoutOf(const ResolvedRecipe& resolved) {
  const v1::Recipe& recipe = resolved.recipe();
  v1::ActivationCheckpoint checkpointing = recipe.activation_checkpoint();
  if (checkpointing.mode() != v1::AC_SELECTIVE) checkpointing.clear_selective_ac_option();
  Layout layout{.mesh = resolved.mesh(),
                .whole_parameters = resolved.parameters_stay_whole(),
                .reduces_each = resolved.reduce_each_microbatch() && resolved.microbatches() > 1,
                .placement = resolved.placement(),
                .layers = {},
                .schedule = resolved.mesh().pp > 1 ? recipe.parallelism().pipeline_parallel_schedule() : v1::ONE_F_ONE_B,
                .microbatch_size = resolved.microbatch_size(),
                .microbatches = resolved.microbatches(),
                .checkpointing = checkpointing.SerializeAsString(),
                .precision = recipe.training().mixed_precision_param()};
  for (int64_t chunk = 0; chunk < layout.placement.chunks; ++chunk) layout.layers.push_back(resolved.LayersOf(chunk));
  return layout;
}

bool Holds(const v1::PlanRequest& request, const Layout& layout) {
  const auto space = planner::PruneSpace(request);
  EXPECT_TRUE(space.ok()) << space.status();
  return std::any_of(space->survivors.begin(), space->survivors.end(), [&](const planner::Survivor& survivor) {
    const auto resolved = ResolvedRecipe::Create(survivor.recipe, request.model(), request.cluster().devices_per_node());
    return resolved.ok() && LayoutOf(*resolved) == layout;
  });
}

// The base without what the planner decides.
v1::Recipe Opened(v1::Recipe base) {
  base.mutable_training()->clear_local_batch_size();
  if (base.training().mixed_precision_param() != v1::FLOAT16) base.mutable_training()->clear_mixed_precision_param();
  v1::Parallelism* const p = base.mutable_parallelism();
  p->clear_data_parallel_replicate_degree();
  p->clear_data_parallel_shard_degree();
  p->clear_zero_stage();
  p->clear_tensor_parallel_degree();
  p->clear_pipeline_parallel_degree();
  p->clear_pipeline_parallel_schedule();
  p->clear_pipeline_parallel_layers_per_stage();
  p->clear_pipeline_parallel_microbatch_size();
  base.mutable_activation_checkpoint()->clear_mode();
  return base;
}

// Everything that trains is in the space of a base that says it, and in that of one that leaves open what the planner decides.
// Not opened are keys of which only some values are tried unless the base has others: context_parallel_degree, where ranks would
// have short parts of a sequence, the k of selective_ac_option, and float16, which people ask for.
TEST(RecipesThatTrain, AreInThePlannersSpace) {
  for (const Case& drawn : DrawLegalCases(FirstSeed(), kRecipes)) {
    SCOPED_TRACE(testing::Message() << drawn.name << ": " << drawn.world_size << " ranks, " << drawn.model.ShortDebugString()
                                    << "\n" << drawn.recipe.DebugString());
    const auto resolved = ResolvedRecipe::Create(drawn.recipe, drawn.model, drawn.world_size);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    v1::PlanRequest request;
    *request.mutable_model() = drawn.model;
    *request.mutable_cluster() = ClusterOf(drawn.world_size);
    request.set_global_batch(resolved->global_batch());
    request.set_seq_len(resolved->seq_len());
    *request.mutable_base() = resolved->recipe();
    EXPECT_TRUE(Holds(request, LayoutOf(*resolved))) << "as the base says";
    *request.mutable_base() = Opened(resolved->recipe());
    EXPECT_TRUE(Holds(request, LayoutOf(*resolved))) << "as the base leaves it open";
  }
}

// What is tried last of optimizer.master_weights: the losses of parameters in float32 bit by bit, and parameters that are theirs
// in 16 bits, on replicas and in a pipeline.
std::map<std::string, std::vector<float>> InBfloat16(std::map<std::string, std::vector<float>> parameters) {
  for (auto& [name, values] : parameters) {
    for (float& value : values) value = static_cast<float>(c10::BFloat16(value));
  }
  return parameters;
}

TEST(PlannedMasters, TrainTheBitsOfParametersInFloat32) {
  for (const int64_t stages : {1, 2}) {
    Case plain{.name = "plain", .model = DeepLlama(), .recipe = parallel::DefaultRecipe(), .world_size = 2, .dropout_seed = {}};
    plain.recipe.mutable_training()->set_global_batch_size(8);
    plain.recipe.mutable_training()->set_local_batch_size(stages > 1 ? 8 : 2);
    plain.recipe.mutable_training()->set_seq_len(32);
    plain.recipe.mutable_training()->set_mixed_precision_param(v1::BFLOAT16);
    plain.recipe.mutable_parallelism()->set_pipeline_parallel_degree(stages);
    plain.recipe.mutable_parallelism()->set_data_parallel_replicate_degree(2 / stages);
    plain.recipe.mutable_parallelism()->set_data_parallel_shard_degree(1);
    const auto choices = planner::LastChoices({.masters = true});
    ASSERT_EQ(choices.size(), 1u);
    ASSERT_TRUE(choices[0]->may(plain.recipe));
    Case masters = plain;
    choices[0]->make({}, &masters.recipe);
    ASSERT_TRUE(masters.recipe.optimizer().master_weights());
    EXPECT_FALSE(choices[0]->may(masters.recipe)) << "once";
    const Training before = Train(plain, 2), after = Train(masters, 2);
    EXPECT_FALSE(before.losses.empty());
    EXPECT_EQ(after.losses, before.losses) << stages;
    EXPECT_EQ(after.parameters, InBfloat16(before.parameters)) << stages;
  }
}

// What is not the planner's to choose, by key or section, and why. All other keys that are supported are chosen.
const std::map<std::string, std::string>& NotChosen() {
  static const auto* const keys = new std::map<std::string, std::string>{
      {"model", "is what is trained"},
      {"job", "names the run"},
      {"optimizer", "changes what is learned; master_weights, which does not, is tried for the best recipes of whole parameters"},
      {"lr_scheduler", "changes what is learned"},
      {"checkpoint", "changes no step"},
      {"comm", "changes no step"},
      {"metrics", "changes no step"},
      {"validation", "changes no step"},
      {"training.dataset_path", "is what is learned"},
      {"training.validation_fraction", "is what is learned"},
      {"training.global_batch_size", "is the request's: it changes what is learned"},
      {"training.seq_len", "is the request's: it changes what is learned"},
      {"training.max_norm", "changes what is learned"},
      {"training.steps", "is how long it is learned"},
      {"training.seed", "changes what is learned"},
      {"training.mixed_precision_reduce", "has one value"},
      {"training.dtype", "changes what is learned, but for what goes with optimizer.master_weights"},
      {"training.initial_loss_scale", "changes what is learned"},
      {"training.loss_scale_growth_interval", "changes what is learned"},
      {"parallelism.fsdp_reshard_after_forward", "is implied: zero_stage says what stays whole"},
      {"parallelism.fsdp_prefetch_depth", "is chosen for the best recipes, once their simulation shows what is exposed"},
      {"parallelism.sequence_parallel", "keeps more where it is off, and takes as long"},
      {"parallelism.disable_loss_parallel", "gathers whole logits, which takes more time and memory"},
      {"parallelism.enable_async_tensor_parallel", "is tried on the best recipes, where programs train"},
      {"parallelism.pipeline_parallel_first_stage_less_layers", "is a cut by hand: even ones are tried"},
      {"parallelism.pipeline_parallel_last_stage_less_layers", "is a cut by hand: even ones are tried"},
      {"parallelism.module_fqns_per_model_part", "is a cut by hand: even ones are tried"},
      {"parallelism.pipeline_parallel_schedule_csv", "is a schedule by hand"},
      {"parallelism.context_parallel_load_balancer", "leaves ranks unequal work of causal attention otherwise"},
      {"activation_checkpoint.selective_ac_policy", "is made for the best recipes, where mode = \"auto\" asks for it"},
      {"activation_checkpoint.memory_budget_gib", "is how much memory a policy may take"},
      {"compile.enable", "is tried on the best recipes, where programs train"},
      {"compile.fall_back_to_eager", "is what to do where a step cannot be captured, and goes with fuse"},
      {"compile.fuse", "is tried on the best recipes of what is trained anew, where programs train"},
      {"compile.fsdp_bucketing", "is tried on the best recipes, where programs train"},
      {"compile.fsdp_reorder", "is by hand"},
      {"compile.fsdp_buckets", "are by hand, or planned with fsdp_bucketing"},
      {"compile.fsdp_backward_buckets", "are by hand, or planned with fsdp_bucketing"},
      {"activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", "is a policy by hand"},
  };
  return *keys;
}

bool IsNotChosen(const std::string& section, const std::string& key) {
  return NotChosen().count(section) > 0 || NotChosen().count(section + "." + key) > 0;
}

// Long sequences on two nodes: what is tried anywhere is tried.
std::vector<v1::Recipe> RecipesOfALargeSpace() {
  v1::PlanRequest request;
  *request.mutable_model() = model::ResolveModel("llama3-1b").value();
  *request.mutable_cluster() = sim::ParseCluster("h100-sxm-80:4x2").value();
  request.set_global_batch(8);
  request.set_seq_len(65'536);
  *request.mutable_base() = parallel::DefaultRecipe();
  std::vector<v1::Recipe> recipes;
  for (const planner::Candidate& candidate : planner::Enumerate(request, 8))
    recipes.push_back(planner::ToRecipe(candidate, request));
  return recipes;
}

TEST(EveryKey, IsThePlannersChoiceOrIsSaidNotToBe) {
  using google::protobuf::util::FieldComparator;
  google::protobuf::util::DefaultFieldComparator comparator;
  const std::vector<v1::Recipe> recipes = RecipesOfALargeSpace();
  const auto* type = v1::Recipe::descriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* const section = type->field(i);
    const auto of = [&](const v1::Recipe& recipe) -> const google::protobuf::Message& {
      return recipe.GetReflection()->GetMessage(recipe, section);
    };
    for (int k = 0; k < section->message_type()->field_count(); ++k) {
      const FieldDescriptor* const key = section->message_type()->field(k);
      if (key->options().GetExtension(v1::not_supported_yet)) continue;
      const bool is_chosen = !key->is_repeated() && std::any_of(recipes.begin(), recipes.end(), [&](const v1::Recipe& recipe) {
        return comparator.Compare(of(recipe), of(recipes[0]), key, -1, -1, nullptr) != FieldComparator::SAME;
      });
      EXPECT_NE(is_chosen, IsNotChosen(section->name(), key->name()))
          << section->name() << "." << key->name() << (is_chosen ? " is chosen, and is listed as not chosen" : " is neither");
    }
  }
}

}  // namespace
}  // namespace legoai::integration
