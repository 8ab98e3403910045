#include "core/recipe/parallel_dims.h"

#include <algorithm>
#include <functional>

#include "core/recipe/recipe.h"
#include "proto/errors.h"

namespace legoai::parallel {

absl::StatusOr<ParallelDims> ParallelDims::Create(const v1::Recipe& recipe, const v1::Model& model, int64_t world_size) {
  if (const auto violation = FirstViolation(recipe, model, world_size)) {
    return FieldError(violation->field, violation->value, violation->remedy);
  }
  v1::Recipe full = recipe;
  FillDefaults(&full);
  ParallelDims dims;
  dims.layout_ = DeriveLayout(full, world_size);
  dims.num_layers_ = model.num_hidden_layers();
  const v1::Parallelism& parallelism = full.parallelism();
  dims.loss_parallel_ = dims.tp() > 1 && !parallelism.disable_loss_parallel();
  const v1::ReshardPolicy policy = parallelism.fsdp_reshard_after_forward();
  dims.reshard_after_forward_ = policy == v1::RESHARD_ALWAYS || (policy == v1::RESHARD_DEFAULT && dims.pp() == 1);
  return dims;
}

Coordinates ParallelDims::CoordinatesOf(int64_t rank) const {
  Coordinates at;
  at.tp = rank % tp();
  at.shard = rank / tp() % shard();
  at.replicate = rank / (tp() * shard()) % replicate();
  at.pp = rank / (tp() * shard() * replicate());
  return at;
}

int64_t ParallelDims::RankOf(const Coordinates& at) const {
  return ((at.pp * replicate() + at.replicate) * shard() + at.shard) * tp() + at.tp;
}

int64_t ParallelDims::DataParallelRank(int64_t rank) const {
  const Coordinates at = CoordinatesOf(rank);
  return at.replicate * shard() + at.shard;
}

std::vector<graph::Group> ParallelDims::Groups(int64_t rank) const {
  const Coordinates mine = CoordinatesOf(rank);
  // The ranks of a line or plane of the mesh: my coordinates, changed by `set` to each of `size` places.
  const auto group = [&](const char* name, int64_t size, const std::function<void(Coordinates&, int64_t)>& set) {
    graph::Group made{name, {}};
    for (int64_t i = 0; i < size; ++i) {
      Coordinates at = mine;
      set(at, i);
      made.ranks.push_back(RankOf(at));
    }
    return made;
  };
  return {group("world", world_size(), [this](Coordinates& at, int64_t i) { at = CoordinatesOf(i); }),
          group("pp", pp(), [](Coordinates& at, int64_t i) { at.pp = i; }),
          group("dp_replicate", replicate(), [](Coordinates& at, int64_t i) { at.replicate = i; }),
          group("dp_shard", shard(), [](Coordinates& at, int64_t i) { at.shard = i; }),
          group("tp", tp(), [](Coordinates& at, int64_t i) { at.tp = i; }),
          group("dp", dp(), [this](Coordinates& at, int64_t i) {
            at.replicate = i / shard();
            at.shard = i % shard();
          })};
}

std::pair<int64_t, int64_t> ParallelDims::LayersOf(int64_t rank) const {
  return StageLayers(num_layers_, pp(), CoordinatesOf(rank).pp);
}

v1::Recipe ParallelDims::Resolve(v1::Recipe recipe) const {
  FillDefaults(&recipe);
  recipe.mutable_parallelism()->set_data_parallel_shard_degree(shard());
  recipe.mutable_training()->set_global_batch_size(global_batch());
  return recipe;
}

std::pair<int64_t, int64_t> StageLayers(int64_t num_layers, int64_t stages, int64_t stage) {
  const int64_t each = num_layers / stages, more = num_layers % stages;
  const auto first = [&](int64_t s) { return s * each + std::min(s, more); };
  return {first(stage), first(stage + 1)};
}

}  // namespace legoai::parallel
