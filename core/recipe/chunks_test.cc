#include "core/recipe/chunks.h"

#include <gtest/gtest.h>

#include <vector>

namespace legoai::parallel {
namespace {

v1::Parallelism Pipeline(int64_t ranks, v1::PipelineSchedule schedule, int64_t layers_per_stage = 0, int64_t first_less = 0,
                         int64_t last_less = 0) {
  v1::Parallelism p;
  p.set_pipeline_parallel_degree(ranks);
  p.set_pipeline_parallel_schedule(schedule);
  if (layers_per_stage > 0) p.set_pipeline_parallel_layers_per_stage(layers_per_stage);
  p.set_pipeline_parallel_first_stage_less_layers(first_less);
  p.set_pipeline_parallel_last_stage_less_layers(last_less);
  return p;
}

std::vector<int64_t> Counts(const v1::Parallelism& p, int64_t layers) {
  std::vector<int64_t> counts;
  int64_t next = 0;
  for (int64_t chunk = 0; chunk < ChunkCount(p, layers); ++chunk) {
    const auto [first, last] = LayersOfChunk(p, layers, chunk);
    EXPECT_EQ(first, next) << "in order, without gaps";
    counts.push_back(last - first);
    next = last;
  }
  EXPECT_EQ(next, layers);
  return counts;
}

using Layers = std::vector<int64_t>;

TEST(Chunks, OneARankOrTwo) {
  EXPECT_EQ(Counts(Pipeline(1, v1::INTERLEAVED_1F1B, 2), 7), (Layers{7}));
  EXPECT_EQ(Counts(Pipeline(3, v1::ONE_F_ONE_B), 7), (Layers{3, 2, 2}));
  EXPECT_EQ(Counts(Pipeline(2, v1::INTERLEAVED_1F1B), 7), (Layers{2, 2, 2, 1}));
  EXPECT_EQ(Counts(Pipeline(2, v1::LOOPED_BFS, 1), 6), (Layers{1, 1, 1, 1, 1, 1}));
}

// Llama 3.1 405B on 16 ranks: 126 layers and two that the ends give up (Llama team 2024, section 3.3.2).
TEST(Chunks, EndsGiveUpLayers) {
  EXPECT_EQ(Counts(Pipeline(4, v1::ONE_F_ONE_B, 0, 1, 1), 6), (Layers{1, 2, 2, 1}));
  EXPECT_EQ(Counts(Pipeline(2, v1::INTERLEAVED_1F1B, 0, 0, 2), 7), (Layers{3, 2, 2, 0}));
  const Layers llama = Counts(Pipeline(16, v1::INTERLEAVED_1F1B, 4, 1, 1), 126);
  EXPECT_EQ(llama.size(), 32);
  EXPECT_EQ(llama.front(), 3);
  EXPECT_EQ(llama[1], 4);
  EXPECT_EQ(llama.back(), 3);
}

TEST(Chunks, FollowTheModulesOfEachPart) {
  v1::Parallelism p = Pipeline(2, v1::ONE_F_ONE_B);
  for (const auto& names :
       {std::vector<const char*>{"tok_embeddings", "layers.0", "layers.1", "layers.2"}, {"layers.3", "norm", "output"}}) {
    v1::ModelPart& part = *p.add_module_fqns_per_model_part();
    for (const char* name : names) part.add_modules(name);
  }
  EXPECT_EQ(Counts(p, 4), (Layers{3, 1}));
  p.set_pipeline_parallel_degree(1);
  EXPECT_EQ(Counts(p, 4), (Layers{4})) << "no pipeline, no parts";
}

TEST(Chunks, KnowTheNamesOfModules) {
  EXPECT_EQ(ModuleNames(2), (std::vector<std::string>{"tok_embeddings", "layers.0", "layers.1", "norm", "output"}));
  for (const std::string& name : ModuleNames(12)) EXPECT_TRUE(IsModuleName(name)) << name;
  for (const char* name : {"", "layers", "layers.", "layers.-1", "layers.01", "layers.1.attention", "embedding", "Norm"})
    EXPECT_FALSE(IsModuleName(name)) << name;
}

TEST(Chunks, SaysWhetherEachHasLayers) {
  EXPECT_TRUE(EveryChunkHasLayers(Pipeline(4, v1::ONE_F_ONE_B, 0, 1, 1), 6));
  EXPECT_FALSE(EveryChunkHasLayers(Pipeline(4, v1::ONE_F_ONE_B, 0, 2, 0), 6));
  EXPECT_FALSE(EveryChunkHasLayers(Pipeline(2, v1::INTERLEAVED_1F1B, 0, 0, 2), 7));
  EXPECT_FALSE(EveryChunkHasLayers(Pipeline(4, v1::LOOPED_BFS), 7)) << "eight chunks";
}

TEST(Chunks, AreAsManyAsTheLayersOfOneSay) {
  const v1::Parallelism five = Pipeline(2, v1::INTERLEAVED_1F1B, 2);
  EXPECT_EQ(ChunkCount(five, 10), 5);
  EXPECT_FALSE(SchedulePlaces(five, 5));
  EXPECT_EQ(ChunkCount(five, 7), 4);
  EXPECT_TRUE(SchedulePlaces(five, 4));
  EXPECT_FALSE(SchedulePlaces(five, 2)) << "one a rank";
  EXPECT_FALSE(SchedulePlaces(Pipeline(2, v1::ONE_F_ONE_B, 2), 4));
  EXPECT_TRUE(SchedulePlaces(Pipeline(1, v1::LOOPED_BFS), 1));
}

}  // namespace
}  // namespace legoai::parallel
