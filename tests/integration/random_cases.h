// Recipes drawn at random from the whole space of small models, legal or not: what nobody thought of choosing.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/integration/cases.h"

namespace legoai::integration {

// TEST_RANDOM_SEED, or 1.
uint64_t FirstSeed();

// A model, a recipe and a number of ranks, at most 8. Most are legal; the others break a rule of core/recipe/legality.h.
Case DrawCase(uint64_t seed);

// The first `count` legal ones of seeds from `seed` on.
std::vector<Case> DrawLegalCases(uint64_t seed, size_t count);

}  // namespace legoai::integration
