#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "simulator/measure/operator_grid.h"

namespace legoai::sim {
namespace {

// How a linear layer calls its products (worker/model/layers.cc): x w^T, gradient x w, and gradient^T x.
enum class Pass { kForward, kInputGradient, kWeightGradient };
constexpr Pass kPasses[] = {Pass::kForward, Pass::kInputGradient, Pass::kWeightGradient};

const char* PassName(Pass pass) {
  switch (pass) {
    case Pass::kForward: return "forward";
    case Pass::kInputGradient: return "gradient of the input";
    case Pass::kWeightGradient: return "gradient of the weight";
  }
  return "";
}

struct Product {
  v1::DType dtype = v1::FLOAT32;
  int64_t m = 0, n = 0, k = 0;  // [m, k] x [k, n]
  bool a_by_columns = false, b_by_columns = false;
  double Flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

// What takes about 30 ms on an H100.
double MostFlops(v1::DType dtype) { return dtype == v1::FLOAT32 ? 1.5e12 : 2e13; }

GridArgument Matrix(v1::DType dtype, int64_t rows, int64_t columns, bool by_columns) {
  return by_columns ? Strided(dtype, {rows, columns}, {1, rows}) : Tensor(dtype, {rows, columns});
}

void AddProduct(const Product& product, const std::string& use, int tier, std::vector<GridPoint>* points, bool bias = false) {
  if (product.Flops() > MostFlops(product.dtype)) return;
  GridPoint point{.dtype = product.dtype, .use = use, .tier = tier};
  point.shape = {{"m", product.m},
                 {"n", product.n},
                 {"k", product.k},
                 {"a_by_columns", product.a_by_columns},
                 {"b_by_columns", product.b_by_columns}};
  point.call.name = bias ? "aten::addmm" : "aten::mm";
  if (bias) point.call.arguments.push_back(Tensor(product.dtype, {product.n}));
  point.call.arguments.push_back(Matrix(product.dtype, product.m, product.k, product.a_by_columns));
  point.call.arguments.push_back(Matrix(product.dtype, product.k, product.n, product.b_by_columns));
  points->push_back(std::move(point));
}

// Of a layer [in -> out] on `tokens` rows.
Product OfPass(Pass pass, v1::DType dtype, int64_t tokens, int64_t in, int64_t out) {
  switch (pass) {
    case Pass::kForward: return {dtype, tokens, out, in, false, true};
    case Pass::kInputGradient: return {dtype, tokens, in, out, false, false};
    case Pass::kWeightGradient: return {dtype, out, in, tokens, true, false};
  }
  return {};
}

void AddLinear(const RankShapes& rank, const std::string& layer, int64_t in, int64_t out, v1::DType dtype, int64_t tokens,
               int tier, std::vector<GridPoint>* points) {
  const bool bias = rank.bias && layer != "lm_head";
  for (const Pass pass : kPasses) {
    AddProduct(OfPass(pass, dtype, tokens, in, out), absl::StrCat(rank.model, " tp ", rank.tp, " ", layer, " ", PassName(pass)),
               tier, points, bias && pass == Pass::kForward);
  }
}

void AddLinears(const RankShapes& rank, v1::DType dtype, int64_t tokens, int tier, std::vector<GridPoint>* points) {
  AddLinear(rank, "q_proj", rank.hidden, rank.heads * rank.head_dim, dtype, tokens, tier, points);
  AddLinear(rank, "k_proj", rank.hidden, rank.kv_heads * rank.head_dim, dtype, tokens, tier, points);
  AddLinear(rank, "o_proj", rank.heads * rank.head_dim, rank.hidden, dtype, tokens, tier, points);
  AddLinear(rank, rank.bias ? "c_fc" : "gate_proj", rank.hidden, rank.inner, dtype, tokens, tier, points);
  AddLinear(rank, rank.bias ? "c_proj" : "down_proj", rank.inner, rank.hidden, dtype, tokens, tier, points);
  AddLinear(rank, "lm_head", rank.hidden, rank.vocab, dtype, tokens, tier, points);
}

void AddModels(std::vector<GridPoint>* points) {
  for (const RankShapes& rank : RanksOfModels(GridSize::kFull)) {
    AddLinears(rank, v1::BFLOAT16, 8192, 1, points);
    AddLinears(rank, v1::BFLOAT16, 2048, rank.tp == 1 ? 1 : 2, points);
    AddLinears(rank, v1::BFLOAT16, 32768, 3, points);
    if (rank.hidden > 2048) {
      if (rank.model == "llama3-8b" && rank.tp == 1) AddLinears(rank, v1::FLOAT16, 8192, 2, points);
      continue;
    }
    AddLinears(rank, v1::FLOAT32, 2048, 1, points);
    if (rank.tp == 1) AddLinears(rank, v1::FLOAT32, 8192, 2, points);
    if (rank.tp == 1) AddLinears(rank, v1::FLOAT16, 2048, 3, points);
  }
}

void AddOtherForms(v1::DType dtype, int tier, std::vector<GridPoint>* points) {
  for (const int64_t size : {128, 256, 512, 1000, 1024, 1536, 2048, 3000, 4096, 6144, 8192, 12288, 16384}) {
    AddProduct({dtype, size, size, size}, "square", tier, points);
  }
  for (const int64_t rows : {16, 64, 512, 16384, 65536, 131072}) {
    AddProduct({dtype, rows, 1024, 1024, false, true}, "tall", tier, points);
    AddProduct({dtype, rows, 4096, 4096, false, true}, "tall", tier, points);
    AddProduct({dtype, 1024, 1024, rows, true, false}, "deep", tier, points);
    AddProduct({dtype, 4096, 4096, rows, true, false}, "deep", tier, points);
  }
  for (const int64_t narrow : {8, 64, 128}) {
    AddProduct({dtype, 8192, narrow, 4096, false, true}, "flat", tier, points);
    AddProduct({dtype, 8192, 4096, narrow}, "flat", tier, points);
  }
}

// GPT-2's attention with dropout: scores with a mask, probabilities by values.
void AddBatched(v1::DType dtype, int64_t batch, int64_t seq, int64_t head_dim, int tier, std::vector<GridPoint>* points) {
  GridPoint scores{.dtype = dtype, .use = "scores of attention with dropout", .tier = tier};
  scores.shape = {{"batch", batch}, {"m", seq}, {"n", seq}, {"k", head_dim}};
  const GridArgument keys = Strided(dtype, {batch, head_dim, seq}, {seq * head_dim, 1, head_dim});
  scores.call = {
      "aten::baddbmm", "", {Tensor(dtype, {seq, seq}), Tensor(dtype, {batch, seq, head_dim}), keys, Real(1.0), Real(0.125)}};
  points->push_back(std::move(scores));
  GridPoint values{.dtype = dtype, .use = "values of attention with dropout", .tier = tier};
  values.shape = {{"batch", batch}, {"m", seq}, {"n", head_dim}, {"k", seq}};
  values.call = {"aten::bmm", "", {Tensor(dtype, {batch, seq, seq}, Fill::kPositive), Tensor(dtype, {batch, seq, head_dim})}};
  points->push_back(std::move(values));
}

void AddQuick(std::vector<GridPoint>* points) {
  for (const v1::DType dtype : {v1::FLOAT32, v1::BFLOAT16, v1::FLOAT16}) {
    for (const int64_t size : {32, 64, 96, 128}) AddProduct({dtype, size, size, size}, "square", 1, points);
    if (dtype != v1::FLOAT16) AddBatched(dtype, 2, 32, 16, 1, points);
  }
  for (const RankShapes& rank : RanksOfModels(GridSize::kQuick)) {
    for (const int64_t tokens : {32, 64}) AddLinears(rank, v1::FLOAT32, tokens, 1, points);
    AddLinears(rank, v1::BFLOAT16, 64, 2, points);
  }
}

}  // namespace

std::vector<RankShapes> RanksOfModels(GridSize size) {
  if (size == GridSize::kQuick) {
    return {{"tiny", 1, 64, 160, 4, 2, 16, 256, false}, {"tiny with bias", 1, 64, 128, 4, 4, 16, 256, true}};
  }
  std::vector<RankShapes> ranks = {{"gpt2", 1, 768, 3072, 12, 12, 64, 50257, true},
                                   {"gpt2-xl", 1, 1600, 6400, 25, 25, 64, 50257, true}};
  for (const int64_t tp : {1, 2, 4, 8}) {
    for (const RankShapes& whole : std::initializer_list<RankShapes>{{"llama3.2-1b", 1, 2048, 8192, 32, 8, 64, 128256, false},
                                                                     {"llama3-8b", 1, 4096, 14336, 32, 8, 128, 128256, false},
                                                                     {"llama3-70b", 1, 8192, 28672, 64, 8, 128, 128256, false}}) {
      ranks.push_back({whole.model, tp, whole.hidden, whole.inner / tp, whole.heads / tp, whole.kv_heads / tp, whole.head_dim,
                       whole.vocab / tp, false});
    }
  }
  return ranks;
}

void AddMatmuls(GridSize size, std::vector<GridPoint>* points) {
  if (size == GridSize::kQuick) return AddQuick(points);
  AddModels(points);
  AddOtherForms(v1::BFLOAT16, 1, points);
  AddOtherForms(v1::FLOAT32, 2, points);
  AddOtherForms(v1::FLOAT16, 2, points);
  for (const v1::DType dtype : {v1::BFLOAT16, v1::FLOAT32}) {
    for (const int64_t batch : {12, 48, 96, 200}) {
      for (const int64_t seq : {512, 1024}) AddBatched(dtype, batch, seq, 64, 2, points);
    }
  }
}

}  // namespace legoai::sim
