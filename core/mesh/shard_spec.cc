#include "core/mesh/shard_spec.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace legoai::parallel {
namespace {

int64_t Product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<int64_t>());
}

}  // namespace

int64_t ShardSpec::Elements() const { return Product(sizes); }
int64_t ShardSpec::GlobalElements() const { return Product(global_shape); }
bool ShardSpec::IsShardedOver(mesh::Dim dim) const {
  return std::find(sharded_over.begin(), sharded_over.end(), dim) != sharded_over.end();
}

ShardSpec Unsharded(std::string name, std::vector<int64_t> global_shape) {
  ShardSpec spec;
  spec.name = std::move(name);
  spec.offsets.assign(global_shape.size(), 0);
  spec.sizes = global_shape;
  spec.global_shape = std::move(global_shape);
  return spec;
}

void Cut(ShardSpec* spec, int64_t dim, int64_t degree, int64_t index, mesh::Dim over) {
  if (degree == 1) return;
  const int64_t size = spec->sizes[dim], piece = (size + degree - 1) / degree;
  const int64_t begin = std::min(piece * index, size), end = std::min(piece * (index + 1), size);
  spec->offsets[dim] += begin;
  spec->sizes[dim] = end - begin;
  spec->sharded_over.push_back(over);
}

}  // namespace legoai::parallel
