// A small model and recipes of given degrees, for tests of what is legal and what follows from it.
#pragma once

#include <cstdint>

#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::parallel::testing {

// A Llama of 6 layers, 12 heads, 6 key-value heads, 240 intermediate channels, 256 ids and 64 positions.
v1::Model SmallLlama();

// Local batch 4, sequences of 48; the rest are defaults.
v1::Recipe Degrees(int64_t replicate, int64_t shard, int64_t tp, int64_t pp);

}  // namespace legoai::parallel::testing
