#include "core/trace/instances.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace legoai::graph {

int64_t Instances::ResidentBytes() const {
  size_t bytes = list.capacity() * sizeof(Instance) + pieces.capacity() * sizeof(int32_t) + places.capacity() * sizeof(uint32_t) +
                 groups.capacity() * sizeof(mesh::Group);
  for (const auto& binding : bindings) bytes += sizeof(binding) + binding.capacity() * sizeof(int64_t);
  return static_cast<int64_t>(bytes);
}

Instances WholeOf(const Trace& trace) {
  Instances whole;
  Instance all;
  all.end = static_cast<uint32_t>(trace.instructions.size());
  whole.list.push_back(all);
  whole.pieces.assign(trace.storages.size(), kSharedPiece);
  whole.places.assign(trace.storages.size(), 0);
  whole.bindings.resize(1);
  whole.storages = static_cast<uint32_t>(trace.storages.size());
  whole.groups = trace.groups;
  return whole;
}

std::string ShiftLayer(const std::string& name, int64_t layers) {
  static constexpr char kLayers[] = "layers.";
  const size_t at = layers == 0 ? std::string::npos : name.find(kLayers);
  if (at == std::string::npos) return name;
  const size_t begin = at + sizeof(kLayers) - 1, end = std::min(name.find('.', begin), name.size());
  int64_t layer = 0;
  if (!absl::SimpleAtoi(name.substr(begin, end - begin), &layer)) return name;
  return absl::StrCat(name.substr(0, begin), layer + layers, name.substr(end));
}

}  // namespace legoai::graph
