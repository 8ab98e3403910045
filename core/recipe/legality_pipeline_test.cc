// Rules of pipelines: schedules, chunks, parts of a model, tied embeddings, microbatches.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/recipe/legality.h"
#include "core/recipe/recipe.h"
#include "core/recipe/testing/small_job.h"
#include "core/recipe/testing/verdict.h"
#include "core/schedule/schedule_csv.h"

namespace legoai::parallel {
namespace {

using testing::BrokenRule;
using testing::Degrees;
using testing::SmallLlama;
using testing::Verdict;

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

}  // namespace
}  // namespace legoai::parallel
