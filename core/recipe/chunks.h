// How the chunks of a pipeline (core/schedule/schedule.h) share a model's blocks, by TorchTitan's keys: counts differ by one at
// most, the first chunks get one more; then the first and the last chunk, which also have the embedding and the head, give up as
// many as pipeline_parallel_first_stage_less_layers and ..._last_stage_less_layers say. Or module_fqns_per_model_part lists the
// modules of each chunk. Their placement follows from the schedule or its CSV file. Pure functions; the recipe has its defaults.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/schedule/schedule.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::parallel {

// TorchTitan's names of a model's modules, in order: tok_embeddings, layers.0, ..., norm, output.
std::vector<std::string> ModuleNames(int64_t layers);

// Whether it is a name of ModuleNames() of some model.
bool IsModuleName(const std::string& name);

// The schedule in the text of pipeline_parallel_schedule_csv; null if that is empty or unsound (recipe.h says why). Each thread
// caches its last text.
std::shared_ptr<const Schedule> ListedSchedule(const v1::Parallelism& parallelism);

// One without a pipeline. Otherwise as many as module_fqns_per_model_part lists, or as pipeline_parallel_layers_per_stage makes
// of `layers`, whether or not the schedule can place them; if neither is set, as a listed schedule has, or one per rank, or two
// for schedules that loop.
int64_t ChunkCount(const v1::Parallelism& parallelism, int64_t layers);

// The blocks [first, last) of a chunk; an empty or backward range if the chunk cannot have any.
std::pair<int64_t, int64_t> LayersOfChunk(const v1::Parallelism& parallelism, int64_t layers, int64_t chunk);

// Whether every chunk has at least one block.
bool EveryChunkHasLayers(const v1::Parallelism& parallelism, int64_t layers);

// Where the chunks lie.
Placement PlacementOf(const v1::Parallelism& parallelism, int64_t layers);

// Whether the schedule can place this many chunks.
bool SchedulePlaces(const v1::Parallelism& parallelism, int64_t chunks);

}  // namespace legoai::parallel
