// The second level of a Trace. Its instructions are templates: each distinct part of a step once. A step is a list of instances
// of them: which part, for which microbatch, with which storages. Memory simulator and engine walk instances, so nothing is
// copied per microbatch or stage; Flatten gives the equivalent Trace of one level.
//
// Plain values; const access is thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/trace/trace.h"

namespace legoai::graph {

// Instructions [begin, end) of the Trace, run once. A "position" is an instruction's index among all that a step runs.
struct Instance {
  uint32_t begin = 0, end = 0;
  uint32_t position = 0;                 // of the first one
  uint32_t binding = 0;                  // index into Instances::bindings
  int32_t action = -1, microbatch = -1;  // as in Instruction
  // Integers and offsets grow with the microbatch: by `steps` times their growth since the part that begins at `before`.
  uint32_t before = 0;
  int32_t steps = 0;

  int64_t Grown(int64_t at, int64_t at_before) const { return at + steps * (at - at_before); }
  uint32_t Before(uint32_t instruction) const { return steps == 0 ? instruction : before + (instruction - begin); }
  uint32_t PositionOf(uint32_t instruction) const { return position + (instruction - begin); }
};

inline constexpr int32_t kSharedPiece = -1;  // the same storage in every instance
inline constexpr int64_t kUnbound = -1;

// Layers from number `from` on, up to the next shift's, are `by` further on. Of a list `from` ascends; earlier layers stay.
struct LayerShift {
  int64_t from = 0, by = 0;
};

struct Instances {
  std::vector<Instance> list;
  // By storage of the Trace: its piece and its number within the piece. An instance binds each piece that it uses to consecutive
  // storages of the step.
  std::vector<int32_t> pieces;
  std::vector<uint32_t> places;
  std::vector<std::vector<int64_t>> bindings;  // by piece: the first of its storages; kUnbound: not used
  uint32_t storages = 0;                       // of the step; the first ones are those of the Trace
  // From the captured pipeline rank to this one: added to the layer numbers in names, and to peers.
  std::vector<LayerShift> layer_shifts;
  int64_t rank_shift = 0;
  std::vector<mesh::Group> groups;  // of this rank

  uint32_t StorageOf(const Instance& instance, uint32_t storage) const {
    const int32_t piece = pieces[storage];
    return piece == kSharedPiece ? storage : static_cast<uint32_t>(bindings[instance.binding][piece]) + places[storage];
  }
  uint32_t positions() const { return list.empty() ? 0 : list.back().position + (list.back().end - list.back().begin); }
  int64_t ResidentBytes() const;  // memory that this takes
};

// The Trace as a single instance.
Instances WholeOf(const Trace& trace);

// How often each instruction of the Trace runs in the step.
std::vector<int64_t> TimesRun(const Trace& trace, const Instances& instances);

// "model.layers.3.mlp" by 4: "model.layers.7.mlp".
std::string ShiftLayer(const std::string& name, const std::vector<LayerShift>& shifts);

// From two levels to one: what a recorder would have written for the whole step, index by index. For checks, comparisons,
// execution, and passes across template boundaries. Pure function.

// `instances` belongs to `trace` and binds every piece that its parts use.
Trace Flatten(const Trace& trace, const Instances& instances);

}  // namespace legoai::graph
