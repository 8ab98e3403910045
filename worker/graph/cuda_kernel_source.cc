#include "worker/graph/cuda_kernel_source.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/status.h"
#include "worker/graph/kernel_writer.h"

namespace legoai::graph {
namespace {

constexpr char kPreamble[] = R"(typedef unsigned short bf16;
template <class T, int N> struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Vec { T of[N]; };
__device__ __forceinline__ float Load(float x) { return x; }
__device__ __forceinline__ float Load(bf16 x) { return __uint_as_float((unsigned)x << 16); }
__device__ __forceinline__ void Store(float* to, float x) { *to = x; }
__device__ __forceinline__ void Store(bf16* to, float x) {
  const unsigned bits = __float_as_uint(x);
  const unsigned nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  *to = (bf16)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : nearest);
}
__device__ __forceinline__ float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float Silu(float x) { return x / (1.0f + expf(-x)); }
__device__ __forceinline__ float SiluGradient(float grad, float x) {
  const float s = Sigmoid(x);
  return grad * s * (1.0f + x * (1.0f - s));
}
// x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3).
__device__ __forceinline__ float GeluTanh(float x) { return tanhf(0.797884561f * (x + 0.044715f * x * x * x)); }
__device__ __forceinline__ float Gelu(float x) { return 0.5f * x * (1.0f + GeluTanh(x)); }
__device__ __forceinline__ float GeluGradient(float grad, float x) {
  const float t = GeluTanh(x);
  const float of_tanh = 0.797884561f * (1.0f + 0.134145f * x * x) * (1.0f - t * t);
  return grad * (0.5f * (1.0f + t) + 0.5f * x * of_tanh);
}
__device__ __forceinline__ float InverseRoot(float x) { return 1.0f / sqrtf(x); }
// The same in all lanes.
__device__ __forceinline__ float WarpSum(float x) {
  for (int by = 16; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
  return x;
}
)";

constexpr int kWarp = 32, kMostThreads = 1024;
constexpr int kFlatThreads = 256, kWarpsOfRows = 4;
constexpr int64_t kMostFlatBlocks = 1 << 16;
constexpr int64_t kMostSharedBytes = 48 * 1024;  // of a block, without being asked for

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }
int ElementBytesOf(const FusedTensor& tensor) { return static_cast<int>(ElementBytes(tensor.dtype)); }

// Writes one function, whose threads take `vector` elements of a row at a time.
class CudaWriter : private KernelWriter {
 public:
  CudaWriter(const FusedKernel& kernel, int64_t vector, std::string name)
      : KernelWriter(kernel),
        vector_(vector),
        name_(std::move(name)),
        chunks_(width_ / vector),
        rows_(kernel.Elements() / width_) {
    index_ = kernel.Elements() >= int64_t{1} << 30 ? "long long" : "int";
    if (IsFlat()) return;
    while (threads_ < kMostThreads && threads_ * 2 < chunks_) threads_ *= 2;
    turns_ = CeilDivide(chunks_, threads_);
    if (threads_ == kWarp) block_rows_ = kWarpsOfRows;
  }

  absl::StatusOr<std::string> Run() {
    std::vector<std::string> passes(levels_);
    for (int level = levels_ - 1; level >= 0; --level) {  // the later ones say what they need kept
      ASSIGN_OR_RETURN(passes[level], IsFlat() ? Segments(level) : Pass(level));
    }
    const int64_t shared = static_cast<int64_t>(shared_.size()) * block_rows_ * width_ * static_cast<int64_t>(sizeof(float));
    if (shared > kMostSharedBytes - kWarp * static_cast<int64_t>(sums_.size() * sizeof(float)))
      return absl::UnimplementedError(absl::StrCat("a fused kernel rolls rows of ", width_, " elements behind a norm, and shared "
                                                   "memory of a GPU holds ", kMostSharedBytes / sizeof(float)));
    const CudaFunction function = Function();
    return absl::StrCat("extern \"C\" __global__ void __launch_bounds__(", function.threads, ") ", name_,
                        "(const Tensors tensors) {\n", IsFlat() ? FlatLoop(passes[0]) : Row(absl::StrJoin(passes, "")), "}\n");
  }

  CudaFunction Function() const {
    CudaFunction function{name_, kFlatThreads, 0, {}};
    if (IsFlat()) {
      function.blocks = std::min(kMostFlatBlocks, CeilDivide(chunks_ * rows_, kFlatThreads));
    } else {
      function.threads = threads_ * block_rows_;
      function.blocks = CeilDivide(rows_, block_rows_);
    }
    ForEachTensor([&](char, size_t, const FusedTensor& tensor) {
      const int64_t bytes = ElementBytesOf(tensor) * (IsWide(tensor) ? vector_ : 1);
      function.alignment.push_back(static_cast<int>(std::min<int64_t>(16, bytes)));
    });
    return function;
  }

 private:
  bool IsFlat() const { return sums_.empty(); }
  // Whether a thread's elements are read or written at once.
  bool IsWide(const FusedTensor& tensor) const {
    if (vector_ == 1 || tensor.strides.back() != 1) return false;
    return std::all_of(tensor.strides.begin(), tensor.strides.end() - 1, [&](int64_t s) { return s % vector_ == 0; });
  }
  std::string VectorOf(const FusedTensor& tensor) const { return absl::StrCat("Vec<", CType(tensor.dtype), ", ", vector_, ">"); }
  std::string FirstIndex(const Body& body, int64_t shift) const {
    const int64_t plus = Plus(body, shift);
    return plus == 0 ? "first" : absl::StrCat("first + ", plus);
  }

  std::string Element(Body* body, int input, int64_t shift) override {
    const FusedTensor& tensor = kernel_.inputs[input];
    const std::string pointer = NameOf('i', input);
    if (!IsWide(tensor)) return absl::StrCat("Load(", pointer, "[", At(*body, shift, tensor.strides.back()), "])");
    const std::string name = absl::StrCat("x", input, "_", shift), type = VectorOf(tensor);
    absl::StrAppend(&body->before, "  const ", type, " ", name, " = *(const ", type, "*)(", pointer, " + ",
                    FirstIndex(*body, shift), ");\n");
    return absl::StrCat("Load(", name, ".of[e])");
  }
  std::string Kept(Body* body, int32_t reg, int64_t shift) override {
    (shift == 0 ? kept_ : shared_).insert(reg);
    return shift == 0 ? absl::StrCat("b", reg, "[k][e]") : absl::StrCat("h", reg, "[", Index(*body, shift), "]");
  }

  std::string Pointers() const {
    std::string text;
    size_t number = 0;
    ForEachTensor([&](char kind, size_t i, const FusedTensor& tensor) {
      const std::string type = absl::StrCat(kind == 'i' ? "const " : "", CType(tensor.dtype), "*");
      absl::StrAppend(&text, "  ", type, " const ", NameOf(kind, i), " = (", type, ")tensors.at[", number++, "]",
                      RowOffset(tensor), ";\n");
    });
    return text;
  }

  // Kept for later passes, stored and added up: behind what computes it.
  absl::StatusOr<std::string> Uses(Body* body, const std::vector<Sum>& sums) {
    std::string uses;
    for (const bool is_shared : {false, true}) {
      for (const int32_t reg : std::set<int32_t>(is_shared ? shared_ : kept_)) {
        if (registers_[reg].level != body->level) continue;
        ASSIGN_OR_RETURN(const std::string name, Name(body, reg, 0));
        absl::StrAppend(&uses, is_shared ? "  h" : "  b", reg, is_shared ? "[j] = " : "[k][e] = ", name, ";\n");
      }
    }
    RETURN_IF_ERROR(ForEachOutput([&](const std::string& pointer, const FusedOutput& output) -> absl::Status {
      if (!IsStoredIn(body->level, output)) return absl::OkStatus();
      ASSIGN_OR_RETURN(const std::string name, Name(body, output.reg, 0));
      if (!IsWide(output.tensor)) {
        absl::StrAppend(&uses, "  Store(&", pointer, "[", At(*body, 0, output.tensor.strides.back()), "], ", name, ");\n");
        return absl::OkStatus();
      }
      const std::string type = VectorOf(output.tensor), made = absl::StrCat("y_", pointer);
      absl::StrAppend(&body->before, "  ", type, " ", made, ";\n");
      absl::StrAppend(&uses, "  Store(&", made, ".of[e], ", name, ");\n");
      absl::StrAppend(&body->after, "  *(", type, "*)(", pointer, " + first) = ", made, ";\n");
      return absl::OkStatus();
    }));
    for (const Sum& sum : sums) {
      ASSIGN_OR_RETURN(const std::string term, Term(body, sum));
      absl::StrAppend(&uses, "  a", sum.Name(), " += ", term, ";\n");
    }
    return uses;
  }

  // What a thread does with its elements from `first` on, by the segment in which they are.
  absl::StatusOr<std::string> Segments(int level) {
    std::string text;
    for (size_t i = 0; i + 1 < bounds_.size(); ++i) {
      Body body{.level = level, .begin = bounds_[i]};
      ASSIGN_OR_RETURN(const std::string uses, Uses(&body, Sums(level)));
      if (uses.empty()) continue;
      absl::StrAppend(&text, "  if (first >= ", bounds_[i], " && first < ", bounds_[i + 1], ") {\n", body.before,
                      "#pragma unroll\n  for (int e = 0; e < ", vector_, "; ++e) {\n  const ", index_, " j = first + e;\n",
                      body.text, uses, "  (void)j;\n  }\n", body.after, "  }\n");
    }
    return text;
  }

  std::string FlatLoop(const std::string& segments) const {
    const bool has_rows = rows_ > 1;
    return absl::StrCat("for (", index_, " chunk = (", index_, ")blockIdx.x * ", kFlatThreads, " + (int)threadIdx.x; chunk < ",
                        chunks_ * rows_, "; chunk += (", index_, ")gridDim.x * ", kFlatThreads, ") {\n  const ", index_,
                        " row = ", has_rows ? absl::StrCat("chunk / ", chunks_) : "0", ", first = ",
                        has_rows ? absl::StrCat("chunk % ", chunks_) : "chunk", " * ", vector_, "; (void)row;\n", Pointers(),
                        RowInputs(), segments, "}\n");
  }

  std::string Row(const std::string& passes) const {
    std::string text = absl::StrCat("const int thread = (int)threadIdx.x % ", threads_, ";\nconst ", index_, " row = (", index_,
                                    ")blockIdx.x * ", block_rows_, " + (int)threadIdx.x / ", threads_, ";\n");
    if (rows_ % block_rows_ != 0) absl::StrAppend(&text, "if (row >= ", rows_, ") return;\n");
    absl::StrAppend(&text, Pointers(), RowInputs());
    for (const int32_t reg : kept_) absl::StrAppend(&text, "float b", reg, "[", turns_, "][", vector_, "];\n");
    for (const int32_t reg : shared_) {
      absl::StrAppend(&text, "__shared__ float rows_of_", reg, "[", block_rows_, "][", width_, "];\nfloat* const h", reg,
                      " = rows_of_", reg, "[(int)threadIdx.x / ", threads_, "];\n");
    }
    return text + passes;
  }

  absl::StatusOr<std::string> Pass(int level) {
    const std::vector<Sum> sums = Sums(level);
    std::string text;
    for (const Sum& sum : sums) absl::StrAppend(&text, "float a", sum.Name(), " = 0.0f;\n");
    ASSIGN_OR_RETURN(const std::string segments, Segments(level));
    if (!segments.empty()) {
      absl::StrAppend(&text, "#pragma unroll\nfor (int k = 0; k < ", turns_, "; ++k) {\n  const int first = (thread + k * ",
                      threads_, ") * ", vector_, ";\n", segments, "}\n");
    }
    AppendSums(sums, &text);
    const auto is_of_pass = [&](int32_t reg) { return registers_[reg].level == level; };
    if (std::any_of(shared_.begin(), shared_.end(), is_of_pass))
      absl::StrAppend(&text, threads_ == kWarp ? "__syncwarp();\n" : "__syncthreads();\n");
    return text;
  }

  void AppendSums(const std::vector<Sum>& sums, std::string* text) const {
    const int warps = threads_ / kWarp;
    for (const Sum& sum : sums) {
      absl::StrAppend(text, "const float q", sum.Name(), " = WarpSum(a", sum.Name(), ");\n");
      if (warps == 1) continue;
      absl::StrAppend(text, "__shared__ float p", sum.Name(), "[", warps, "];\nif (thread % 32 == 0) p", sum.Name(),
                      "[thread / 32] = q", sum.Name(), ";\n");
    }
    if (warps > 1 && !sums.empty()) absl::StrAppend(text, "__syncthreads();\n");
    for (const Sum& sum : sums) {
      const std::string total = absl::StrCat(warps > 1 ? "t" : "q", sum.Name());
      if (warps > 1)
        absl::StrAppend(text, "const float ", total, " = WarpSum(thread % 32 < ", warps, " ? p", sum.Name(),
                        "[thread % 32] : 0.0f);\n");
      absl::StrAppend(text, "const float s", sum.Name(), " = ", RowValue(sum, total), ";\n");
      if (!registers_[sum.row].is_row) continue;  // of the gradient of a norm nothing but its own result reads it
      ForEachOutput([&](const std::string& pointer, const FusedOutput& output) {
        if (output.reg == sum.row) absl::StrAppend(text, "if (thread == 0) Store(", pointer, ", s", sum.row, ");\n");
        return absl::OkStatus();
      }).IgnoreError();
    }
  }

  const int64_t vector_;
  const std::string name_;
  const int64_t chunks_, rows_;  // of `vector_` elements in a row
  std::string index_;            // a type that counts elements
  int threads_ = kWarp;          // of a row
  int block_rows_ = 1;
  int64_t turns_ = 1;             // chunks of a thread
  std::set<int32_t> kept_, shared_;  // registers that later passes read, where they are and rolled
};

// The most elements that are read at once: 16 bytes of the narrowest tensor, and a part of each segment of a row.
int64_t VectorOf(const FusedKernel& kernel) {
  int64_t vector = 4;
  const auto look = [&](const FusedTensor& tensor) { vector = tensor.dtype == v1::BFLOAT16 ? 8 : vector; };
  for (const FusedTensor& tensor : kernel.inputs) look(tensor);
  for (const FusedOutput& output : kernel.written) look(output.tensor);
  for (const FusedOutput& output : kernel.results) look(output.tensor);
  const auto divides = [&](int64_t size) {
    while (size % vector != 0) vector /= 2;
  };
  divides(kernel.sizes.back());
  for (const FusedStatement& statement : kernel.statements) {
    if (statement.op == "aten::roll") divides(static_cast<int64_t>(statement.operands[1].number));
  }
  return vector;
}

}  // namespace

absl::StatusOr<CudaSource> CudaSourceOf(const FusedKernel& kernel) {
  const size_t tensors = kernel.inputs.size() + kernel.written.size() + kernel.results.size();
  CudaSource source;
  source.text = absl::StrCat(kPreamble, "struct Tensors { void* at[", tensors, "]; };\n");
  const int64_t vector = VectorOf(kernel);
  const auto add = [&](int64_t of, const char* name) -> absl::Status {
    CudaWriter writer(kernel, of, name);
    ASSIGN_OR_RETURN(const std::string text, writer.Run());
    source.text += text;
    source.functions.push_back(writer.Function());
    return absl::OkStatus();
  };
  if (vector > 1) RETURN_IF_ERROR(add(vector, "lego_fused_wide"));
  RETURN_IF_ERROR(add(1, "lego_fused"));
  return source;
}

}  // namespace legoai::graph
