// What the C++ and the CUDA of a fused kernel (core/trace/fused_kernel.h) have in common: which pass over a row computes what,
// and statements as expressions. A target says how elements are read, what an earlier pass left is found, and passes are written.
//
// A value has a level: that of the pass over the row in which it can be computed, for a sum over the row is there only after a
// pass. What an earlier pass computed is kept, what it read is read again. Names: i0, w0, o0 are pointers to the first elements
// of a row of inputs, written tensors and results; v3_0 is register 3, rolled by 0; s3 is one number of a row; j is the element.
//
// Used once, by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/trace/fused_kernel.h"

namespace legoai::graph {

class KernelWriter {
 protected:
  explicit KernelWriter(const FusedKernel& kernel);
  virtual ~KernelWriter() = default;

  struct Register {
    int input = -1;  // or of a statement
    const FusedStatement* statement = nullptr;
    int level = 0;
    bool is_row = false;  // one number for a row: the sum over it, or an input
  };

  // A sum over the row, and what is made of it: a register, or a number of the statement's own.
  struct Sum {
    int level = 0;  // of the pass that takes it
    const FusedStatement* statement = nullptr;
    enum { kSquares, kMean, kDeviations, kGradient, kGradientAlong } of = kSquares;
    int32_t row = -1;
    const char* suffix = "";
    std::string Name() const;
  };

  // What one pass does with an element of one segment of the row: [begin, the next of bounds_).
  struct Body {
    int level = 0;
    int64_t begin = 0;
    std::string before = {}, text = {}, after = {};  // once for what is read and written at once, for each element
    std::map<std::pair<int32_t, int64_t>, std::string> names = {};  // of registers, rolled
  };

  // The element of an input that lies `shift` before j, as a float.
  virtual std::string Element(Body* body, int input, int64_t shift) = 0;
  // The same of a register of an earlier pass, which has to keep it.
  virtual std::string Kept(Body* body, int32_t reg, int64_t shift) = 0;

  int64_t Rolled(int64_t shift, int64_t by) const { return ((shift + by) % width_ + width_) % width_; }
  // From j to the element `shift` before it, round the row, in the segment of `body`.
  int64_t Plus(const Body& body, int64_t shift) const { return body.begin >= shift ? -shift : width_ - shift; }
  // That element: "j", "(j + 64)".
  std::string Index(const Body& body, int64_t shift) const;
  // Where it lies in a tensor.
  std::string At(const Body& body, int64_t shift, int64_t stride) const;
  // " + (row / 12 % 3) * 40L", from a tensor's first element to that of the row.
  std::string RowOffset(const FusedTensor& tensor) const;

  // A register's value in the pass, which `body` computes before if need be.
  absl::StatusOr<std::string> Name(Body* body, int32_t reg, int64_t shift);
  // What a sum adds for the element.
  absl::StatusOr<std::string> Term(Body* body, const Sum& sum);
  std::vector<Sum> Sums(int level) const;
  // The number that is made of the sum `total`: the mean, or 1 / sqrt(mean + eps).
  std::string RowValue(const Sum& sum, const std::string& total) const;

  // Calls add("w0", written[0]), ..., add("o0", results[0]), ...
  template <class Add>
  absl::Status ForEachOutput(Add add) const {
    for (size_t i = 0; i < kernel_.written.size(); ++i) {
      const absl::Status status = add(NameOf('w', i), kernel_.written[i]);
      if (!status.ok()) return status;
    }
    for (size_t i = 0; i < kernel_.results.size(); ++i) {
      const absl::Status status = add(NameOf('o', i), kernel_.results[i]);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  // Calls add('i', 0, inputs[0]), ..., add('w', 0, ...), ..., add('o', 0, ...), ...: the order of a kernel's arguments.
  template <class Add>
  void ForEachTensor(Add add) const {
    for (size_t i = 0; i < kernel_.inputs.size(); ++i) add('i', i, kernel_.inputs[i]);
    for (size_t i = 0; i < kernel_.written.size(); ++i) add('w', i, kernel_.written[i].tensor);
    for (size_t i = 0; i < kernel_.results.size(); ++i) add('o', i, kernel_.results[i].tensor);
  }
  // Whether the pass stores the output, element by element.
  bool IsStoredIn(int level, const FusedOutput& output) const;
  // "  const float s0 = Load(*i0);\n" for each input that is one number of a row.
  std::string RowInputs() const;

  static std::string NameOf(char kind, size_t i);
  static const char* CType(v1::DType dtype) { return dtype == v1::BFLOAT16 ? "bf16" : "float"; }

  const FusedKernel& kernel_;
  const int64_t width_;  // elements of a row
  std::vector<Register> registers_;
  std::vector<Sum> sums_;
  std::vector<int64_t> bounds_;  // of the segments of a row
  int levels_ = 1;

 private:
  void Define(const FusedStatement& statement);
  void FindShifts();
  absl::StatusOr<std::string> Name(Body* body, const FusedOperand& operand, int64_t shift);
  absl::StatusOr<std::string> Expression(Body* body, const FusedStatement& statement, int64_t shift);
  absl::StatusOr<std::string> GradientTerm(Body* body, const Sum& sum);
};

}  // namespace legoai::graph
