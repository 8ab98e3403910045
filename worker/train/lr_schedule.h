// The learning rate of every step: linear warm-up, then decay to min_lr_factor of the peak. Torch-free. Pure functions.
// Which values a recipe may have is parallel/recipe.h's to check.
#pragma once

#include <cstdint>

#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::train {

// What the peak learning rate is multiplied with in step `step` of `steps`, counted from 1, as TorchTitan does: step/warmup
// during the warm-up (which at most fills the run); then, with p = (step - warmup - 1) / (steps - warmup), 1 - p for "linear",
// (1 + cos(pi p)) / 2 for "cosine", 1 for "none", the range [0, 1] mapped to [min_lr_factor, 1]. So the first step after the
// warm-up has the peak, and the last one is not yet at the minimum.
double LrFactor(const v1::LrScheduler& scheduler, int64_t step, int64_t steps);

}  // namespace legoai::train
