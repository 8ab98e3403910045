#include "core/trace/fused_kernel.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/status.h"

namespace legoai::graph {
namespace {

constexpr size_t kMostDimensions = 16, kMostTensors = 64;

std::string TextOf(const FusedOperand& operand) {
  if (operand.reg >= 0) return absl::StrCat("r", operand.reg);
  char number[40];
  std::snprintf(number, sizeof number, "%.17g", operand.number);
  return number;
}

void AppendOutput(const char* what, const FusedOutput& output, std::string* text) {
  absl::StrAppend(text, what, " r", output.reg, " ", v1::DType_Name(output.tensor.dtype), " {",
                  absl::StrJoin(output.tensor.strides, ","), "}/[", absl::StrJoin(output.own_sizes, ","), "]{",
                  absl::StrJoin(output.own_strides, ","), "}\n");
}

// Reads the text of one kernel, line by line.
class Parser {
 public:
  absl::StatusOr<FusedKernel> Run(absl::string_view text) {
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      if (!Line(line))
        return absl::InvalidArgumentError(absl::StrCat("a fused kernel has the line \"", line, "\", which is not valid"));
    }
    if (kernel_.sizes.empty() || kernel_.written.size() + kernel_.results.size() == 0)
      return absl::InvalidArgumentError("a fused kernel has no loop, or writes nothing");
    return std::move(kernel_);
  }

 private:
  using Words = std::vector<absl::string_view>;

  bool Line(absl::string_view line) {
    const Words words = absl::StrSplit(line, ' ');
    if (words[0] == "loop")
      return words.size() == 2 && kernel_.sizes.empty() && Numbers(words[1], "", "", &kernel_.sizes) && Sizes();
    if (kernel_.sizes.empty()) return false;
    if (words[0] == "in") return words.size() == 3 && Input(words);
    if (words[0] == "do") return words.size() >= 4 && Statement(words);
    if (words[0] == "write" || words[0] == "make") return words.size() == 4 && Output(words);
    return false;
  }

  bool Sizes() const {
    int64_t all = 1;
    for (const int64_t size : kernel_.sizes) {
      if (size <= 0 || all > std::numeric_limits<int64_t>::max() / 16 / size) return false;
      all *= size;
    }
    return kernel_.sizes.size() <= kMostDimensions;
  }

  static bool Numbers(absl::string_view word, absl::string_view open, absl::string_view close, std::vector<int64_t>* numbers) {
    if (word.size() < open.size() + close.size() || word.substr(0, open.size()) != open) return false;
    word.remove_prefix(open.size());
    if (word.substr(word.size() - close.size()) != close) return false;
    word.remove_suffix(close.size());
    if (word.empty()) return true;
    for (const absl::string_view part : absl::StrSplit(word, ',')) {
      if (!absl::SimpleAtoi(part, &numbers->emplace_back())) return false;
    }
    return true;
  }

  static bool DType(absl::string_view word, v1::DType* dtype) {
    return v1::DType_Parse(std::string(word), dtype) && (*dtype == v1::FLOAT32 || *dtype == v1::BFLOAT16);
  }

  bool Tensor(absl::string_view dtype, absl::string_view strides, FusedTensor* tensor) const {
    return DType(dtype, &tensor->dtype) && Numbers(strides, "{", "}", &tensor->strides) &&
           tensor->strides.size() == kernel_.sizes.size();
  }

  bool Input(const Words& words) {
    if (!kernel_.statements.empty() || kernel_.inputs.size() == kMostTensors) return false;
    ++registers_;
    return Tensor(words[1], words[2], &kernel_.inputs.emplace_back());
  }

  bool Register(absl::string_view word, int32_t* reg) const {
    return word.size() > 1 && word[0] == 'r' && absl::SimpleAtoi(word.substr(1), reg) && *reg >= 0 && *reg < registers_;
  }

  bool Statement(const Words& words) {
    FusedStatement& statement = kernel_.statements.emplace_back();
    statement.op = std::string(words[1]);
    const FusibleOp* const op = FindFusible(statement.op);
    if (op == nullptr) return false;
    size_t at = 2;
    for (; at < words.size() && words[at] != ">"; ++at) {
      if (words[at].empty()) return false;
      FusedOperand& operand = statement.operands.emplace_back();
      if (words[at][0] == 'r' ? !Register(words[at], &operand.reg) : !absl::SimpleAtod(words[at], &operand.number)) return false;
    }
    for (++at; at < words.size(); ++at) {
      if (words[at] != absl::StrCat("r", registers_)) return false;
      statement.results.push_back(registers_++);
    }
    for (size_t i = op->tensors.size(); i < statement.operands.size(); ++i) {
      if (statement.operands[i].reg >= 0) return false;
    }
    return statement.operands.size() == op->tensors.size() + op->scalars.size() &&
           statement.results.size() == static_cast<size_t>(op->results);
  }

  bool Output(const Words& words) {
    FusedOutput output;
    const Words parts = absl::StrSplit(words[3], '/');  // strides in the loop, then the tensor's own sizes and strides
    if (kernel_.written.size() + kernel_.results.size() == kMostTensors || !Register(words[1], &output.reg)) return false;
    if (parts.size() != 2 || !Tensor(words[2], parts[0], &output.tensor)) return false;
    const size_t middle = parts[1].find('{');
    if (middle == absl::string_view::npos || !Numbers(parts[1].substr(0, middle), "[", "]", &output.own_sizes) ||
        !Numbers(parts[1].substr(middle), "{", "}", &output.own_strides) || output.own_sizes.size() != output.own_strides.size())
      return false;
    (words[0] == "write" ? kernel_.written : kernel_.results).push_back(std::move(output));
    return true;
  }

  FusedKernel kernel_;
  int32_t registers_ = 0;
};

const std::vector<FusibleOp>& Fusibles() {
  static const auto* const ops = new std::vector<FusibleOp>{
      {.name = "aten::add.Tensor", .tensors = {0, 1}, .scalars = {2}},
      {.name = "aten::sub.Tensor", .tensors = {0, 1}, .scalars = {2}},
      {.name = "aten::mul.Tensor", .tensors = {0, 1}, .scalars = {}},
      {.name = "aten::div.Tensor", .tensors = {0, 1}, .scalars = {}},
      {.name = "aten::add_.Tensor", .tensors = {0, 1}, .scalars = {2}, .in_place = true},
      {.name = "aten::mul_.Tensor", .tensors = {0, 1}, .scalars = {}, .in_place = true},
      {.name = "aten::neg", .tensors = {0}, .scalars = {}},
      {.name = "aten::addcmul", .tensors = {0, 1, 2}, .scalars = {3}},
      {.name = "aten::_to_copy", .tensors = {0}, .scalars = {}},
      {.name = "aten::silu", .tensors = {0}, .scalars = {}},
      {.name = "aten::silu_backward", .tensors = {0, 1}, .scalars = {}},
      {.name = "aten::gelu", .tensors = {0}, .scalars = {}, .is_tanh_gelu = true},
      {.name = "aten::gelu_backward", .tensors = {0, 1}, .scalars = {}, .is_tanh_gelu = true},
      {.name = "aten::roll", .tensors = {0}, .scalars = {1}, .along_rows = true, .rolls = true},
      {.name = "lego::rms_norm", .tensors = {0, 1}, .scalars = {2}, .along_rows = true, .results = 2},
      {.name = "aten::native_layer_norm", .tensors = {0, 2, 3}, .scalars = {4}, .along_rows = true, .results = 3},
      // (grad, x, weight, rstd) and (grad, x, mean, rstd, weight).
      {.name = "lego::rms_norm_backward", .tensors = {0, 1, 2, 3}, .scalars = {}, .along_rows = true},
      {.name = "aten::native_layer_norm_backward", .tensors = {0, 1, 3, 4, 5}, .scalars = {}, .along_rows = true},
  };
  return *ops;
}

}  // namespace

const FusibleOp* FindFusible(std::string_view name) {
  const auto& ops = Fusibles();
  const auto found = std::find_if(ops.begin(), ops.end(), [&](const FusibleOp& op) { return op.name == name; });
  return found == ops.end() ? nullptr : &*found;
}

int64_t FusedKernel::Elements() const {
  int64_t elements = 1;
  for (const int64_t size : sizes) elements *= size;
  return elements;
}

bool FusedKernel::HasRows() const {
  return std::any_of(statements.begin(), statements.end(), [](const FusedStatement& statement) {
    const FusibleOp* const op = FindFusible(statement.op);
    return op != nullptr && op->along_rows;
  });
}

std::string TextOf(const FusedKernel& kernel) {
  std::string text = absl::StrCat("loop ", absl::StrJoin(kernel.sizes, ","), "\n");
  for (const FusedTensor& input : kernel.inputs) {
    absl::StrAppend(&text, "in ", v1::DType_Name(input.dtype), " {", absl::StrJoin(input.strides, ","), "}\n");
  }
  for (const FusedStatement& statement : kernel.statements) {
    absl::StrAppend(&text, "do ", statement.op);
    for (const FusedOperand& operand : statement.operands) absl::StrAppend(&text, " ", TextOf(operand));
    absl::StrAppend(&text, " >");
    for (const int32_t result : statement.results) absl::StrAppend(&text, " r", result);
    absl::StrAppend(&text, "\n");
  }
  for (const FusedOutput& output : kernel.written) AppendOutput("write", output, &text);
  for (const FusedOutput& output : kernel.results) AppendOutput("make", output, &text);
  return text;
}

absl::StatusOr<FusedKernel> ParseFusedKernel(absl::string_view text) { return Parser().Run(text); }

const std::string* FusedKernelText(const Trace& trace, const Instruction& instruction) {
  if (instruction.kind != Instruction::Kind::kOperator || trace.OperatorName(instruction) != kFusedOperator) return nullptr;
  const Argument& last = trace.arguments[instruction.first_argument + instruction.argument_count - 1];
  return last.kind == Argument::Kind::kConstant ? std::get_if<std::string>(&trace.constants[last.index]) : nullptr;
}

}  // namespace legoai::graph
