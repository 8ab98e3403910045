// The learning rate of every step: linear warm-up, then decay to min_lr_factor of the peak; with decay_ratio it stays at the peak
// in between (warmup-stable-decay, Hu et al. 2024, section 4). Torch-free. Pure functions.
// Which values a recipe may have is core/recipe/recipe.h's to check.
#pragma once

#include <cstdint>

#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::train {

// The factor of the peak learning rate in step `step` of `steps`, counted from 1, as in TorchTitan: step / warmup during the
// warm-up, which at most fills the run. The last d = round(decay_ratio x steps) steps decay, at most all after the warm-up, which
// is also the default. With p = (step - (steps - d) - 1) / d the factor is 1 - p for "linear", 1 - sqrt(p) for "sqrt", (1 +
// cos(pi p)) / 2 for "cosine", 1 for "none", the range [0, 1] mapped to [min_lr_factor, 1]. So the first step of the decay has
// the peak rate, and the last one has not quite reached the minimum.
double LrFactor(const v1::LrScheduler& scheduler, int64_t step, int64_t steps);

}  // namespace legoai::train
