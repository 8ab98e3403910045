// What memory bandwidth bounds: elementwise operators, reductions, copies and the optimizer.
#include "absl/strings/str_cat.h"
#include "simulator/measure/operator_grid.h"

namespace legoai::sim {
namespace {

using Dtypes = std::vector<v1::DType>;

constexpr double kEpsilon = 1e-5;

std::vector<int64_t> Elements(GridSize size) {
  if (size == GridSize::kQuick) return {1 << 8, 1 << 10, 1 << 12, 1 << 14, 1 << 16};
  std::vector<int64_t> elements;
  for (int power = 10; power <= 28; power += 2) elements.push_back(int64_t{1} << power);
  for (const int64_t others : {3 << 19, 5 << 21, 3 << 23, 7 << 24}) elements.push_back(others);
  return elements;
}

std::vector<int64_t> Rows(GridSize size) {
  return size == GridSize::kQuick ? std::vector<int64_t>{4, 32} : std::vector<int64_t>{256, 2048, 8192, 32768};
}

std::vector<int64_t> Widths(GridSize size) {
  return size == GridSize::kQuick ? std::vector<int64_t>{32, 48} : std::vector<int64_t>{768, 1600, 2048, 4096, 8192};
}

void Add(v1::DType dtype, std::map<std::string, int64_t> shape, int tier, OperatorCall call, std::vector<GridPoint>* points,
         std::optional<OperatorCall> before = std::nullopt) {
  GridPoint point{.dtype = dtype, .shape = std::move(shape), .tier = tier};
  point.call = std::move(call);
  point.before = std::move(before);
  points->push_back(std::move(point));
}

void AddPerElement(v1::DType dtype, int64_t elements, std::vector<GridPoint>* points) {
  const std::map<std::string, int64_t> shape = {{"elements", elements}};
  const GridArgument x = Tensor(dtype, {elements});
  const int tier = dtype == v1::BFLOAT16 || dtype == v1::FLOAT32 ? 1 : 3;
  Add(dtype, shape, tier, {"aten::add", "Tensor", {x, x}}, points);
  Add(dtype, shape, tier, {"aten::mul", "Tensor", {x, x}}, points);
  Add(dtype, shape, tier, {"aten::silu", "", {x}}, points);
  Add(dtype, shape, tier, {"aten::silu_backward", "", {x, x}}, points);
  Add(dtype, shape, tier, {"aten::gelu", "", {x, Text("tanh")}}, points);
  Add(dtype, shape, tier, {"aten::gelu_backward", "", {x, x, Text("tanh")}}, points);
  Add(dtype, shape, 2, {"aten::add_", "Tensor", {x, x}}, points);
  Add(dtype, shape, 2, {"aten::mul", "Scalar", {x, Real(0.5)}}, points);
}

// Rotary embedding: x by cosines that all heads share, and what is turned by sines.
void AddRope(v1::DType dtype, int64_t batch, int64_t seq, int64_t heads, int64_t dim, std::vector<GridPoint>* points) {
  const std::map<std::string, int64_t> shape = {{"batch", batch}, {"seq", seq}, {"heads", heads}, {"head_dim", dim}};
  const GridArgument x = Tensor(dtype, {batch, seq, heads, dim}), table = Tensor(dtype, {seq, 1, dim});
  Add(dtype, shape, 1, {"aten::mul", "Tensor", {x, table}}, points);
  Add(dtype, shape, 1, {"aten::addcmul", "", {x, x, table}}, points);
  Add(dtype, shape, 1, {"aten::roll", "", {x, Wholes({dim / 2}), Wholes({3})}}, points);
}

void AddDropout(v1::DType dtype, int64_t batch, int64_t seq, int64_t width, std::vector<GridPoint>* points) {
  Add(dtype, {{"batch", batch}, {"seq", seq}, {"dim", width}}, 2,
      {"lego::dropout",
       "",
       {Tensor(dtype, {batch, seq, width}), Ids({2}, 1 << 20), Ids({batch}, 1 << 20), Whole(3), Real(0.1), Whole(0), Wholes({})}},
      points);
}

void AddEmbedding(v1::DType dtype, int64_t tokens, int64_t vocab, int64_t width, int tier, std::vector<GridPoint>* points) {
  const std::map<std::string, int64_t> shape = {{"tokens", tokens}, {"vocab", vocab}, {"dim", width}};
  const GridArgument ids = Ids({1, tokens}, vocab);
  Add(dtype, shape, tier, {"aten::embedding", "", {Tensor(dtype, {vocab, width}), ids}}, points);
  Add(dtype, shape, tier,
      {"aten::embedding_dense_backward", "", {Tensor(dtype, {1, tokens, width}), ids, Whole(vocab), Whole(-1), Flag(false)}},
      points);
}

void AddNorms(v1::DType dtype, int64_t rows, int64_t width, std::vector<GridPoint>* points) {
  const std::map<std::string, int64_t> shape = {{"rows", rows}, {"dim", width}};
  const GridArgument x = Tensor(dtype, {rows, width}), weight = Tensor(dtype, {width});
  const OperatorCall rms = {"lego::rms_norm", "", {x, weight, Real(kEpsilon)}};
  Add(dtype, shape, 1, rms, points);
  Add(dtype, shape, 1, {"lego::rms_norm_backward", "", {x, BeforeArgument{0}, BeforeArgument{1}, BeforeResult{1}}}, points, rms);
  const OperatorCall layer = {"aten::native_layer_norm", "", {x, Wholes({width}), weight, weight, Real(kEpsilon)}};
  Add(dtype, shape, 1, layer, points);
  Add(dtype, shape, 1,
      {"aten::native_layer_norm_backward",
       "",
       {x, BeforeArgument{0}, Wholes({width}), BeforeResult{1}, BeforeResult{2}, BeforeArgument{2}, BeforeArgument{3},
        graph::Constant(std::vector<bool>{true, true, true})}},
      points, layer);
  for (const int64_t over : {0, 1}) {
    auto reduced = shape;
    reduced["over"] = over;
    Add(dtype, reduced, 2, {"aten::sum", "dim_IntList", {x, Wholes({over})}}, points);
  }
  Add(dtype, shape, 3, {"aten::amax", "", {x, Wholes({1})}}, points);
}

constexpr int64_t kFloat32Code = 6;  // c10::ScalarType::Float, the type of softmax's input
constexpr int64_t kSumReduction = 2, kIgnored = -100;

// As the trainer's loss has it: fp32 logits of a whole microbatch, reduced by a sum.
void AddCrossEntropy(int64_t tokens, int64_t vocab, int tier, std::vector<GridPoint>* points) {
  const v1::DType dtype = v1::FLOAT32;
  const std::map<std::string, int64_t> shape = {{"tokens", tokens}, {"vocab", vocab}};
  const GridArgument logits = Tensor(dtype, {tokens, vocab}), targets = Ids({tokens}, vocab);
  const OperatorCall softmax = {"aten::_log_softmax", "", {logits, Whole(1), Flag(false)}};
  Add(dtype, shape, tier, softmax, points);
  Add(dtype, shape, tier,
      {"aten::_log_softmax_backward_data", "", {Tensor(dtype, {tokens, vocab}), BeforeResult{0}, Whole(1), Whole(kFloat32Code)}},
      points, softmax);
  const OperatorCall loss = {"aten::nll_loss_forward", "", {logits, targets, None(), Whole(kSumReduction), Whole(kIgnored)}};
  Add(dtype, shape, tier, loss, points);
  Add(dtype, shape, tier,
      {"aten::nll_loss_backward",
       "",
       {Tensor(dtype, {}), BeforeArgument{0}, BeforeArgument{1}, None(), Whole(kSumReduction), Whole(kIgnored), BeforeResult{1}}},
      points, loss);
}

// Of attention with dropout.
void AddSoftmax(v1::DType dtype, int64_t batch, int64_t seq, std::vector<GridPoint>* points) {
  const std::map<std::string, int64_t> shape = {{"batch", batch}, {"rows", seq}, {"dim", seq}};
  const GridArgument scores = Tensor(dtype, {batch, seq, seq});
  const OperatorCall softmax = {"aten::_softmax", "", {scores, Whole(-1), Flag(false)}};
  constexpr int64_t kBFloat16Code = 15;
  Add(dtype, shape, 2, softmax, points);
  Add(dtype, shape, 2,
      {"aten::_softmax_backward_data",
       "",
       {scores, BeforeResult{0}, Whole(-1), Whole(dtype == v1::FLOAT32 ? kFloat32Code : kBFloat16Code)}},
      points, softmax);
}

void AddCopiesOf(v1::DType dtype, int64_t elements, std::vector<GridPoint>* points) {
  const std::map<std::string, int64_t> shape = {{"elements", elements}};
  const v1::DType other = dtype == v1::FLOAT32 ? v1::BFLOAT16 : v1::FLOAT32;
  const GridArgument x = Tensor(dtype, {elements}), y = Tensor(other, {elements});
  auto named = [&](const char* what) {
    auto more = shape;
    more[what] = 1;
    return more;
  };
  Add(dtype, shape, 1, {"aten::copy_", "", {x, x}}, points);
  Add(dtype, named(dtype == v1::FLOAT32 ? "from_bfloat16" : "from_float32"), 1, {"aten::copy_", "", {x, y}}, points);
  Add(dtype, shape, 2, {"aten::clone", "", {x}}, points);
  Add(dtype, shape, 2, {"aten::zero_", "", {x}}, points);
  Add(dtype, shape, 3, {"aten::cat", "", {TensorList{TensorSpec{.dtype = dtype, .sizes = {elements / 4}}, 4}}}, points);
}

// Attention's result, by heads, made contiguous by sequence.
void AddTransposed(v1::DType dtype, int64_t batch, int64_t seq, int64_t heads, int64_t dim, std::vector<GridPoint>* points) {
  constexpr int64_t kContiguousFormat = 0;
  Add(dtype, {{"batch", batch}, {"seq", seq}, {"heads", heads}, {"head_dim", dim}}, 2,
      {"aten::clone",
       "",
       {Strided(dtype, {batch, seq, heads, dim}, {seq * heads * dim, dim, seq * dim, 1}), Whole(kContiguousFormat)}},
      points);
}

void AddAdamW(int64_t tensors, int64_t elements, int tier, std::vector<GridPoint>* points) {
  const v1::DType dtype = v1::FLOAT32;
  const TensorSpec each{.dtype = dtype, .sizes = {elements}},
      positive{.dtype = dtype, .sizes = {elements}, .fill = Fill::kPositive};
  const TensorSpec step{.dtype = dtype, .fill = Fill::kPositive};
  const std::map<std::string, int64_t> shape = {{"tensors", tensors}, {"elements", elements}};
  Add(dtype, shape, tier,
      {"aten::_fused_adamw_",
       "tensor_lr",
       {TensorList{each, tensors}, TensorList{each, tensors}, TensorList{each, tensors}, TensorList{positive, tensors},
        TensorList{}, TensorList{step, tensors, true}, TensorSpec{.dtype = dtype, .fill = Fill::kPositive}, Real(0.9), Real(0.95),
        Real(0.1), Real(1e-8), Flag(false), Flag(false)}},
      points);
}

// Clipping by the global norm.
void AddClipping(int64_t tensors, int64_t elements, int tier, std::vector<GridPoint>* points) {
  const v1::DType dtype = v1::FLOAT32;
  const TensorList gradients{TensorSpec{.dtype = dtype, .sizes = {elements}}, tensors};
  const std::map<std::string, int64_t> shape = {{"tensors", tensors}, {"elements", elements}};
  Add(dtype, shape, tier, {"aten::_foreach_norm", "Scalar", {gradients, Real(2)}}, points);
  Add(dtype, shape, tier, {"aten::_foreach_mul_", "Tensor", {gradients, Tensor(dtype, {}, Fill::kPositive)}}, points);
}

struct Parameters {
  int64_t tensors, elements;
};
std::vector<Parameters> ParameterLists(GridSize size) {
  if (size == GridSize::kQuick) return {{1, 256}, {1, 1 << 14}, {4, 4096}, {16, 64}, {16, 1024}, {8, 300}};
  return {{1, 1 << 12},       {1, 1 << 16},      {1, 1 << 20},   {1, 1 << 22},      {1, 1 << 24},      {1, 1 << 26},
          {1, 1 << 28},       {2, 50257 * 768},  {8, 1 << 16},   {8, 1 << 20},      {8, 1 << 22},      {8, 1 << 25},
          {16, 4096},         {16, 4096 * 4096}, {32, 1 << 18},  {32, 1 << 20},     {32, 1 << 24},     {64, 1024},
          {64, 1 << 16},      {64, 2048 * 2048}, {150, 768},     {150, 768 * 768},  {150, 768 * 3072}, {290, 4096},
          {290, 1600 * 1600}, {290, 2048 * 512}, {500, 1 << 14}, {100, 4096 * 1024}};
}

}  // namespace

void AddElementwise(GridSize size, std::vector<GridPoint>* points) {
  const bool quick = size == GridSize::kQuick;
  for (const v1::DType dtype : {v1::BFLOAT16, v1::FLOAT32}) {
    for (const int64_t elements : Elements(size)) AddPerElement(dtype, elements, points);
    if (quick) {
      AddRope(dtype, 2, 16, 4, 16, points);
      AddDropout(dtype, 2, 16, 64, points);
      AddEmbedding(dtype, 32, 64, 32, 1, points);
      continue;
    }
    for (const int64_t seq : {2048, 8192}) {
      for (const int64_t heads : {4, 8, 32}) {
        for (const int64_t dim : {64, 128}) AddRope(dtype, 1, seq, heads, dim, points);
      }
    }
    for (const int64_t batch : {1, 8, 32}) {
      for (const int64_t width : {768, 3072}) AddDropout(dtype, batch, 1024, width, points);
    }
    for (const int64_t tokens : {2048, 8192, 32768}) {
      AddEmbedding(dtype, tokens, 128256, 2048, 1, points);
      AddEmbedding(dtype, tokens, 50257, 768, 2, points);
      AddEmbedding(dtype, tokens, 128256, 4096, 2, points);
    }
  }
}

void AddReductions(GridSize size, std::vector<GridPoint>* points) {
  const bool quick = size == GridSize::kQuick;
  for (const v1::DType dtype : {v1::BFLOAT16, v1::FLOAT32}) {
    for (const int64_t rows : Rows(size)) {
      for (const int64_t width : Widths(size)) AddNorms(dtype, rows, width, points);
    }
    if (quick) {
      AddSoftmax(dtype, 4, 32, points);
      continue;
    }
    for (const int64_t batch : {12, 48, 96, 200}) {
      for (const int64_t seq : {512, 1024}) AddSoftmax(dtype, batch, seq, points);
    }
  }
  if (quick) {
    for (const int64_t tokens : {4, 16, 64}) AddCrossEntropy(tokens, 256, 1, points);
    return;
  }
  for (const int64_t tokens : {1024, 2048, 4096, 8192}) {
    AddCrossEntropy(tokens, 128256, 1, points);
    AddCrossEntropy(tokens, 50257, 1, points);
    AddCrossEntropy(tokens, 32000, 2, points);
  }
}

void AddCopies(GridSize size, std::vector<GridPoint>* points) {
  for (const v1::DType dtype : {v1::BFLOAT16, v1::FLOAT32}) {
    for (const int64_t elements : Elements(size)) AddCopiesOf(dtype, elements, points);
    if (size == GridSize::kQuick) {
      AddTransposed(dtype, 2, 16, 4, 16, points);
      continue;
    }
    for (const int64_t seq : {2048, 8192}) {
      for (const int64_t heads : {4, 12, 32}) {
        for (const int64_t dim : {64, 128}) AddTransposed(dtype, 2, seq, heads, dim, points);
      }
    }
  }
}

void AddOptimizer(GridSize size, std::vector<GridPoint>* points) {
  for (const Parameters& list : ParameterLists(size)) {
    AddAdamW(list.tensors, list.elements, 1, points);
    AddClipping(list.tensors, list.elements, 2, points);
  }
}

}  // namespace legoai::sim
