// A training step of a case on the GPU, in this process.
#pragma once

#include "core/recipe/resolved_recipe.h"
#include "tests/integration/cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/train/train_step.h"

namespace legoai::gpu {

// The inputs that the CPU's step of that number gets, copied to where `inputs` are.
void FillDeviceInputs(train::StepInputs& inputs, const integration::Case& test_case, const parallel::ResolvedRecipe& resolved,
                      int64_t rank, int64_t step);

// One process, a batch of 8 sequences of 16 tokens. Throws where the recipe is refused.
integration::Case CaseOfOne(const std::string& name, const v1::Model& model, v1::DType param, bool checkpointed);

}  // namespace legoai::gpu
