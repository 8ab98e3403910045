#include "worker/graph/kernel_source.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/status.h"

namespace legoai::graph {
namespace {

constexpr char kPreamble[] = R"(typedef __UINT16_TYPE__ bf16;
static inline float FromBits(__UINT32_TYPE__ bits) { float x; __builtin_memcpy(&x, &bits, 4); return x; }
static inline __UINT32_TYPE__ ToBits(float x) { __UINT32_TYPE__ bits; __builtin_memcpy(&bits, &x, 4); return bits; }
static inline float Load(float x) { return x; }
static inline float Load(bf16 x) { return FromBits((__UINT32_TYPE__)x << 16); }
static inline void Store(float* to, float x) { *to = x; }
static inline void Store(bf16* to, float x) {
  const __UINT32_TYPE__ bits = ToBits(x);
  const __UINT32_TYPE__ nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  *to = (bf16)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : nearest);
}
// 2^n e^r with |r| <= log(2) / 2; 2^n in two factors, so that results below the normal numbers are there, too.
static inline float Exp(float x) {
  const float bounded = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
  const float n = (bounded * 1.44269504f + 12582912.0f) - 12582912.0f;
  const float r = (bounded - n * 0.693145752f) - n * 1.42860677e-6f;
  float p = 1.98412698e-4f;
  p = p * r + 1.38888889e-3f;
  p = p * r + 8.33333333e-3f;
  p = p * r + 4.16666667e-2f;
  p = p * r + 1.66666667e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const int whole = (int)n, half = whole >> 1;
  return p * FromBits((__UINT32_TYPE__)(half + 127) << 23) * FromBits((__UINT32_TYPE__)(whole - half + 127) << 23);
}
static inline float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }
static inline float Silu(float x) { return x / (1.0f + Exp(-x)); }
static inline float SiluGradient(float grad, float x) {
  const float s = Sigmoid(x);
  return grad * s * (1.0f + x * (1.0f - s));
}
// x (1 + tanh(u)) / 2 = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
static inline float Gelu(float x) { return x * Sigmoid(1.59576912f * (x + 0.044715f * x * x * x)); }
static inline float GeluGradient(float grad, float x) {
  const float s = Sigmoid(1.59576912f * (x + 0.044715f * x * x * x));
  return grad * (s + x * s * (1.0f - s) * 1.59576912f * (1.0f + 0.134145f * x * x));
}
static inline float Sum(float* lanes) {
  for (int width = 8; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}
)";

// A number as a float of C++.
std::string Literal(double number) {
  std::string text = absl::StrFormat("%.9g", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return absl::StrCat("(", text, "f)");
}

const char* CType(v1::DType dtype) { return dtype == v1::BFLOAT16 ? "bf16" : "float"; }

// Writes the function. A value has a level: that of the pass over the row in which it can be computed, for a sum over the row
// is there only after a pass. What an earlier pass computed lies in a buffer of a row's length, what it read is read again.
class Writer {
 public:
  explicit Writer(const FusedKernel& kernel) : kernel_(kernel), width_(kernel.sizes.back()) {
    for (size_t i = 0; i < kernel.inputs.size(); ++i) {
      const bool is_row = kernel.HasRows() && kernel.inputs[i].strides.back() == 0;
      registers_.push_back({.input = static_cast<int>(i), .is_row = is_row});
    }
    for (const FusedStatement& statement : kernel.statements) Define(statement);
    for (const Register& r : registers_) levels_ = std::max(levels_, r.level + 1);
    FindShifts();
  }

  absl::StatusOr<std::string> Run() {
    std::vector<std::string> passes(levels_);
    for (int level = levels_ - 1; level >= 0; --level) {  // the later ones say what buffers they need
      ASSIGN_OR_RETURN(passes[level], Pass(level));
    }
    std::string text = absl::StrCat(kPreamble, "extern \"C\" void lego_kernel(void* const* tensors, long begin, long end) {\n");
    if (RangesOverElements(kernel_)) {
      absl::StrAppend(&text, Pointers(), passes[0], "}\n");
      return text;
    }
    for (const int32_t reg : buffered_) absl::StrAppend(&text, "float b", reg, "[", width_, "];\n");
    absl::StrAppend(&text, "for (long row = begin; row < end; ++row) {\n", Pointers(), RowInputs(), absl::StrJoin(passes, ""),
                    "}\n}\n");
    return text;
  }

 private:
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
    std::string Name() const { return absl::StrCat(row, suffix); }
  };

  void Define(const FusedStatement& statement) {
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
      if (statement.op == "aten::native_layer_norm_backward")
        sums_.push_back({level, &statement, Sum::kGradient, result, "w"});
      registers_.push_back({.statement = &statement, .level = level + 1});
    } else {
      registers_.push_back({.statement = &statement, .level = level});
    }
  }

  // How far values are rolled along the row, all together: between two such places every index is j plus a number.
  void FindShifts() {
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
  int64_t Rolled(int64_t shift, int64_t by) const { return ((shift + by) % width_ + width_) % width_; }

  std::string Pointers() const {
    std::string text;
    size_t number = 0;
    const auto add = [&](const char* name, size_t i, const FusedTensor& tensor, const char* access) {
      const std::string type = absl::StrCat(access, CType(tensor.dtype), "*");
      absl::StrAppend(&text, type, " ", name, i, " = (", type, ")tensors[", number, "]", RowOffset(tensor), ";\n");
      ++number;
    };
    for (size_t i = 0; i < kernel_.inputs.size(); ++i) add("i", i, kernel_.inputs[i], "const ");
    for (size_t i = 0; i < kernel_.written.size(); ++i) add("w", i, kernel_.written[i].tensor, "");
    for (size_t i = 0; i < kernel_.results.size(); ++i) add("o", i, kernel_.results[i].tensor, "");
    return text;
  }

  std::string RowInputs() const {
    std::string text;
    for (size_t reg = 0; reg < kernel_.inputs.size(); ++reg) {
      if (registers_[reg].is_row) absl::StrAppend(&text, "const float s", reg, " = Load(*i", reg, ");\n");
    }
    return text;
  }

  std::string RowOffset(const FusedTensor& tensor) const {
    std::string text;
    int64_t inner = 1;
    for (size_t d = kernel_.sizes.size() - 1; d-- > 0;) {
      const std::string whole = absl::StrCat("row / ", inner, "L");
      const std::string index = d == 0 ? whole : absl::StrCat("(", whole, " % ", kernel_.sizes[d], "L)");
      if (tensor.strides[d] != 0) absl::StrAppend(&text, " + ", index, " * ", tensor.strides[d], "L");
      inner *= kernel_.sizes[d];
    }
    return text;
  }

  // The body of one pass for one segment of the row.
  struct Body {
    int level = 0;
    int64_t begin = 0;  // of the segment
    std::string text = {};
    std::map<std::pair<int32_t, int64_t>, std::string> names = {};  // of registers, rolled
  };

  std::string At(const Body& body, int64_t shift, int64_t stride) const {
    const int64_t plus = body.begin >= shift ? -shift : width_ - shift;
    const std::string j = plus == 0 ? "j" : absl::StrCat("(j + ", plus, ")");
    return stride == 0 ? "0" : stride == 1 ? j : absl::StrCat(j, " * ", stride, "L");
  }

  absl::StatusOr<std::string> Name(Body* body, const FusedOperand& operand, int64_t shift) {
    if (operand.reg < 0) return Literal(operand.number);
    return Name(body, operand.reg, shift);
  }
  absl::StatusOr<std::string> Name(Body* body, int32_t reg, int64_t shift) {
    const Register& r = registers_[reg];
    if (r.is_row) return absl::StrCat("s", reg);
    if (r.statement != nullptr && r.statement->op == "aten::roll" && r.level == body->level)
      return Name(body, r.statement->operands[0].reg, Rolled(shift, static_cast<int64_t>(r.statement->operands[1].number)));
    const auto found = body->names.find({reg, shift});
    if (found != body->names.end()) return found->second;
    std::string value;
    if (r.input >= 0) {
      value = absl::StrCat("Load(i", r.input, "[", At(*body, shift, kernel_.inputs[r.input].strides.back()), "])");
    } else if (r.level < body->level) {
      buffered_.insert(reg);
      value = absl::StrCat("b", reg, "[", At(*body, shift, 1), "]");
    } else {
      ASSIGN_OR_RETURN(value, Expression(body, *r.statement, shift));
    }
    const std::string name = absl::StrCat("v", reg, "_", shift);
    absl::StrAppend(&body->text, "  const float ", name, " = ", value, ";\n");
    body->names[{reg, shift}] = name;
    return name;
  }

  absl::StatusOr<std::string> Expression(Body* body, const FusedStatement& statement, int64_t shift) {
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
    return absl::UnimplementedError(absl::StrCat(op, " has no C++ in fused kernels"));
  }

  std::vector<Sum> Sums(int level) const {
    std::vector<Sum> sums;
    std::copy_if(sums_.begin(), sums_.end(), std::back_inserter(sums), [&](const Sum& sum) { return sum.level == level; });
    return sums;
  }
  absl::StatusOr<std::string> Term(Body* body, const Sum& sum) {
    if (sum.of == Sum::kGradient || sum.of == Sum::kGradientAlong) return GradientTerm(body, sum);
    ASSIGN_OR_RETURN(const std::string x, Name(body, sum.statement->operands[0], 0));
    if (sum.of == Sum::kMean) return x;
    if (sum.of == Sum::kSquares) return absl::StrCat(x, " * ", x);
    const std::string from_mean = absl::StrCat("(", x, " - s", sum.statement->results[1], ")");
    return absl::StrCat(from_mean, " * ", from_mean);
  }

  absl::StatusOr<std::string> GradientTerm(Body* body, const Sum& sum) {
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

  template <class Add>
  absl::Status ForEachOutput(Add add) {
    for (size_t i = 0; i < kernel_.written.size(); ++i) RETURN_IF_ERROR(add(absl::StrCat("w", i), kernel_.written[i]));
    for (size_t i = 0; i < kernel_.results.size(); ++i) RETURN_IF_ERROR(add(absl::StrCat("o", i), kernel_.results[i]));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Segment(int level, int64_t begin, const std::vector<Sum>& sums) {
    Body body{level, begin};
    std::string stores;
    for (const int32_t reg : std::set<int32_t>(buffered_)) {
      if (registers_[reg].level != level) continue;
      ASSIGN_OR_RETURN(const std::string name, Name(&body, reg, 0));
      absl::StrAppend(&stores, "  b", reg, "[j] = ", name, ";\n");
    }
    RETURN_IF_ERROR(ForEachOutput([&](const std::string& pointer, const FusedOutput& output) -> absl::Status {
      const Register& r = registers_[output.reg];
      if ((r.is_row && r.input < 0) || r.level != level) return absl::OkStatus();
      ASSIGN_OR_RETURN(const std::string name, Name(&body, output.reg, 0));
      absl::StrAppend(&stores, "  Store(&", pointer, "[", At(body, 0, output.tensor.strides.back()), "], ", name, ");\n");
      return absl::OkStatus();
    }));
    for (const Sum& sum : sums) {
      ASSIGN_OR_RETURN(const std::string term, Term(&body, sum));
      absl::StrAppend(&stores, "  a", sum.Name(), "[lane] += ", term, ";\n");
    }
    return body.text + stores;
  }

  absl::StatusOr<std::string> Pass(int level) {
    const std::vector<Sum> sums = Sums(level);
    std::string text;
    for (const Sum& sum : sums) absl::StrAppend(&text, "float a", sum.Name(), "[16] = {};\n");
    const bool elements = RangesOverElements(kernel_);
    for (size_t i = 0; i + 1 < bounds_.size(); ++i) {
      ASSIGN_OR_RETURN(const std::string body, Segment(level, bounds_[i], sums));
      if (body.empty()) continue;
      const std::string begin = elements ? "begin" : absl::StrCat(bounds_[i], "L");
      const std::string end = elements ? "end" : absl::StrCat(bounds_[i + 1], "L");
      if (sums.empty()) {
        absl::StrAppend(&text, "#pragma GCC ivdep\nfor (long j = ", begin, "; j < ", end, "; ++j) {\n", body, "}\n");
      } else {
        const int64_t whole = bounds_[i] + (bounds_[i + 1] - bounds_[i]) / 16 * 16;
        absl::StrAppend(&text, "for (long at = ", begin, "; at < ", whole, "L; at += 16) {\n#pragma GCC ivdep\n",
                        "for (int lane = 0; lane < 16; ++lane) {\n  const long j = at + lane;\n", body, "}\n}\n");
        absl::StrAppend(&text, "for (long j = ", whole, "L; j < ", end, "; ++j) {\n  const int lane = (int)(j - ", whole, "L);\n",
                        body, "}\n");
      }
    }
    for (const Sum& sum : sums) AppendRow(sum, &text);
    return text;
  }

  // The mean, or 1 / sqrt(mean + eps), and where it is kept.
  void AppendRow(const Sum& sum, std::string* text) {
    const std::string mean = absl::StrCat("Sum(a", sum.Name(), ") / ", width_, ".0f");
    const std::string eps = Literal(sum.statement->operands.back().number);
    const bool is_root = sum.of == Sum::kSquares || sum.of == Sum::kDeviations;
    absl::StrAppend(text, "const float s", sum.Name(), " = ",
                    is_root ? absl::StrCat("1.0f / __builtin_sqrtf(", mean, " + ", eps, ")") : mean, ";\n");
    if (!registers_[sum.row].is_row) return;  // of the gradient of a norm nothing but its own result reads it
    ForEachOutput([&](const std::string& pointer, const FusedOutput& output) {
      if (output.reg == sum.row) absl::StrAppend(text, "Store(", pointer, ", s", sum.row, ");\n");
      return absl::OkStatus();
    }).IgnoreError();
  }

  const FusedKernel& kernel_;
  const int64_t width_;  // elements of a row
  std::vector<Register> registers_;
  std::vector<Sum> sums_;
  std::vector<int64_t> bounds_;  // of the segments of a row
  std::set<int32_t> buffered_;
  int levels_ = 1;
};

}  // namespace

bool RangesOverElements(const FusedKernel& kernel) { return kernel.sizes.size() == 1 && !kernel.HasRows(); }

int64_t RangeEnd(const FusedKernel& kernel) {
  return RangesOverElements(kernel) ? kernel.sizes[0] : kernel.Elements() / kernel.sizes.back();
}

absl::StatusOr<std::string> SourceOf(const FusedKernel& kernel) { return Writer(kernel).Run(); }

}  // namespace legoai::graph
