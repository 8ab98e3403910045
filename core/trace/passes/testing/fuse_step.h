// Steps written by hand for the pass "fuse", and what becomes of them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/trace/fused_kernel.h"
#include "core/trace/live_bytes.h"
#include "core/trace/passes/pass_check.h"
#include "core/trace/passes/passes.h"
#include "core/trace/testing/trace_builder.h"

namespace legoai::graph::passes_testing {

inline const std::vector<int64_t> kShape = {2, 3, 8};

// A builder of tensors of one shape; what is made is freed where the test says.
struct Step : TraceBuilder {
  Tensor Make(const std::string& name, std::vector<Arg> arguments, std::vector<int64_t> sizes = kShape) {
    const Tensor made = New(v1::FLOAT32, std::move(sizes));
    Op(name, std::move(arguments), {made});
    return made;
  }
  Tensor Mul(Tensor a, Tensor b) { return Make("aten::mul.Tensor", {a, b}); }
  Tensor Add(Tensor a, Tensor b) { return Make("aten::add.Tensor", {a, b, int64_t{1}}); }
  Tensor Silu(Tensor a) { return Make("aten::silu", {a}); }
  void Done(Tensor tensor) { Free(StorageOf(tensor)).phase = phase; }
  Trace Ending(const std::map<std::string, Tensor>& outputs) {
    Trace made = trace();
    for (const auto& [name, tensor] : outputs) made.outputs[name] = tensor.value;
    return made;
  }
};

// Names of operators in their order, with the statements of fused ones.
inline std::vector<std::string> Operators(const Trace& trace) {
  std::vector<std::string> names;
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.kind != Instruction::Kind::kOperator) continue;
    std::string name = trace.OperatorName(instruction);
    if (const std::string* text = FusedKernelText(trace, instruction)) {
      const FusedKernel kernel = ParseFusedKernel(*text).value();
      name = "fused";
      for (const FusedStatement& statement : kernel.statements) name += " " + statement.op;
    }
    names.push_back(name);
  }
  return names;
}

// `kernels`: bytes that operators take while they run, by name.
inline int64_t Peak(const Trace& trace, const std::map<std::string, int64_t>& kernels = {}) {
  LiveBytes live(trace);
  int64_t peak = live.total();
  for (const Instruction& instruction : trace.instructions) {
    live.Run(instruction);
    const bool is_operator = instruction.kind == Instruction::Kind::kOperator;
    const auto inside = is_operator ? kernels.find(trace.OperatorName(instruction)) : kernels.end();
    peak = std::max(peak, live.total() + (inside == kernels.end() ? 0 : inside->second));
  }
  return peak;
}

// With what must hold of every pass.
inline Trace Fused(const Trace& trace) {
  EXPECT_THAT(TraceFindings(trace), ::testing::IsEmpty()) << "the test's own";
  Trace fused = FuseElementwise(trace).value();
  EXPECT_THAT(TraceFindings(fused), ::testing::IsEmpty());
  EXPECT_THAT(PassFindings(trace, fused), ::testing::IsEmpty());
  EXPECT_LE(Peak(fused), Peak(trace));
  return fused;
}

}  // namespace legoai::graph::passes_testing
