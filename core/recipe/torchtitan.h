// TorchTitan's keys that a recipe does not have, with their equivalents: one table, which docs/recipe.md shows too.
// Thread-safety: safe to call from several threads.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace legoai::parallel {

struct TorchTitanKey {
  const char* key;     // "training.batch_size", or a whole section: "profiling"
  const char* remedy;  // what to write instead, or why it can go
};

// None of them is a key of a recipe. In the order of TorchTitan's sections.
absl::Span<const TorchTitanKey> TorchTitanKeys();

// The error about an unknown key, with the table's remedy if it is TorchTitan's; any other status unchanged.
absl::Status KnowingTorchTitan(const absl::Status& status);

}  // namespace legoai::parallel
