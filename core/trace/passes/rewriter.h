// Rewrites the list of a Trace's instructions: what is removed, moved or added. Storages and values keep their numbers, so that a
// Trace before and after a pass can be compared by them; RunPasses drops what is no longer used in the end.
//
// Places are numbers of instructions before the rewriting. What comes to one place comes there in the order of the calls. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/trace/trace.h"

namespace legoai::graph {

class Rewriter {
 public:
  explicit Rewriter(Trace trace);

  // Values, storages and columns may be changed; instructions only through the calls below.
  Trace& trace() { return trace_; }
  const Instruction& At(uint32_t instruction) const { return trace_.instructions[instruction]; }
  uint32_t size() const { return static_cast<uint32_t>(trace_.instructions.size()); }

  void Remove(uint32_t instruction) { removed_[instruction] = true; }
  // `place`: the instruction before which it comes; their number: at the end.
  void Insert(uint32_t place, const Instruction& instruction) { inserted_[place].push_back(instruction); }
  void Move(uint32_t instruction, uint32_t place) {
    Insert(place, At(instruction));
    Remove(instruction);
  }
  // `like` again, with another constant or another value in place of the arguments and results at some positions.
  struct Change {
    int argument = -1, result = -1;  // one of them
    Argument to;
  };
  Instruction Again(const Instruction& like, const std::vector<Change>& changes);

  // An operator with the marks of `like` (phase, microbatch, module). `writes`: as of Operator; `results`: values.
  Instruction Make(const Instruction& like, const std::string& name, uint64_t writes, const std::vector<Argument>& arguments,
                   const std::vector<uint32_t>& results, int64_t stream);

  uint32_t AddConstant(Constant constant);
  uint32_t AddValue(uint32_t storage, Geometry geometry);
  uint32_t AddModule(const std::string& path);

  // The Trace with its new list. A free before the last use of its storage is put off until after that.
  Trace Finish();

 private:
  Trace trace_;
  std::vector<char> removed_;
  std::vector<std::vector<Instruction>> inserted_;
};

// Which storages each operator uses; a view uses none: it reads and writes no memory.
bool IsViewOf(const Trace& trace, const Instruction& instruction);

// The storages of an operator's tensors, each once, views included.
std::vector<uint32_t> StoragesOf(const Trace& trace, const Instruction& instruction);

}  // namespace legoai::graph
