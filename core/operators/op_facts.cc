#include "core/operators/op_facts.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/trace/fused_kernel.h"

namespace legoai::sim {
namespace {

using graph::Geometry;
using graph::InstructionView;

int64_t DistinctElements(const Geometry& geometry) {
  int64_t count = 1;
  for (size_t i = 0; i < geometry.sizes.size(); ++i) {
    if (geometry.strides[i] != 0 || geometry.sizes[i] == 0) count *= geometry.sizes[i];
  }
  return count;
}

bool IsFloating(v1::DType dtype) {
  return dtype == v1::FLOAT32 || dtype == v1::BFLOAT16 || dtype == v1::FLOAT16 || dtype == v1::FLOAT64;
}

// a [.., m, k] x b [.., k, n]: the last two tensors that mm, bmm, addmm (bias first) and baddbmm only read.
double MatmulFlops(const InstructionView& op) {
  std::vector<const Geometry*> operands;
  for (int i = 0; i < op.argument_count(); ++i) {
    const graph::Value* const value = op.Input(i);
    if (value != nullptr && !(op.writes() >> i & 1)) operands.push_back(&op.GeometryOf(*value));
  }
  if (operands.size() < 2 || operands.back()->sizes.empty()) return 0;
  const Geometry& a = *operands[operands.size() - 2];
  return 2.0 * static_cast<double>(graph::Elements(a)) * static_cast<double>(operands.back()->sizes.back());
}

// q, k [batch, heads, seq, head_dim] begin at argument `first`; the first boolean constant says whether it is causal. `counted`:
// keys that the convention counts for each query (ConventionalFlops); 0: those that it sees.
double AttentionFlops(const InstructionView& op, int first, double per_pair, int64_t counted) {
  const graph::Value *q_value = op.Input(first), *k_value = op.Input(first + 1);
  if (q_value == nullptr || k_value == nullptr) return 0;
  const Geometry &q = op.GeometryOf(*q_value), &k = op.GeometryOf(*k_value);
  if (q.sizes.size() != 4 || k.sizes.size() != 4) return 0;
  bool causal = false;
  for (int i = first; i < op.argument_count(); ++i) {
    auto flag = op.Constant<bool>(i);
    if (!flag) continue;
    causal = *flag;
    break;
  }
  const int64_t window = AttentionWindow(op, first);
  const auto times_queries = [&](int64_t keys) {
    return static_cast<double>(q.sizes[2]) * static_cast<double>(window > 0 ? std::min(window, keys) : keys);
  };
  double pairs = times_queries(k.sizes[2]);
  if (counted > 0) {
    pairs = causal || window > 0 ? times_queries(counted) : 0;
  } else if ((causal || window > 0) && q.sizes[2] == k.sizes[2]) {
    pairs = CausalPairs(q.sizes[2], window);
  }
  return per_pair * static_cast<double>(q.sizes[0] * q.sizes[1] * q.sizes[3]) * pairs;
}

// Reads and writes of one instruction; each tensor counts once.
class TrafficCounter {
 public:
  TrafficCounter(const InstructionView& op, Traffic traffic) : op_(op), traffic_(traffic) {
    op.ForEachResult([&](int, uint32_t value) { Write(value); });
    op.ForEachInput([&](int place, uint32_t value) {
      if (op.writes() >> place & 1) Write(value);
    });
    op.ForEachInput([&](int place, uint32_t value) { Read(place, value); });
    if (traffic == Traffic::kScatters) CorrectScatter();
  }

  int64_t read = 0, written = 0, largest = 0;

 private:
  const Geometry& GeometryOf(uint32_t value) const { return op_.GeometryOf(op_.trace().values[value]); }

  void Write(uint32_t value) {
    if (std::find(writes_.begin(), writes_.end(), value) != writes_.end()) return;
    writes_.push_back(value);
    written += DistinctBytes(GeometryOf(value));
    largest = std::max(largest, DistinctElements(GeometryOf(value)));
  }

  void Read(int place, uint32_t value) {
    if (traffic_ == Traffic::kWrites || (traffic_ == Traffic::kOverwrites && place == 0)) return;
    if (op_.writes() >> place & 1 && absl::EndsWith(op_.name(), ".out")) return;
    if (std::find(reads_.begin(), reads_.end(), value) != reads_.end()) return;
    reads_.push_back(value);
    int64_t bytes = DistinctBytes(GeometryOf(value));
    if (place == 0 && traffic_ == Traffic::kGathers) bytes = std::min(bytes, written);
    if (place == 0 && traffic_ == Traffic::kPicks) {
      const graph::Value* picks = op_.Input(1);
      if (picks != nullptr) {
        bytes = std::min(bytes, DistinctElements(op_.GeometryOf(*picks)) * graph::ElementBytes(GeometryOf(value).dtype));
      }
    } else if (traffic_ != Traffic::kGathers || place != 0) {
      largest = std::max(largest, DistinctElements(GeometryOf(value)));
    }
    read += bytes;
  }

  void CorrectScatter() {
    int64_t others = 0;
    op_.ForEachInput([&](int place, uint32_t value) {
      if (place != 0) others = std::max(others, DistinctBytes(GeometryOf(value)));
    });
    const graph::Value* target = op_.Input(0);
    if (target == nullptr) return;
    int64_t whole = DistinctBytes(op_.GeometryOf(*target)), part = std::min(whole, others);
    read += part - whole;
    written += part - whole;
  }

  const InstructionView& op_;
  Traffic traffic_;
  std::vector<uint32_t> reads_, writes_;
};

v1::DType ArithmeticDType(const InstructionView& op) {
  v1::DType found = v1::DTYPE_UNSPECIFIED;
  auto look = [&](int, uint32_t value) {
    v1::DType dtype = op.GeometryOf(op.trace().values[value]).dtype;
    if (found == v1::DTYPE_UNSPECIFIED && IsFloating(dtype)) found = dtype;
  };
  op.ForEachInput(look);
  op.ForEachResult(look);
  return found == v1::DTYPE_UNSPECIFIED ? v1::FLOAT32 : found;
}

// Whether neighbouring rows, of whichever of the last two dimensions is not the dense one, are apart by no multiple of 16 bytes:
// never where there is one row.
bool HasUnalignedRows(const Geometry& geometry) {
  constexpr int64_t kWideLoad = 16;
  const size_t dims = geometry.sizes.size();
  if (dims < 2) return false;  // a bias
  int64_t apart = 0;
  for (size_t d = dims - 2; d < dims; ++d) {
    if (geometry.sizes[d] > 1 && geometry.strides[d] > 1) apart = std::max(apart, geometry.strides[d]);
  }
  return apart * graph::ElementBytes(geometry.dtype) % kWideLoad != 0;
}

bool IsUnaligned(const InstructionView& op) {
  bool unaligned = false;
  const auto look = [&](int, uint32_t value) { unaligned |= HasUnalignedRows(op.GeometryOf(op.trace().values[value])); };
  op.ForEachInput(look);
  op.ForEachResult(look);
  return unaligned;
}

// Of each statement as of the operator that it was, for each element of the loop.
double FusedFlops(const InstructionView& op) {
  const std::string* const text = graph::FusedKernelText(op.trace(), op.instruction());
  const auto kernel = graph::ParseFusedKernel(text == nullptr ? "" : *text);
  if (!kernel.ok()) return 0;  // the executor refuses it by name
  double of_element = 0;
  for (const graph::FusedStatement& statement : kernel->statements) {
    const OperatorRow* const row = FindOperator(statement.op);
    if (row != nullptr) of_element += row->flops_per_element;
  }
  return of_element * static_cast<double>(kernel->Elements());
}

double FlopsOf(const InstructionView& op, const OperatorRow& row, int64_t largest, int64_t counted = 0) {
  switch (row.flops) {
    case FlopRule::kMatmul: return MatmulFlops(op);
    case FlopRule::kAttention: return AttentionFlops(op, 0, 4, counted);
    case FlopRule::kAttentionBackward: return AttentionFlops(op, 1, 10, counted);
    case FlopRule::kFused: return FusedFlops(op);
    case FlopRule::kPerElement: return row.flops_per_element * static_cast<double>(largest);
  }
  return 0;
}

struct ConstantText {
  std::string operator()(std::monostate) const { return "-"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return absl::StrCat(value); }
  std::string operator()(double value) const { return absl::StrCat(value, "f"); }
  std::string operator()(const std::string& value) const { return value; }
  std::string operator()(graph::DeviceConstant) const { return "device"; }
  template <class T>
  std::string operator()(const std::vector<T>& values) const {
    std::string text = "[";
    for (T value : values) absl::StrAppend(&text, value, ",");
    return text + "]";
  }
};

void AppendTensor(const InstructionView& op, int64_t id, std::string* text) {
  if (id < 0) {
    absl::StrAppend(text, "-");
    return;
  }
  const Geometry& geometry = op.GeometryOf(op.trace().values[id]);
  absl::StrAppend(text, v1::DType_Name(geometry.dtype), "[", absl::StrJoin(geometry.sizes, ","), "]{",
                  absl::StrJoin(geometry.strides, ","), "}");
}

}  // namespace

double CausalPairs(int64_t seq, int64_t window) {
  const double length = static_cast<double>(seq);
  const double unseen = window > 0 && window < seq ? static_cast<double>(seq - window) : 0;
  return length * (length + 1) / 2 - unseen * (unseen + 1) / 2;
}

int64_t AttentionWindow(const InstructionView& op, int q) {
  if (!absl::EndsWith(op.name(), ".window")) return 0;
  for (int i = q; i < op.argument_count(); ++i) {
    if (const auto window = op.Constant<int64_t>(i)) return *window;
  }
  return 0;
}

int64_t DistinctBytes(const Geometry& geometry) { return DistinctElements(geometry) * graph::ElementBytes(geometry.dtype); }

OpFacts FactsOf(const InstructionView& op, const OperatorRow& row) {
  OpFacts facts;
  facts.op_class = row.op_class;
  if (row.op_class == OpClass::kView || row.op_class == OpClass::kControl) return facts;
  TrafficCounter traffic(op, row.traffic);
  facts.dtype = ArithmeticDType(op);
  facts.read_bytes = traffic.read;
  facts.written_bytes = traffic.written;
  facts.flops = FlopsOf(op, row, traffic.largest);
  facts.unaligned = row.flops == FlopRule::kMatmul && IsUnaligned(op);
  return facts;
}

std::string FactsAsJson(const OpFacts& facts) {
  return absl::StrCat(",\"flops\":", absl::StrFormat("%.0f", facts.flops), ",\"bytes\":", facts.bytes());
}

double ConventionalFlops(const InstructionView& op, const OperatorRow& row, int64_t seq) {
  if (row.op_class != OpClass::kMatmul && row.op_class != OpClass::kAttention) return 0;
  return FlopsOf(op, row, 0, seq);
}

std::string SignatureOf(const InstructionView& op) {
  std::string text = op.name();
  const graph::Trace& trace = op.trace();
  for (int i = 0; i < op.argument_count(); ++i) {
    const graph::Argument& argument = trace.arguments[op.instruction().first_argument + i];
    text += i == 0 ? "(" : " ";
    switch (argument.kind) {
      case graph::Argument::Kind::kConstant:
      case graph::Argument::Kind::kWrappedNumber: text += std::visit(ConstantText(), trace.constants[argument.index]); break;
      case graph::Argument::Kind::kValue: AppendTensor(op, argument.index, &text); break;
      case graph::Argument::Kind::kUndefined: text += "-"; break;
      case graph::Argument::Kind::kList:
      case graph::Argument::Kind::kOptionalList:
        for (int64_t id : trace.lists[argument.index]) {
          AppendTensor(op, id, &text);
          text += ";";
        }
    }
  }
  return text + ")";
}

}  // namespace legoai::sim
