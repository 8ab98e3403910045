#include "worker/train/orthogonalize.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "worker/comm/ops.h"
#include "worker/comm/runtime.h"

namespace legoai::train {
namespace {

using at::Tensor;

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;  // Jordan et al. 2024
constexpr double kNormEpsilon = 1e-7;                     // as torch.optim.Muon

// The pieces of one all-to-all: of `members` matrices, [member, rows of a piece, row]; dimension 0 of a matrix here is the one
// that is cut.
class Exchange {
 public:
  Exchange(const MatrixCut& cut, int64_t row) : cut_(cut), row_(row) {
    const comm::Runtime& runtime = comm::CurrentRuntime();
    ranks_ = runtime.GroupSize(cut.group);
    rank_ = runtime.GroupRank(cut.group);
    const int64_t pieces = ranks_ / cut.copies;
    piece_ = (cut.size + pieces - 1) / pieces;
  }
  int64_t ranks() const { return ranks_; }

  // `parts`: of at most ranks() matrices. Gives the matrix with this rank's number, or an undefined tensor where there is none.
  Tensor Collect(std::span<const Tensor> parts) const {
    const Tensor in = NewBuffer(parts.front());
    for (int64_t r = 0; r < ranks_; ++r) {
      Fill(in.select(0, r), r < std::ssize(parts) ? Upright(parts[r]) : Tensor());
    }
    const Tensor out = Travel(in);
    if (rank_ >= std::ssize(parts)) return {};
    const Tensor whole = out.view({ranks_ / cut_.copies, cut_.copies, piece_, row_}).select(1, 0).reshape({-1, row_});
    return Upright(whole.narrow(0, 0, cut_.size)).contiguous();
  }

  // The way back. `whole`: as Collect gave it.
  void Return(const Tensor& whole, std::span<Tensor> parts) const {
    const Tensor in = NewBuffer(parts.front());
    for (int64_t r = 0; r < ranks_; ++r) {
      const int64_t begin = std::min(piece_ * (r / cut_.copies), cut_.size), rows = std::min(piece_, cut_.size - begin);
      Fill(in.select(0, r), whole.defined() ? Upright(whole).narrow(0, begin, rows) : Tensor());
    }
    const Tensor out = Travel(in);
    for (int64_t i = 0; i < std::ssize(parts); ++i) {
      parts[i] = Upright(out.select(0, i).narrow(0, 0, parts[i].size(cut_.dim)));
    }
  }

 private:
  // With the dimension that is cut in front, and back.
  Tensor Upright(const Tensor& matrix) const { return cut_.dim == 0 ? matrix : matrix.t(); }
  Tensor NewBuffer(const Tensor& like) const { return at::empty({ranks_, piece_, row_}, like.options()); }
  // Every byte that travels is known.
  void Fill(const Tensor& piece, const Tensor& rows) const {
    const int64_t held = rows.defined() ? rows.size(0) : 0;
    if (held > 0) piece.narrow(0, 0, held).copy_(rows);
    if (held < piece_) piece.narrow(0, held, piece_ - held).zero_();
  }
  Tensor Travel(const Tensor& in) const {
    const Tensor out = at::empty(in.sizes(), in.options());
    comm::AllToAllInto(out, in, cut_.group);
    return out;
  }

  MatrixCut cut_;
  int64_t row_, ranks_, rank_, piece_;
};

}  // namespace

Tensor NewtonSchulz(const Tensor& matrix, int64_t iterations) {
  const bool tall = matrix.size(0) > matrix.size(1);
  Tensor x = matrix.to(at::kBFloat16);
  if (tall) x = x.t();
  x = at::div(x, at::clamp(at::linalg_vector_norm(x, 2), kNormEpsilon));  // no singular value above 1
  for (int64_t i = 0; i < iterations; ++i) {
    const Tensor gram = at::mm(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, kB, kC), x, kA);
  }
  return tall ? x.t() : x;
}

std::vector<MatrixCut> CutsOf(const model::Parameter& parameter) {
  const parallel::ShardSpec& spec = parameter.spec;
  const comm::Runtime& runtime = comm::CurrentRuntime();
  std::vector<MatrixCut> cuts;
  for (const mesh::Dim dim : spec.sharded_over) {
    // Tensor parallelism cuts any dimension, data parallelism the first of what is left.
    const bool is_tp = dim == mesh::Dim::kTp;
    const int64_t cut = is_tp && parameter.local_shape[0] == spec.global_shape[0] ? 1 : 0;
    const int64_t size = is_tp ? spec.global_shape[cut] : parameter.local_shape[cut];
    cuts.push_back({runtime.GroupId(dim), cut, size, is_tp ? spec.copies_over_tp : 1});
  }
  return cuts;
}

int64_t MatricesAtOnce(const std::vector<MatrixCut>& cuts) {
  int64_t ranks = 1;
  for (const MatrixCut& cut : cuts) ranks *= comm::CurrentRuntime().GroupSize(cut.group);
  return ranks;
}

std::vector<Tensor> Orthogonalize(std::vector<Tensor> parts, std::span<const MatrixCut> cuts, int64_t iterations) {
  if (cuts.empty()) {
    for (Tensor& part : parts) part = NewtonSchulz(part, iterations);
    return parts;
  }
  if (parts.empty()) return parts;
  const MatrixCut& last = cuts.back();
  const Exchange exchange(last, parts.front().size(1 - last.dim));
  std::vector<std::span<Tensor>> batches;
  for (size_t i = 0; i < parts.size(); i += exchange.ranks()) {
    batches.push_back(std::span(parts).subspan(i, std::min<size_t>(exchange.ranks(), parts.size() - i)));
  }
  std::vector<Tensor> wholes;
  for (const auto& batch : batches) {
    // The last batch may have no matrix for this rank, and then none for the ranks that share its number.
    if (Tensor whole = exchange.Collect(batch); whole.defined()) wholes.push_back(whole);
  }
  wholes = Orthogonalize(std::move(wholes), cuts.first(cuts.size() - 1), iterations);
  wholes.resize(batches.size());
  for (size_t i = 0; i < batches.size(); ++i) exchange.Return(wholes[i], batches[i]);
  return parts;
}

}  // namespace legoai::train
