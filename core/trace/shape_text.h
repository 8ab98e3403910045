// What goes into an operator and comes out of it, in words. Refers to the Trace, which must outlive it. Thread-safety: const.
#pragma once

#include <string>
#include <vector>

#include "core/trace/effects.h"
#include "core/trace/trace.h"

namespace legoai::graph {

class ShapeText {
 public:
  explicit ShapeText(const Trace& trace);
  // "bfloat16[8192,4096] bfloat16[4096,1024] -> bfloat16[8192,1024]"; of a list its first tensors.
  std::string Of(const InstructionView& op) const;

 private:
  const Trace* trace_;
  std::vector<std::string> shapes_;  // by geometry
};

}  // namespace legoai::graph
