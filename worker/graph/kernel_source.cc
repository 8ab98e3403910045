#include "worker/graph/kernel_source.h"

#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/status.h"
#include "worker/graph/kernel_writer.h"

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
static inline float InverseRoot(float x) { return 1.0f / __builtin_sqrtf(x); }
static inline float Sum(float* lanes) {
  for (int width = 8; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}
)";

// Values that an earlier pass computed lie in buffers of a row's length.
class CpuWriter : private KernelWriter {
 public:
  explicit CpuWriter(const FusedKernel& kernel) : KernelWriter(kernel) {}

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
  std::string Element(Body* body, int input, int64_t shift) override {
    return absl::StrCat("Load(i", input, "[", At(*body, shift, kernel_.inputs[input].strides.back()), "])");
  }
  std::string Kept(Body* body, int32_t reg, int64_t shift) override {
    buffered_.insert(reg);
    return absl::StrCat("b", reg, "[", At(*body, shift, 1), "]");
  }

  std::string Pointers() const {
    std::string text;
    size_t number = 0;
    ForEachTensor([&](char kind, size_t i, const FusedTensor& tensor) {
      const std::string type = absl::StrCat(kind == 'i' ? "const " : "", CType(tensor.dtype), "*");
      absl::StrAppend(&text, type, " ", NameOf(kind, i), " = (", type, ")tensors[", number++, "]", RowOffset(tensor), ";\n");
    });
    return text;
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
      if (!IsStoredIn(level, output)) return absl::OkStatus();
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

  // What is made of the sum, and where it is kept.
  void AppendRow(const Sum& sum, std::string* text) {
    absl::StrAppend(text, "const float s", sum.Name(), " = ", RowValue(sum, absl::StrCat("Sum(a", sum.Name(), ")")), ";\n");
    if (!registers_[sum.row].is_row) return;  // of the gradient of a norm nothing but its own result reads it
    ForEachOutput([&](const std::string& pointer, const FusedOutput& output) {
      if (output.reg == sum.row) absl::StrAppend(text, "Store(", pointer, ", s", sum.row, ");\n");
      return absl::OkStatus();
    }).IgnoreError();
  }

  std::set<int32_t> buffered_;
};

}  // namespace

bool RangesOverElements(const FusedKernel& kernel) { return kernel.sizes.size() == 1 && !kernel.HasRows(); }

int64_t RangeEnd(const FusedKernel& kernel) {
  return RangesOverElements(kernel) ? kernel.sizes[0] : kernel.Elements() / kernel.sizes.back();
}

absl::StatusOr<std::string> SourceOf(const FusedKernel& kernel) { return CpuWriter(kernel).Run(); }

}  // namespace legoai::graph
