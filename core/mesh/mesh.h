// The mesh of a job's ranks: ordered, named dimensions, and the groups of ranks that talk along them.
//
// Outermost to innermost pp, dp_replicate, dp_shard, cp, tp:
//   rank = (((pp * dp_replicate_degree + dp_replicate) * dp_shard_degree + dp_shard) * cp_degree + cp) * tp_degree + tp,
// so that tensor parallel, which communicates most, stays among neighbours. Neighbouring dimensions can be combined (kDp), so
// every group is a line of ranks with one stride, and only RankLine::List takes longer on more ranks.
//
// Plain values; const access is thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace legoai::mesh {

// A dimension, several neighbouring ones combined, or the two ends of one (kPpEnds). In the order of Mesh::Groups, which numbers
// a rank's groups. The combined ones:
//   kDp, dp_replicate x dp_shard, divides the batch;
//   kDpCp, with cp, all ranks that see other tokens: what a loss and its gradients are summed over;
//   kDpShardCp, dp_shard x cp, divides parameters under FSDP.
// And two that a recipe may ask for:
//   kReshard, neighbours of kDpShardCp, divides parameters between their forward and their backward;
//   kTpGather has the ranks of kTp, for gathers beside what is computed, which need a communicator of their own.
enum class Dim : uint8_t {
  kWorld,
  kPp,
  kDpReplicate,
  kDpShard,
  kTp,
  kDp,
  kPpEnds,
  kCp,
  kDpCp,
  kDpShardCp,
  kReshard,
  kTpGather
};
inline constexpr Dim kAllDims[] = {Dim::kWorld, Dim::kPp,     Dim::kDpReplicate, Dim::kDpShard, Dim::kTp,      Dim::kDp,
                                   Dim::kPpEnds, Dim::kCp,    Dim::kDpCp,        Dim::kDpShardCp, Dim::kReshard, Dim::kTpGather};

// "dp_shard": the name in files, flight records and messages.
const char* NameOf(Dim dim);
// False for an unknown name.
bool DimFromName(std::string_view name, Dim* dim);

// The ranks first, first + stride, ...: `size` of them.
struct RankLine {
  int64_t first = 0, stride = 1, size = 1;

  int64_t operator[](int64_t index) const { return first + index * stride; }
  int64_t last() const { return (*this)[size - 1]; }
  int64_t IndexOf(int64_t rank) const;  // -1 for a rank that is not in it
  std::vector<int64_t> List() const;    // to open a communicator or to print the ranks
  bool operator==(const RankLine&) const = default;
};

struct Group {
  Dim dim = Dim::kWorld;
  RankLine ranks;
  bool operator==(const Group&) const = default;
};

// Degrees, each at least 1.
struct Mesh {
  int64_t pp = 1, dp_replicate = 1, dp_shard = 1, cp = 1, tp = 1;
  bool ends_talk = false;  // the first and the last rank of a pipeline, which hold a tied embedding both
  int64_t reshard = 1;     // of kReshard; divides dp_shard x cp
  bool gathers_beside = false;  // there is kTpGather

  int64_t dp() const { return dp_replicate * dp_shard; }
  int64_t world() const { return pp * dp() * cp * tp; }

  int64_t Size(Dim dim) const;
  int64_t Stride(Dim dim) const;                 // from a rank to its neighbour along `dim`
  int64_t IndexOf(Dim dim, int64_t rank) const;  // where the rank stands along `dim`
  // The ranks that differ from `rank` along `dim` only, itself included; for kPpEnds only itself, except for ends that
  // communicate.
  RankLine LineOf(Dim dim, int64_t rank) const;
  std::vector<Group> Groups(int64_t rank) const;  // of every dimension, also those of size 1
  int64_t FirstRankOfStage(int64_t stage) const { return stage * Stride(Dim::kPp); }

  bool operator==(const Mesh&) const = default;
};

}  // namespace legoai::mesh
