#include "core/recipe/chunks.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/schedule/schedule_csv.h"

namespace legoai::parallel {
namespace {

constexpr char kLayer[] = "layers.";

int64_t LayersOfPart(const v1::ModelPart& part) {
  return std::count_if(part.modules().begin(), part.modules().end(),
                       [](const std::string& name) { return absl::StartsWith(name, kLayer); });
}

// The blocks that there would be if the first and the last chunk were as long as the others.
int64_t EvenLayers(const v1::Parallelism& p, int64_t layers) {
  if (p.pipeline_parallel_degree() == 1) return layers;
  return layers + p.pipeline_parallel_first_stage_less_layers() + p.pipeline_parallel_last_stage_less_layers();
}

}  // namespace

std::vector<std::string> ModuleNames(int64_t layers) {
  std::vector<std::string> names = {"tok_embeddings"};
  for (int64_t layer = 0; layer < layers; ++layer) names.push_back(absl::StrCat(kLayer, layer));
  names.insert(names.end(), {"norm", "output"});
  return names;
}

bool IsModuleName(const std::string& name) {
  if (!absl::StartsWith(name, kLayer)) return name == "tok_embeddings" || name == "norm" || name == "output";
  const std::string number = name.substr(sizeof kLayer - 1);
  const bool digits = !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
  return digits && (number == "0" || number[0] != '0');
}

std::shared_ptr<const Schedule> ListedSchedule(const v1::Parallelism& p) {
  const std::string& text = p.pipeline_parallel_schedule_csv();
  if (text.empty()) return nullptr;
  // Rules, placement and closed forms of every recipe of a plan ask for the same one.
  static thread_local std::string last_text;
  static thread_local std::shared_ptr<const Schedule> last_schedule;
  if (last_text != text) {
    auto schedule = ParseScheduleCsv("", text);
    last_schedule = schedule.ok() ? std::make_shared<const Schedule>(*std::move(schedule)) : nullptr;
    last_text = text;
  }
  return last_schedule;
}

int64_t ChunkCount(const v1::Parallelism& p, int64_t layers) {
  const int64_t ranks = p.pipeline_parallel_degree();
  if (ranks == 1) return 1;
  if (p.module_fqns_per_model_part_size() > 0) return p.module_fqns_per_model_part_size();
  if (!p.has_pipeline_parallel_layers_per_stage()) {
    if (const auto listed = ListedSchedule(p)) return listed->placement.chunks;
    return Loops(p.pipeline_parallel_schedule()) ? 2 * ranks : ranks;
  }
  const int64_t each = p.pipeline_parallel_layers_per_stage();
  return (EvenLayers(p, layers) + each - 1) / each;
}

std::pair<int64_t, int64_t> LayersOfChunk(const v1::Parallelism& p, int64_t layers, int64_t chunk) {
  if (p.pipeline_parallel_degree() > 1 && p.module_fqns_per_model_part_size() > 0) {
    int64_t first = 0;
    for (int64_t before = 0; before < chunk; ++before) first += LayersOfPart(p.module_fqns_per_model_part(before));
    return {first, first + LayersOfPart(p.module_fqns_per_model_part(chunk))};
  }
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

Placement PlacementOf(const v1::Parallelism& p, int64_t layers) {
  const Placement placement =
      PlacementOf(p.pipeline_parallel_schedule(), p.pipeline_parallel_degree(), ChunkCount(p, layers));
  const auto listed = ListedSchedule(p);
  return {placement.ranks, placement.chunks, listed ? listed->placement.in_v : placement.in_v};
}

bool SchedulePlaces(const v1::Parallelism& p, int64_t chunks) {
  if (const auto listed = ListedSchedule(p)) return chunks == listed->placement.chunks;
  return PlacesChunks(p.pipeline_parallel_schedule(), p.pipeline_parallel_degree(), chunks);
}

}  // namespace legoai::parallel
