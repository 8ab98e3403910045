#include "simulator/memory/workspace.h"

#include <algorithm>
#include <vector>

#include "core/operators/op_facts.h"

namespace legoai::sim {
namespace {

using graph::Geometry;
using graph::InstructionView;

const Geometry* Input(const InstructionView& op, int place) {
  const graph::Value* value = op.Input(place);
  return value == nullptr ? nullptr : &op.GeometryOf(*value);
}

// LibTorch's own loops compute float16: oneDNN's kernels need AVX512_FP16, which comm::UseKnownCpuKernels turns off.
bool OneDnnComputes(const Geometry& geometry, const WorkspaceContext& context) {
  return geometry.dtype == v1::BFLOAT16 && context.onednn_bfloat16;
}

bool IsReduced(const Geometry& geometry) { return geometry.dtype == v1::BFLOAT16 || geometry.dtype == v1::FLOAT16; }

// Rows of a query block of LibTorch's flash attention on CPU.
int64_t QueryBlock(int64_t length) {
  int64_t block = length >= 768 ? 256 : length >= 192 ? 64 : 32;
  return std::min(block, length);
}
constexpr int64_t kKeyBlock = 512;

// Forward of `queries` and `keys` of the length of a sequence, per thread: scores, row maxima and sums, and the output block, in
// fp32; for 16-bit inputs a block of probabilities in their type besides.
int64_t CpuFlashForward(const Geometry& q, int64_t queries, int64_t keys, int64_t threads) {
  int64_t rows = QueryBlock(queries), columns = std::min(kKeyBlock, keys), dim = q.sizes[3];
  int64_t bytes = threads * (rows * columns + 2 * rows + rows * dim) * 4;
  if (IsReduced(q)) bytes += threads * rows * columns * graph::ElementBytes(q.dtype);
  return bytes;
}

// oneDNN's blocked product of 16-bit matrices on a CPU with AVX512_BF16, [m, k] x [k, n], as LibTorch 2.11 ships it: a block of
// fp32 results, a panel of the right operand, and of the left one if it is transposed. Exact up to k = 512; beyond, its choice of
// blocks depends on the caches and the rule is off by up to half of at most 1.4 MB.
int64_t OneDnnBlocks(int64_t m, int64_t n, int64_t k, bool transposed_left) {
  if (m == 0 || n == 0 || k == 0) return 0;
  int64_t parts = (m + 255) / 256, rows = (m + parts - 1) / parts;
  int64_t depth = std::min<int64_t>((k + 31) / 32 * 32, k > 1024 ? 1024 : 512);
  int64_t bytes = rows * std::min<int64_t>(n, 64) * 4 + depth * 64 * 2 + 1024;
  if (!transposed_left) return bytes;
  int64_t stride = depth % 512 == 0 ? depth + 32 : depth;  // panels do not begin on the same cache sets
  return bytes + rows * stride * 2 + 128;
}

// The last two tensors that mm, addmm, bmm and baddbmm only read. fp32 products take their buffers outside LibTorch's allocator;
// 16-bit ones that oneDNN does not compute take none (PyTorch 2.11, ATen/native/CPUBlas.cpp: gemm falls back to loops over the
// operands as they lie).
int64_t CpuMatmul(const InstructionView& op, const WorkspaceContext& context) {
  const Geometry *a = nullptr, *b = nullptr;
  for (int i = 0; i < op.argument_count(); ++i) {
    const Geometry* const next = Input(op, i);
    if (next != nullptr && !(op.writes() >> i & 1)) a = b, b = next;
  }
  if (a == nullptr || !OneDnnComputes(*a, context) || a->sizes.size() < 2 || b->sizes.size() < 2) return 0;
  size_t rank = a->sizes.size();
  return OneDnnBlocks(a->sizes[rank - 2], b->sizes.back(), a->sizes[rank - 1], a->strides[rank - 1] != 1);
}

// What backward copies of the output's gradient [batch, heads, seq, head_dim], whose tokens must lie one after another with all
// heads of each: a part of a longer sequence does not (PyTorch 2.11, ATen/native/cpu/FlashAttentionKernel.cpp).
int64_t CpuFlashGradientCopy(const Geometry& gradient) {
  int64_t dense = 1;
  for (const int dim : {3, 1, 2, 0}) {
    if (gradient.sizes[dim] == 1) continue;
    if (gradient.strides[dim] != dense) return graph::Elements(gradient) * graph::ElementBytes(gradient.dtype);
    dense *= gradient.sizes[dim];
  }
  return 0;
}

// Backward, per thread: probabilities and their gradients, and the row sums; for 16-bit inputs both blocks again in their type,
// and what oneDNN takes for the larger of two products: of transposed probabilities with the output's gradient, and of the
// gradients of scores with keys.
int64_t CpuFlashBackward(const Geometry& q, int64_t queries, int64_t keys, const WorkspaceContext& context) {
  int64_t rows = QueryBlock(queries), columns = std::min(kKeyBlock, keys);
  int64_t bytes = context.threads * (2 * rows * columns + rows) * 4;
  if (!IsReduced(q)) return bytes;
  bytes += context.threads * 2 * rows * columns * graph::ElementBytes(q.dtype);
  // Products of fewer rows take another path, without blocks.
  if (!OneDnnComputes(q, context) || rows < 32) return bytes;
  const int64_t dim = q.sizes[3];
  return bytes + context.threads * std::max(OneDnnBlocks(columns, dim, rows, true), OneDnnBlocks(rows, dim, columns, false));
}

// The most of `bytes(queries, keys)` of the blocks in which worker/model/windowed_attention_kernels.cc computes a sequence.
template <class Bytes>
int64_t MostOfBlocks(int64_t seq, int64_t window, Bytes bytes) {
  const int64_t rows = std::max<int64_t>(64, window / 4);
  int64_t most = 0;
  for (int64_t query = 0; query < seq; query += rows) {
    const int64_t queries = std::min(rows, seq - query), end = query + queries;
    most = std::max(most, bytes(queries, end - std::max<int64_t>(0, query - window + 1)));
  }
  return most;
}

// Beside what flash attention takes of a block: its mask, and its results before they are copied.
int64_t CpuWindowForward(const Geometry& q, int64_t window, int64_t threads) {
  const int64_t row = q.sizes[0] * q.sizes[1] * (q.sizes[3] * graph::ElementBytes(q.dtype) + 4);
  return MostOfBlocks(q.sizes[2], window, [&](int64_t queries, int64_t keys) {
    return 4 * queries * keys + row * queries + CpuFlashForward(q, queries, keys, threads);
  });
}

// Of 16-bit keys and values the gradients are summed in fp32, to which a block's are cast. ATen copies a part of the output's
// gradient that is not dense.
int64_t CpuWindowBackward(const Geometry& q, const Geometry& k, int64_t window, const WorkspaceContext& context) {
  const int64_t element = graph::ElementBytes(q.dtype), key_row = k.sizes[0] * k.sizes[1] * k.sizes[3];
  const int64_t query_row = q.sizes[0] * q.sizes[1] * q.sizes[3] * element;
  const int64_t sums = IsReduced(q) ? 2 * 4 * graph::Elements(k) : 0;
  return sums + MostOfBlocks(q.sizes[2], window, [&](int64_t queries, int64_t keys) {
           const int64_t gradients = query_row * queries + 2 * key_row * element * keys;
           const int64_t dense = q.sizes[0] > 1 && queries < q.sizes[2] ? query_row * queries : 0;
           const int64_t flash = 4 * queries * keys + dense + CpuFlashBackward(q, queries, keys, context);
           return gradients + std::max(flash, IsReduced(q) ? 4 * key_row * keys : 0);
         });
}

// q, k, v [batch, heads, seq, head_dim] from argument `first`.
int64_t CpuAttentionForward(const InstructionView& op, int first, int64_t threads) {
  const Geometry *q = Input(op, first), *k = Input(op, first + 1);
  if (q == nullptr || k == nullptr || q->sizes.size() != 4) return 0;
  const int64_t window = AttentionWindow(op, first);
  return window > 0 ? CpuWindowForward(*q, window, threads) : CpuFlashForward(*q, q->sizes[2], k->sizes[2], threads);
}

int64_t CpuAttentionBackward(const InstructionView& op, int first, const WorkspaceContext& context) {
  const Geometry *q = Input(op, first), *k = Input(op, first + 1);
  if (q == nullptr || k == nullptr || q->sizes.size() != 4) return 0;
  const int64_t window = AttentionWindow(op, first);
  if (window > 0) return CpuWindowBackward(*q, *k, window, context);
  return CpuFlashGradientCopy(*Input(op, first - 1)) + CpuFlashBackward(*q, q->sizes[2], k->sizes[2], context);
}

// Attention on CUDA is what worker/model/attention_kernels.cc calls: FlashAttention-2 takes 16-bit types alone (PyTorch 2.11,
// ATen/native/transformers/cuda/sdp_utils.cpp, check_dtypes_low_precision; on H100 too), fp32 goes to memory-efficient attention,
// which wants a key head for each query head.
int64_t Repeated(const Geometry& q, const Geometry& k) {
  if (k.sizes[1] == q.sizes[1]) return 0;
  return k.sizes[0] * q.sizes[1] * k.sizes[2] * k.sizes[3] * graph::ElementBytes(k.dtype);
}

// Keys and values for every query head. Neither kernel takes anything besides: fp32 results are their own accumulators.
int64_t CudaForward(const InstructionView& op, int first) {
  const Geometry *q = Input(op, first), *k = Input(op, first + 1);
  if (q == nullptr || k == nullptr || q->sizes.size() != 4 || IsReduced(*q)) return 0;
  return 2 * Repeated(*q, *k);
}

// The query gradient and the row sums in fp32, lengths padded to 128; with fewer key heads than query heads, key and value
// gradients for every query head.
int64_t CudaFlashBackward(const Geometry& q, const Geometry& k) {
  int64_t padded = (q.sizes[2] + 127) / 128 * 128, rows = q.sizes[0] * q.sizes[1] * padded;
  return rows * ((q.sizes[3] + 31) / 32 * 32) * 4 + rows * 4 + 2 * Repeated(q, k);
}

// PyTorch 2.11, ATen/native/transformers/cuda/attention_backward.cu and mem_eff_attention/kernel_backward.h: fp32 kernels do not
// compute delta themselves, so grad * out, its row sums and these once more in order of heads; then, beside delta, an accumulator
// of the query gradient in blocks of at most 128 rows and 64 columns (kNeedsAccumGradQ). Keys and values for every query head,
// and so their gradients, which stand where the results are counted until they are summed.
int64_t CudaEfficientBackward(const Geometry& q, const Geometry& k) {
  int64_t rows = q.sizes[0] * q.sizes[1] * q.sizes[2], delta = rows * 4, product = graph::Elements(q) * 4;
  int64_t blocks = q.sizes[0] * q.sizes[1] * ((q.sizes[2] + 127) / 128) * ((q.sizes[3] + 63) / 64);
  int64_t accumulator = blocks * (128 * 64 * 4 + 16);
  int64_t heads = Repeated(q, k);
  if (heads > 0) heads = 4 * heads - 2 * graph::Elements(k) * graph::ElementBytes(k.dtype);
  return std::max(product + 2 * delta, delta + accumulator) + heads;
}

int64_t CudaBackward(const InstructionView& op, int first) {
  const Geometry *q = Input(op, first), *k = Input(op, first + 1);
  if (q == nullptr || k == nullptr || q->sizes.size() != 4) return 0;
  return IsReduced(*q) ? CudaFlashBackward(*q, *k) : CudaEfficientBackward(*q, *k);
}

// aten::native_layer_norm_backward(grad, input, normalized_shape, mean, rstd, weight, bias, mask) on CPU: partial sums of both
// gradients for each thread. On CUDA partial sums of blocks of rows, at most 128 of them.
int64_t LayerNormBackward(const InstructionView& op, const WorkspaceContext& context) {
  const Geometry* weight = Input(op, 5);
  if (weight == nullptr) return 0;
  int64_t parts = context.kind == v1::CPU ? context.threads : 128;
  return 2 * parts * graph::Elements(*weight) * graph::ElementBytes(weight->dtype);
}

// lego::rms_norm_backward(grad, x, ...), with the gradient of the input or without: none on CPU; on CUDA partial sums of the
// weight's gradient in fp32.
int64_t RmsNormBackward(const InstructionView& op, const WorkspaceContext& context) {
  const Geometry* x = Input(op, 1);
  if (x == nullptr || x->sizes.empty() || context.kind == v1::CPU) return 0;
  return 128 * x->sizes.back() * 4;
}

// aten::embedding_dense_backward(grad, indices, ...) on CUDA sorts the indices: sorted keys, positions, and as much again.
int64_t EmbeddingBackward(const InstructionView& op, const WorkspaceContext& context) {
  const Geometry* indices = Input(op, 1);
  if (indices == nullptr || context.kind == v1::CPU) return 0;
  return 4 * graph::Elements(*indices) * 8;
}

// aten::_foreach_norm on CUDA: one partial result for each chunk of 65536 elements, in fp32.
int64_t ForeachNorm(const InstructionView& op, const WorkspaceContext& context) {
  if (context.kind == v1::CPU) return 0;
  int64_t tensors = 0, largest = 0;
  op.ForEachInput([&](int, uint32_t value) {
    ++tensors;
    largest = std::max(largest, graph::Elements(op.GeometryOf(op.trace().values[value])));
  });
  return tensors * ((largest + 65535) / 65536) * 4;
}

bool IsFloating(v1::DType dtype) {
  return dtype == v1::FLOAT32 || dtype == v1::FLOAT64 || dtype == v1::BFLOAT16 || dtype == v1::FLOAT16;
}

// The type in which tensors of these two are added; of different 16-bit types neither holds the other's numbers.
v1::DType Common(v1::DType a, v1::DType b) {
  if (a == b) return a;
  if (graph::ElementBytes(a) == graph::ElementBytes(b)) return v1::FLOAT32;
  return graph::ElementBytes(a) > graph::ElementBytes(b) ? a : b;
}

// A number beside a tensor on CPU becomes a tensor of eight bytes, and once more one of the common type (PyTorch 2.11,
// ATen/ScalarOps.h, wrapped_scalar_tensor; ATen/TensorIterator.cpp, compute_types).
int64_t WrappedNumber(const InstructionView& op) {
  const Geometry* const tensor = Input(op, 0);
  const bool is_number = op.Constant<double>(1).has_value() || op.Constant<int64_t>(1).has_value();
  if (tensor == nullptr || !is_number) return 0;
  return 8 + (tensor->dtype == v1::INT64 && op.Constant<int64_t>(1) ? 0 : graph::ElementBytes(tensor->dtype));
}

// Arithmetic of floating tensors on CPU: operands of another type are cast to the common one first, which tensors without
// dimensions have no say in, and what is written in place gets its result by way of one more (PyTorch 2.11,
// ATen/TensorIterator.cpp, compute_types). CUDA's kernels cast as they read and write.
int64_t Casts(const InstructionView& op, const WorkspaceContext& context) {
  if (context.kind != v1::CPU) return 0;
  if (const int64_t bytes = WrappedNumber(op); bytes > 0) return bytes;
  std::vector<const Geometry*> operands;
  op.ForEachInput([&](int, uint32_t value) { operands.push_back(&op.GeometryOf(op.trace().values[value])); });
  v1::DType common = v1::DTYPE_UNSPECIFIED;
  for (const Geometry* operand : operands) {
    if (!IsFloating(operand->dtype)) return 0;
    if (operand->sizes.empty()) continue;
    common = common == v1::DTYPE_UNSPECIFIED ? operand->dtype : Common(common, operand->dtype);
  }
  if (common == v1::DTYPE_UNSPECIFIED) return 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i]->dtype == common) continue;
    const bool in_place = i == 0 && (op.writes() & 1) != 0;
    bytes += (in_place ? 2 : 1) * graph::Elements(*operands[i]) * graph::ElementBytes(common);
  }
  return bytes;
}

}  // namespace

int64_t WorkspaceBytes(const InstructionView& op, const OperatorRow& row, const WorkspaceContext& context) {
  bool cpu = context.kind == v1::CPU;
  switch (row.workspace) {
    case WorkspaceRule::kNone: return 0;
    case WorkspaceRule::kFlashAttention:
    case WorkspaceRule::kAttention: return cpu ? CpuAttentionForward(op, 0, context.threads) : CudaForward(op, 0);
    case WorkspaceRule::kFlashAttentionBackward:
    case WorkspaceRule::kAttentionBackward: return cpu ? CpuAttentionBackward(op, 1, context) : CudaBackward(op, 1);
    case WorkspaceRule::kLayerNormBackward: return LayerNormBackward(op, context);
    case WorkspaceRule::kRmsNormBackward: return RmsNormBackward(op, context);
    case WorkspaceRule::kEmbeddingBackward: return EmbeddingBackward(op, context);
    case WorkspaceRule::kForeachNorm: return ForeachNorm(op, context);
    case WorkspaceRule::kCasts: return Casts(op, context);
    case WorkspaceRule::kMatmul: return cpu ? CpuMatmul(op, context) : 0;
  }
  return 0;
}

}  // namespace legoai::sim
