// Rules of legality.h for [compile], and for what needs it. Pure functions.
#pragma once

#include <optional>

#include "core/recipe/legality.h"

namespace legoai::parallel {

// Where passes join and order FSDP's collectives, there is nothing else that would.
std::optional<Violation> FsdpBucketingHasAProgram(const Candidate& candidate);
// Every bucket's modules are the model's, each once.
std::optional<Violation> FsdpBucketsNameModules(const Candidate& candidate);

// Asynchronous tensor parallel is a pass, over the gathers and scatters of sequence parallelism.
std::optional<Violation> AsyncTensorParallelHasAProgram(const Candidate& candidate);

// Fusing is a pass.
std::optional<Violation> FusingHasAProgram(const Candidate& candidate);

}  // namespace legoai::parallel
