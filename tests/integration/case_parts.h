// What the lists of recipes are made of: a layout, a model, and what changes a recipe by one technique. For cases.cc and the
// files of its parts alone.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/integration/cases.h"

namespace legoai::integration {

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

Case Make(const Layout& layout, const v1::Model& model);

// Each gives the case with the technique, and with its name in the case's.
Case Checkpointed(Case test_case);
Case EverySecondCheckpointed(Case test_case);
Case KeepingOperators(Case test_case);
Case Accumulated(Case test_case);
Case Bf16(Case test_case);
Case WithZeroStage(int64_t stage, Case test_case);
Case Prefetching(int64_t depth, Case test_case);
Case GatheringAgain(Case test_case);
Case WithWholeTokens(Case test_case);

void AddPipelinesOfSeveralChunks(std::vector<Case>* cases);
void AddPipelinesOfTiedModels(std::vector<Case>* cases);
void AddPipelinesInAV(std::vector<Case>* cases);
void AddOtherOptimizers(std::vector<Case>* cases);
void AddHeldInBf16(std::vector<Case>* cases);
void AddFloat16(std::vector<Case>* cases);
void AddMasterWeights(std::vector<Case>* cases);
void AddContextParallel(std::vector<Case>* cases);
void AddRings(std::vector<Case>* cases);

}  // namespace legoai::integration
