// A fused kernel: what one lego::fused of a Trace computes, as data. The pass compile.fuse makes it
// (core/trace/passes/fuse_elementwise.cc), worker/graph/kernel_source.h turns it into C++, cost models read its statements.
//
//   lego::fused(Tensor[] inputs, Tensor(a!)[] written, str kernel) -> Tensor[]
//
// `kernel` is TextOf() a FusedKernel, which says how inputs, written tensors and results lie in one loop over `sizes`. A
// statement is an operator of the Trace that was there before, on registers instead of tensors: float32, whatever the tensors
// are. Registers are numbered in the order in which they come: inputs, then each statement's results. So roundings of what lies
// between two statements are left out, and nothing else differs from the operators one by one. Of the gradient of a norm a
// statement is the part that gives the first result, the gradient of its input (core/trace/passes/norm_gradients.h).
//
// Plain values; const access is thread-safe. Units: elements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/trace/effects.h"
#include "core/trace/trace.h"

namespace legoai::graph {

inline constexpr char kFusedOperator[] = "lego::fused";

// An operator that may be a statement.
struct FusibleOp {
  std::string_view name;             // as in a Trace, with its overload
  std::vector<int> tensors;          // argument positions of operands, which may be wrapped numbers
  std::vector<int> scalars;          // of numbers
  bool in_place = false;             // writes its first argument
  bool along_rows = false;           // looks at more than one element of the last dimension
  bool rolls = false;                // reads elements at other places of the row than it makes
  bool is_tanh_gelu = false;         // its last argument must be "tanh"
  int results = 1;
};
// Null for an operator that is never a statement.
const FusibleOp* FindFusible(std::string_view name);

// A register, or a number.
struct FusedOperand {
  int32_t reg = -1;
  double number = 0;  // where there is no register
  bool operator==(const FusedOperand&) const = default;
};

struct FusedStatement {
  std::string op;
  std::vector<FusedOperand> operands;  // tensors of FusibleOp, then its scalars
  std::vector<int32_t> results;
  bool operator==(const FusedStatement&) const = default;
};

// Where the elements of a loop lie, from the tensor's first one: by dimension of the loop, 0 where the tensor has none.
struct FusedTensor {
  v1::DType dtype = v1::FLOAT32;
  std::vector<int64_t> strides;
  bool operator==(const FusedTensor&) const = default;
};

// A tensor that takes a register's values: made by the kernel, with sizes and strides of its own, or written in place.
struct FusedOutput {
  int32_t reg = -1;
  FusedTensor tensor;
  std::vector<int64_t> own_sizes, own_strides;  // of results
  bool operator==(const FusedOutput&) const = default;
};

struct FusedKernel {
  std::vector<int64_t> sizes;  // of the loop; the last dimension is a row
  std::vector<FusedTensor> inputs;
  std::vector<FusedStatement> statements;
  std::vector<FusedOutput> written, results;
  bool operator==(const FusedKernel&) const = default;

  int64_t Elements() const;
  // Whether a statement looks along rows, so that rows are done as a whole.
  bool HasRows() const;
};

// A line for each part; equal kernels have equal texts.
std::string TextOf(const FusedKernel& kernel);
// Errors: InvalidArgument with the line that is none, and for registers, dimensions or operators that do not fit.
absl::StatusOr<FusedKernel> ParseFusedKernel(absl::string_view text);

// The kernel's text, of an instruction that is a lego::fused; null of any other.
const std::string* FusedKernelText(const Trace& trace, const Instruction& instruction);

}  // namespace legoai::graph
