#include "core/recipe/chunks.h"

#include <algorithm>

#include "core/schedule/schedule.h"

namespace legoai::parallel {
namespace {

// The blocks that there would be if the first and the last chunk were as long as the others.
int64_t EvenLayers(const v1::Parallelism& p, int64_t layers) {
  if (p.pipeline_parallel_degree() == 1) return layers;
  return layers + p.pipeline_parallel_first_stage_less_layers() + p.pipeline_parallel_last_stage_less_layers();
}

}  // namespace

int64_t ChunkCount(const v1::Parallelism& p, int64_t layers) {
  const int64_t ranks = p.pipeline_parallel_degree();
  if (ranks == 1) return 1;
  if (!p.has_pipeline_parallel_layers_per_stage()) return Loops(p.pipeline_parallel_schedule()) ? 2 * ranks : ranks;
  const int64_t each = p.pipeline_parallel_layers_per_stage();
  return (EvenLayers(p, layers) + each - 1) / each;
}

std::pair<int64_t, int64_t> LayersOfChunk(const v1::Parallelism& p, int64_t layers, int64_t chunk) {
  const int64_t chunks = ChunkCount(p, layers), even = EvenLayers(p, layers);
  const int64_t each = even / chunks, more = even % chunks;
  const auto first = [&](int64_t c) {
    if (c == 0) return int64_t{0};
    if (c == chunks) return layers;
    return c * each + std::min(c, more) - p.pipeline_parallel_first_stage_less_layers();
  };
  return {first(chunk), first(chunk + 1)};
}

bool EveryChunkHasLayers(const v1::Parallelism& p, int64_t layers) {
  const int64_t chunks = ChunkCount(p, layers);
  if (EvenLayers(p, layers) < chunks) return false;
  for (const int64_t chunk : {int64_t{0}, chunks - 1}) {
    const auto [first, last] = LayersOfChunk(p, layers, chunk);
    if (last <= first) return false;
  }
  return true;
}

bool SchedulePlaces(const v1::Parallelism& p, int64_t chunks) {
  return PlacesChunks(p.pipeline_parallel_schedule(), p.pipeline_parallel_degree(), chunks);
}

}  // namespace legoai::parallel
