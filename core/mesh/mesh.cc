#include "core/mesh/mesh.h"

namespace legoai::mesh {

const char* NameOf(Dim dim) {
  switch (dim) {
    case Dim::kWorld: return "world";
    case Dim::kPp: return "pp";
    case Dim::kDpReplicate: return "dp_replicate";
    case Dim::kDpShard: return "dp_shard";
    case Dim::kTp: return "tp";
    case Dim::kDp: return "dp";
    case Dim::kPpEnds: return "pp_ends";
    case Dim::kCp: return "cp";
    case Dim::kDpCp: return "dp_cp";
    case Dim::kDpShardCp: return "dp_shard_cp";
    case Dim::kReshard: return "reshard";
    case Dim::kTpGather: return "tp_gather";
  }
  return "";
}

bool DimFromName(std::string_view name, Dim* dim) {
  for (const Dim known : kAllDims) {
    if (name != NameOf(known)) continue;
    *dim = known;
    return true;
  }
  return false;
}

int64_t RankLine::IndexOf(int64_t rank) const {
  const int64_t distance = rank - first;
  return distance >= 0 && distance % stride == 0 && distance / stride < size ? distance / stride : -1;
}

std::vector<int64_t> RankLine::List() const {
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < size; ++i) ranks.push_back((*this)[i]);
  return ranks;
}

int64_t Mesh::Size(Dim dim) const {
  switch (dim) {
    case Dim::kWorld: return world();
    case Dim::kPp: return pp;
    case Dim::kDpReplicate: return dp_replicate;
    case Dim::kDpShard: return dp_shard;
    case Dim::kTp: return tp;
    case Dim::kDp: return dp();
    case Dim::kPpEnds: return ends_talk && pp > 1 ? 2 : 1;
    case Dim::kCp: return cp;
    case Dim::kDpCp: return dp() * cp;
    case Dim::kDpShardCp: return dp_shard * cp;
    case Dim::kReshard: return reshard;
    case Dim::kTpGather: return gathers_beside ? tp : 1;
  }
  return 1;
}

int64_t Mesh::Stride(Dim dim) const {
  switch (dim) {
    case Dim::kWorld: return 1;
    case Dim::kPp: return dp() * cp * tp;
    case Dim::kDpReplicate: return dp_shard * cp * tp;
    case Dim::kDpShard:
    case Dim::kDp: return cp * tp;
    case Dim::kTp:
    case Dim::kTpGather: return 1;
    case Dim::kPpEnds: return (pp - 1) * dp() * cp * tp;
    case Dim::kCp:
    case Dim::kDpCp:
    case Dim::kDpShardCp:
    case Dim::kReshard: return tp;
  }
  return 1;
}

int64_t Mesh::IndexOf(Dim dim, int64_t rank) const { return Size(dim) == 1 ? 0 : rank / Stride(dim) % Size(dim); }

RankLine Mesh::LineOf(Dim dim, int64_t rank) const {
  const int64_t stage = IndexOf(Dim::kPp, rank), stride = Stride(dim);
  if (dim == Dim::kPpEnds && (Size(dim) == 1 || (stage != 0 && stage != pp - 1))) return {rank, 1, 1};
  return {rank - IndexOf(dim, rank) * stride, stride, Size(dim)};
}

std::vector<Group> Mesh::Groups(int64_t rank) const {
  std::vector<Group> groups;
  for (const Dim dim : kAllDims) groups.push_back({dim, LineOf(dim, rank)});
  return groups;
}

}  // namespace legoai::mesh
