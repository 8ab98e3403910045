// Gives a parallelized model its memory, this rank's parts only (meta initialization, seed 000 §3.2.1): the weights are a
// function of seed, name and global index, hence the same in every layout.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "worker/model/language_model.h"
#include "worker/parallel/fsdp.h"

namespace legoai::parallel {

// Allocates masters and values. `initialize`: fills the masters by their rules; otherwise their contents are undefined (a fake
// device, or weights that are loaded next). Once per model, after all techniques have cut the specs.
void Materialize(model::LanguageModel& model, DataParallel& data_parallel, uint64_t seed, bool initialize, c10::Device device);

}  // namespace legoai::parallel
