#include "worker/graph/kernel_writer.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/status.h"

namespace legoai::graph {
namespace {

// A number as a float of C++.
std::string Literal(double number) {
  std::string text = absl::StrFormat("%.9g", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return absl::StrCat("(", text, "f)");
}

}  // namespace

std::string KernelWriter::Sum::Name() const { return absl::StrCat(row, suffix); }
std::string KernelWriter::NameOf(char kind, size_t i) { return absl::StrCat(std::string(1, kind), i); }

KernelWriter::KernelWriter(const FusedKernel& kernel) : kernel_(kernel), width_(kernel.sizes.back()) {
  for (size_t i = 0; i < kernel.inputs.size(); ++i) {
    const bool is_row = kernel.HasRows() && kernel.inputs[i].strides.back() == 0;
    registers_.push_back({.input = static_cast<int>(i), .is_row = is_row});
  }
  for (const FusedStatement& statement : kernel.statements) Define(statement);
  for (const Register& r : registers_) levels_ = std::max(levels_, r.level + 1);
  FindShifts();
}

void KernelWriter::Define(const FusedStatement& statement) {
  int level = 0;
  for (const FusedOperand& operand : statement.operands) {
    if (operand.reg >= 0) level = std::max(level, registers_[operand.reg].level);
  }
  if (statement.op == "lego::rms_norm") {
    sums_.push_back({level, &statement, Sum::kSquares, statement.results[1]});
    registers_.push_back({.statement = &statement, .level = level + 1});
    registers_.push_back({.statement = &statement, .level = level + 1, .is_row = true});
  } else if (statement.op == "aten::native_layer_norm") {
    sums_.push_back({level, &statement, Sum::kMean, statement.results[1]});
    sums_.push_back({level + 1, &statement, Sum::kDeviations, statement.results[2]});
    registers_.push_back({.statement = &statement, .level = level + 2});
    registers_.push_back({.statement = &statement, .level = level + 1, .is_row = true});
    registers_.push_back({.statement = &statement, .level = level + 2, .is_row = true});
  } else if (statement.op == "lego::rms_norm_backward" || statement.op == "aten::native_layer_norm_backward") {
    const int32_t result = statement.results[0];
    sums_.push_back({level, &statement, Sum::kGradientAlong, result, "x"});
    if (statement.op == "aten::native_layer_norm_backward") sums_.push_back({level, &statement, Sum::kGradient, result, "w"});
    registers_.push_back({.statement = &statement, .level = level + 1});
  } else {
    registers_.push_back({.statement = &statement, .level = level});
  }
}

// How far values are rolled along the row, all together: between two such places every index is j plus a number.
void KernelWriter::FindShifts() {
  std::set<int64_t> shifts = {0};
  for (const FusedStatement& statement : kernel_.statements) {
    if (statement.op != "aten::roll") continue;
    const auto by = static_cast<int64_t>(statement.operands[1].number);
    std::set<int64_t> more = shifts;
    for (const int64_t shift : shifts) more.insert(Rolled(shift, by));
    shifts = std::move(more);
  }
  bounds_.assign(shifts.begin(), shifts.end());
  bounds_.push_back(width_);
}

std::string KernelWriter::Index(const Body& body, int64_t shift) const {
  const int64_t plus = Plus(body, shift);
  return plus == 0 ? "j" : absl::StrCat("(j + ", plus, ")");
}

std::string KernelWriter::At(const Body& body, int64_t shift, int64_t stride) const {
  return stride == 0 ? "0" : stride == 1 ? Index(body, shift) : absl::StrCat(Index(body, shift), " * ", stride, "L");
}

std::string KernelWriter::RowOffset(const FusedTensor& tensor) const {
  std::string text;
  int64_t inner = 1;
  for (size_t d = kernel_.sizes.size() - 1; d-- > 0;) {
    const std::string index = d == 0 ? absl::StrCat("row / ", inner) : absl::StrCat("row / ", inner, " % ", kernel_.sizes[d]);
    if (tensor.strides[d] != 0) absl::StrAppend(&text, " + (", index, ") * ", tensor.strides[d], "L");
    inner *= kernel_.sizes[d];
  }
  return text;
}

std::string KernelWriter::RowInputs() const {
  std::string text;
  for (size_t reg = 0; reg < kernel_.inputs.size(); ++reg) {
    if (registers_[reg].is_row) absl::StrAppend(&text, "const float s", reg, " = Load(*i", reg, ");\n");
  }
  return text;
}

bool KernelWriter::IsStoredIn(int level, const FusedOutput& output) const {
  const Register& r = registers_[output.reg];
  return r.level == level && (!r.is_row || r.input >= 0);
}

absl::StatusOr<std::string> KernelWriter::Name(Body* body, const FusedOperand& operand, int64_t shift) {
  if (operand.reg < 0) return Literal(operand.number);
  return Name(body, operand.reg, shift);
}

absl::StatusOr<std::string> KernelWriter::Name(Body* body, int32_t reg, int64_t shift) {
  const Register& r = registers_[reg];
  if (r.is_row) return absl::StrCat("s", reg);
  if (r.statement != nullptr && r.statement->op == "aten::roll" && r.level == body->level)
    return Name(body, r.statement->operands[0].reg, Rolled(shift, static_cast<int64_t>(r.statement->operands[1].number)));
  const auto found = body->names.find({reg, shift});
  if (found != body->names.end()) return found->second;
  std::string value;
  if (r.input >= 0) {
    value = Element(body, r.input, shift);
  } else if (r.level < body->level) {
    value = Kept(body, reg, shift);
  } else {
    ASSIGN_OR_RETURN(value, Expression(body, *r.statement, shift));
  }
  const std::string name = absl::StrCat("v", reg, "_", shift);
  absl::StrAppend(&body->text, "  const float ", name, " = ", value, ";\n");
  body->names[{reg, shift}] = name;
  return name;
}

absl::StatusOr<std::string> KernelWriter::Expression(Body* body, const FusedStatement& statement, int64_t shift) {
  std::vector<std::string> of;
  for (const FusedOperand& operand : statement.operands) {
    ASSIGN_OR_RETURN(of.emplace_back(), Name(body, operand, shift));
  }
  const std::string& op = statement.op;
  const auto scaled = [&](size_t by, const std::string& term) {
    return statement.operands[by].number == 1 ? term : absl::StrCat(of[by], " * ", term);
  };
  if (op == "aten::add.Tensor" || op == "aten::add_.Tensor") return absl::StrCat(of[0], " + ", scaled(2, of[1]));
  if (op == "aten::sub.Tensor") return absl::StrCat(of[0], " - ", scaled(2, of[1]));
  if (op == "aten::mul.Tensor" || op == "aten::mul_.Tensor") return absl::StrCat(of[0], " * ", of[1]);
  if (op == "aten::div.Tensor") return absl::StrCat(of[0], " / ", of[1]);
  if (op == "aten::neg") return absl::StrCat("-", of[0]);
  if (op == "aten::addcmul") return absl::StrCat(of[0], " + ", scaled(3, absl::StrCat("(", of[1], " * ", of[2], ")")));
  if (op == "aten::_to_copy") return of[0];
  if (op == "aten::silu") return absl::StrCat("Silu(", of[0], ")");
  if (op == "aten::silu_backward") return absl::StrCat("SiluGradient(", of[0], ", ", of[1], ")");
  if (op == "aten::gelu") return absl::StrCat("Gelu(", of[0], ")");
  if (op == "aten::gelu_backward") return absl::StrCat("GeluGradient(", of[0], ", ", of[1], ")");
  const auto row = [&](size_t result) { return absl::StrCat("s", statement.results[result]); };
  if (op == "lego::rms_norm") return absl::StrCat(of[0], " * ", row(1), " * ", of[1]);
  if (op == "aten::native_layer_norm")
    return absl::StrCat("(", of[0], " - ", row(1), ") * ", row(2), " * ", of[1], " + ", of[2]);
  // With n = (x - mean) rstd: rstd (grad weight - mean(grad weight) - n mean(grad weight n)); of RMSNorm the means of x and of
  // grad weight are left out.
  const auto norm_gradient = [&](const std::string& rstd, const std::string& weighted, const std::string& from_mean) {
    const std::string along = absl::StrCat("(", rstd, " * ", rstd, " * ", row(0), "x)");
    return absl::StrCat(rstd, " * (", of[0], " * ", weighted, " - ", from_mean, " * ", along, ")");
  };
  if (op == "lego::rms_norm_backward") return norm_gradient(of[3], of[2], of[1]);
  if (op == "aten::native_layer_norm_backward")
    return norm_gradient(of[3], absl::StrCat(of[4], " - ", row(0), "w"), absl::StrCat("(", of[1], " - ", of[2], ")"));
  return absl::UnimplementedError(absl::StrCat(op, " has no source in fused kernels"));
}

std::vector<KernelWriter::Sum> KernelWriter::Sums(int level) const {
  std::vector<Sum> sums;
  std::copy_if(sums_.begin(), sums_.end(), std::back_inserter(sums), [&](const Sum& sum) { return sum.level == level; });
  return sums;
}

absl::StatusOr<std::string> KernelWriter::Term(Body* body, const Sum& sum) {
  if (sum.of == Sum::kGradient || sum.of == Sum::kGradientAlong) return GradientTerm(body, sum);
  ASSIGN_OR_RETURN(const std::string x, Name(body, sum.statement->operands[0], 0));
  if (sum.of == Sum::kMean) return x;
  if (sum.of == Sum::kSquares) return absl::StrCat(x, " * ", x);
  const std::string from_mean = absl::StrCat("(", x, " - s", sum.statement->results[1], ")");
  return absl::StrCat(from_mean, " * ", from_mean);
}

absl::StatusOr<std::string> KernelWriter::GradientTerm(Body* body, const Sum& sum) {
  const auto& operands = sum.statement->operands;
  const bool has_mean = sum.statement->op == "aten::native_layer_norm_backward";
  ASSIGN_OR_RETURN(const std::string grad, Name(body, operands[0], 0));
  ASSIGN_OR_RETURN(const std::string weight, Name(body, operands[has_mean ? 4 : 2], 0));
  const std::string weighted = absl::StrCat(grad, " * ", weight);
  if (sum.of == Sum::kGradient) return weighted;
  ASSIGN_OR_RETURN(const std::string x, Name(body, operands[1], 0));
  if (!has_mean) return absl::StrCat(weighted, " * ", x);
  ASSIGN_OR_RETURN(const std::string mean, Name(body, operands[2], 0));
  return absl::StrCat(weighted, " * (", x, " - ", mean, ")");
}

std::string KernelWriter::RowValue(const Sum& sum, const std::string& total) const {
  const std::string mean = absl::StrCat(total, " / ", width_, ".0f");
  const bool is_root = sum.of == Sum::kSquares || sum.of == Sum::kDeviations;
  return is_root ? absl::StrCat("InverseRoot(", mean, " + ", Literal(sum.statement->operands.back().number), ")") : mean;
}

}  // namespace legoai::graph
