// What a step holds in memory at each of its instructions, kept up to date while the pass "fuse" chooses its groups.
//
// A step may hold more than before at an instruction that takes no memory inside its kernel, up to the peak of the step without
// fusion. At the others, whose kernels' memory is known only where they run (simulator/memory/workspace.h), it may hold what it
// held. So, with kernels' memory counted, whatever that is, the step's peak never rises. Not thread-safe. Units: bytes.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/trace/trace.h"

namespace legoai::graph {

class StepMemory {
 public:
  // Places in time: an instruction runs at AtOf() it, and what a pass inserts before it at BeforeOf() it. What comes to one place
  // counts as if it were there at once.
  static int64_t BeforeOf(uint32_t instruction) { return 2 * static_cast<int64_t>(instruction); }
  static int64_t AtOf(uint32_t instruction) { return BeforeOf(instruction) + 1; }

  // From a place on, until before another; nothing where `until` is not behind `from`.
  struct Held {
    int64_t from = 0, until = 0;
  };

  explicit StepMemory(const Trace& trace);

  // Of a storage that the step makes.
  const Held& HeldNow(uint32_t storage) const { return held_[storage]; }

  // Makes the change where memory stays within its bounds; else everything stays as it was. `held`: storages that are held
  // otherwise; `removed`: instructions that do not run any more, and so take nothing inside.
  bool TryChange(const std::map<uint32_t, Held>& held, const std::vector<uint32_t>& removed);

 private:
  std::vector<int64_t> bytes_;  // by storage
  std::vector<Held> held_;
  std::vector<int64_t> live_, most_;  // by place in time
  int64_t peak_ = 0;
};

}  // namespace legoai::graph
