#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "simulator/measure/operator_grid.h"

namespace legoai::sim {
namespace {

struct Heads {
  int64_t queries = 0, keys = 0, dim = 0;
  bool both_masks = false;  // measured without a causal mask, too
  int tier = 1;
};

// [batch, heads, seq, dim] that lies as a projection leaves it: [batch, seq, heads, dim].
GridArgument BySequence(v1::DType dtype, int64_t batch, int64_t heads, int64_t seq, int64_t dim) {
  return Strided(dtype, {batch, heads, seq, dim}, {seq * heads * dim, dim, heads * dim, 1});
}

void AddPair(v1::DType dtype, const Heads& heads, int64_t batch, int64_t seq, bool causal, int tier,
             std::vector<GridPoint>* points) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(heads.dim));
  const OperatorCall forward = {
      "lego::attention",
      "",
      {BySequence(dtype, batch, heads.queries, seq, heads.dim), BySequence(dtype, batch, heads.keys, seq, heads.dim),
       BySequence(dtype, batch, heads.keys, seq, heads.dim), Flag(causal), Real(scale)}};
  const OperatorCall backward = {"lego::attention_backward",
                                 "",
                                 {BySequence(dtype, batch, heads.queries, seq, heads.dim), BeforeArgument{0}, BeforeArgument{1},
                                  BeforeArgument{2}, BeforeResult{0}, BeforeResult{1}, Flag(causal), Real(scale)}};
  GridPoint point{.dtype = dtype, .tier = tier};
  point.shape = {{"batch", batch}, {"heads", heads.queries}, {"kv_heads", heads.keys},
                 {"seq", seq},     {"head_dim", heads.dim},  {"causal", causal}};
  point.call = forward;
  points->push_back(point);
  point.call = backward;
  point.before = forward;
  points->push_back(std::move(point));
}

// Of the forward, the mask not deducted.
double Flops(const Heads& heads, int64_t batch, int64_t seq) {
  return 4.0 * static_cast<double>(batch * heads.queries * heads.dim) * static_cast<double>(seq) * static_cast<double>(seq);
}

void AddLengths(v1::DType dtype, const Heads& heads, double most_flops, std::vector<GridPoint>* points) {
  for (const int64_t seq : {512, 1024, 2048, 4096, 8192}) {
    for (const int64_t batch : {1, 4, 16}) {
      if (Flops(heads, batch, seq) > most_flops) continue;
      const int tier = batch == 16 ? 3 : heads.tier;
      AddPair(dtype, heads, batch, seq, true, tier, points);
      if (heads.both_masks) AddPair(dtype, heads, batch, seq, false, std::min(tier + 1, 3), points);
    }
  }
}

}  // namespace

void AddAttention(GridSize size, std::vector<GridPoint>* points) {
  if (size == GridSize::kQuick) {
    for (const v1::DType dtype : {v1::FLOAT32, v1::BFLOAT16}) {
      for (const int64_t seq : {16, 32, 64}) {
        for (const bool causal : {true, false}) AddPair(dtype, {4, 2, 16}, 2, seq, causal, 1, points);
      }
    }
    return;
  }
  // Llama 3.2 1B, 8B and 70B whole and cut by tensor parallelism, GPT-2 and GPT-2 XL.
  const std::vector<Heads> kinds = {{32, 8, 64, true, 1},   {32, 8, 128, true, 1}, {8, 2, 64, false, 1},
                                    {8, 2, 128, false, 1},  {4, 1, 128, false, 2}, {16, 4, 128, false, 2},
                                    {64, 8, 128, false, 2}, {12, 12, 64, true, 1}, {25, 25, 64, false, 2}};
  for (const Heads& heads : kinds) AddLengths(v1::BFLOAT16, heads, 5e12, points);
  for (Heads heads : {kinds[0], kinds[1], kinds[7]}) {
    AddLengths(v1::FLOAT32, heads, 4e11, points);
    heads.tier = 2;
    AddLengths(v1::FLOAT16, heads, 2e12, points);
  }
}

}  // namespace legoai::sim
