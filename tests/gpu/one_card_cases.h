// The recipes that one card can show: every model, precision, optimizer and checkpointing of the parity tests, on one rank.
#pragma once

#include <vector>

#include "tests/integration/cases.h"

namespace legoai::gpu {

// Each distinct recipe once, named after the first case that it is of: "llama_fsdp2_ac_op" is "fsdp2_ac_op". Without models whose
// window CUDA's attention does not have (core/model/model_facts.h, CheckWindow). Throws where a recipe is refused.
std::vector<integration::Case> OneCardCases();

}  // namespace legoai::gpu
