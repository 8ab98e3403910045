#include "worker/parallel/fsdp_unit.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "core/trace/annotation.h"
#include "worker/comm/ops.h"
#include "worker/graph/recorder.h"
#include "worker/model/module.h"

namespace legoai::parallel {
namespace {

using at::Tensor;
using comm::RecordEvent;
using comm::StreamScope;
using comm::WaitEvent;
using graph::Category;
using graph::CategoryScope;

// Recordings show the unit's work under the unit's path, wherever it is issued from.
struct UnitScope : graph::AnnotationScope<const std::string*> {
  explicit UnitScope(const std::string& path) : AnnotationScope(&graph::Annotation::module, &path) {}
};

}  // namespace

DataParallelMesh DataParallelMesh::Current() {
  const comm::Runtime& runtime = comm::CurrentRuntime();
  const int64_t shard = runtime.GroupId(mesh::Dim::kDpShardCp), replicate = runtime.GroupId(mesh::Dim::kDpReplicate),
                reshard = runtime.GroupId(mesh::Dim::kReshard);
  return {.shard_group = shard,
          .shard_size = runtime.GroupSize(shard),
          .shard_rank = runtime.GroupRank(shard),
          .replicate_group = replicate,
          .replicate_size = runtime.GroupSize(replicate),
          .reshard_group = reshard,
          .reshard_size = runtime.GroupSize(reshard),
          .reshard_rank = runtime.GroupRank(reshard)};
}

FsdpUnit::FsdpUnit(std::string path, std::vector<model::Parameter*> parameters, const DataParallelMesh& place,
                   const Precision& precision, bool values_stay)
    : path_(std::move(path)),
      parameters_(std::move(parameters)),
      mesh_(place),
      precision_(precision),
      values_stay_(values_stay) {
  for (model::Parameter* p : parameters_) {
    TORCH_CHECK(p->spec.sizes == p->local_shape && !p->local_shape.empty(), p->name(),
                ": already cut over dp_shard_cp, or a scalar");
    Piece piece;
    piece.rows = p->local_shape[0];
    piece.row = piece.rows == 0 ? 0 : p->spec.Elements() / piece.rows;
    piece.elements = (piece.rows + place.shard_size - 1) / place.shard_size * piece.row;
    piece.offset = packed_;
    packed_ += piece.elements;
    pieces_.push_back(piece);
    Cut(&p->spec, 0, place.shard_size, place.shard_rank, mesh::Dim::kDpShardCp);
  }
  flats_.resize(parameters_.size());
  kept_.resize(parameters_.size());
  missing_.resize(parameters_.size());
  comm::Runtime& runtime = comm::CurrentRuntime();
  for (int64_t* event : {&gather_fork_, &gather_done_, &reduce_fork_, &reduce_done_, &replicate_fork_, &replicate_done_}) {
    *event = runtime.NewEvent();
  }
}

bool FsdpUnit::ValuesApart() const { return mesh_.shard_size > 1 || precision_.param != precision_.master; }

void FsdpUnit::Allocate(c10::Device device) {
  at::NoGradGuard no_grad;
  CategoryScope category(Category::kUnshardedParameter);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    model::Parameter& p = *parameters_[i];
    const Piece& piece = pieces_[i];
    // variable_data(): a version counter of its own. Filling the values, or an update, is no in-place change that autograd
    // would have to refuse: it happens when nobody needs what was there.
    if (ValuesApart()) {
      flats_[i] = at::empty({mesh_.shard_size * piece.elements}, at::TensorOptions().device(device).dtype(precision_.param));
      p.value = flats_[i].narrow(0, 0, piece.rows * piece.row).view(p.local_shape).variable_data();
      if (!values_stay_) comm::ResizeStorage(flats_[i], 0);
    } else {
      p.value = p.master.variable_data();
    }
    p.value.set_requires_grad(true);
    nodes_.push_back(model::NotifyOnAccumulate(&p));
  }
}

// `packed`: [packed_], this rank's pieces, padding zeroed so that every byte that travels is known.
void FsdpUnit::PackMasters(const Tensor& packed) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& master = parameters_[i]->master;
    const Piece& piece = pieces_[i];
    const int64_t held = master.numel();
    if (held > 0) packed.narrow(0, piece.offset, held).copy_(master.view({held}));
    if (held < piece.elements) packed.narrow(0, piece.offset + held, piece.elements - held).zero_();
  }
}

void FsdpUnit::StartGather() {
  if (!ValuesApart() || state_ != State::kSharded) return;
  state_ = State::kGathering;
  if (mesh_.shard_size == 1) return;  // nothing travels; the cast is made at the use
  at::NoGradGuard no_grad;
  UnitScope unit(path_);
  {
    CategoryScope category(Category::kAllGatherBuffer);
    gathered_ = at::empty({mesh_.shard_size, packed_}, parameters_[0]->value.options().requires_grad(false));
  }
  const int64_t group = part_.defined() ? mesh_.reshard_group : mesh_.shard_group;
  Tensor own = std::exchange(part_, Tensor());
  if (!own.defined()) {
    own = gathered_.select(0, mesh_.shard_rank);
    PackMasters(own);
  }
  RecordEvent(comm::kCompute, gather_fork_);
  WaitEvent(comm::kAllGather, gather_fork_);
  StreamScope stream(comm::kAllGather);
  comm::AllGatherInto(gathered_, own, group);
  RecordEvent(comm::kAllGather, gather_done_);
}

void FsdpUnit::FinishGather() {
  StartGather();
  if (state_ != State::kGathering) return;
  state_ = State::kGathered;
  at::NoGradGuard no_grad;
  UnitScope unit(path_);
  const bool travelled = gathered_.defined();
  if (travelled) WaitEvent(comm::kCompute, gather_done_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Piece& piece = pieces_[i];
    const Tensor& flat = flats_[i];
    if (!values_stay_) comm::ResizeStorage(flat, flat.numel() * flat.element_size());
    if (travelled) {
      flat.view({mesh_.shard_size, piece.elements}).copy_(gathered_.narrow(1, piece.offset, piece.elements));
    } else {
      flat.copy_(parameters_[i]->master.view({piece.elements}));
    }
  }
  gathered_.reset();
}

void FsdpUnit::Reshard() {
  part_.reset();
  if (values_stay_ || state_ == State::kSharded) return;
  FinishGather();  // a prefetch that nobody used
  UnitScope unit(path_);
  for (const Tensor& flat : flats_) comm::ResizeStorage(flat, 0);
  state_ = State::kSharded;
}

void FsdpUnit::ReshardAfterForward() {
  if (values_stay_ || mesh_.reshard_size == 1) return Reshard();
  FinishGather();
  at::NoGradGuard no_grad;
  UnitScope unit(path_);
  const int64_t rows = mesh_.shard_size / mesh_.reshard_size;
  Tensor part;
  {
    CategoryScope category(Category::kShardedParameter);
    part = at::empty({rows, packed_}, parameters_[0]->value.options().requires_grad(false));
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Piece& piece = pieces_[i];
    const Tensor by_rank = flats_[i].view({mesh_.shard_size, piece.elements});
    part.narrow(1, piece.offset, piece.elements).copy_(by_rank.narrow(0, mesh_.reshard_rank * rows, rows));
  }
  Reshard();
  part_ = part;
}

void FsdpUnit::Expire() { state_ = State::kSharded; }

size_t FsdpUnit::IndexOf(const model::Parameter& parameter) const {
  return std::find(parameters_.begin(), parameters_.end(), &parameter) - parameters_.begin();
}

void FsdpUnit::ExpectGradients(const std::vector<model::Parameter*>& parameters) {
  for (const model::Parameter* parameter : parameters) ++missing_.at(IndexOf(*parameter));
}

bool FsdpUnit::GradientReady(model::Parameter& parameter) {
  int& missing = missing_.at(IndexOf(parameter));
  TORCH_CHECK(missing > 0, parameter.name(), ": a gradient came that no backward was to bring, or a second one");
  --missing;
  graph::TagStorage(parameter.value.grad(), Category::kUnshardedGradient);
  return std::all_of(missing_.begin(), missing_.end(), [](int of) { return of == 0; });
}

std::vector<std::string> FsdpUnit::MissingGradients() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (missing_[i] > 0) names.push_back(parameters_[i]->name());
  }
  return names;
}

void FsdpUnit::KeepGradient(model::Parameter& parameter) {
  if (precision_.param == c10::ScalarType::Float) return;  // AccumulateGrad adds the next microbatch's to value.grad()
  at::NoGradGuard no_grad;
  UnitScope unit(path_);
  CategoryScope category(Category::kUnshardedGradient);
  const Tensor gradient = std::exchange(parameter.value.mutable_grad(), Tensor());
  Tensor& kept = kept_.at(IndexOf(parameter));
  if (kept.defined()) {
    kept.add_(gradient);
  } else {
    kept = gradient.to(c10::ScalarType::Float);
  }
}

// The sum over neighbouring ranks of "tp" that hold copies of one part. Zeros stand for the other parts, so that no group of its
// own is needed; a sum with them is exact.
Tensor SumOverCopies(const Tensor& gradient, int64_t copies, c10::ScalarType dtype) {
  const comm::Runtime& runtime = comm::CurrentRuntime();
  const int64_t group = runtime.GroupId(mesh::Dim::kTp), part = runtime.GroupRank(group) / copies;
  std::vector<int64_t> sizes = gradient.sizes().vec();
  sizes.insert(sizes.begin(), runtime.GroupSize(group) / copies);
  const Tensor parts = at::zeros(sizes, gradient.options().dtype(dtype));
  parts.select(0, part).copy_(gradient);
  comm::AllReduce(parts, group);
  return parts.select(0, part).clone();
}

// The gradient of all microbatches since the last reduction, whole over the groups it was partial over.
Tensor FsdpUnit::TakeGradient(size_t i) {
  model::Parameter& p = *parameters_[i];
  Tensor gradient = std::exchange(p.value.mutable_grad(), Tensor());
  if (kept_[i].defined()) {
    if (gradient.defined()) kept_[i].add_(gradient);
    gradient = std::exchange(kept_[i], Tensor());
  }
  for (const mesh::Dim dim : p.spec.gradient_partial_over) {
    gradient = gradient.to(precision_.reduce).contiguous();
    comm::AllReduce(gradient, comm::CurrentRuntime().GroupId(dim));
  }
  if (p.spec.copies_over_tp > 1) gradient = SumOverCopies(gradient, p.spec.copies_over_tp, precision_.reduce);
  return gradient;
}

// `packed`: [shard, packed_]; row r gets rank r's rows of the gradient, and zeros where it holds fewer.
void FsdpUnit::PackGradient(size_t i, const Tensor& gradient, const Tensor& packed) {
  const Piece& piece = pieces_[i];
  if (piece.elements == 0) return;
  const Tensor columns = packed.narrow(1, piece.offset, piece.elements);
  const int64_t elements = piece.rows * piece.row, full = elements / piece.elements, rest = elements % piece.elements;
  const Tensor flat = gradient.reshape({elements});
  columns.narrow(0, 0, full).copy_(flat.narrow(0, 0, full * piece.elements).view({full, piece.elements}));
  if (rest > 0) {
    columns.select(0, full).narrow(0, 0, rest).copy_(flat.narrow(0, full * piece.elements, rest));
    columns.select(0, full).narrow(0, rest, piece.elements - rest).zero_();
  }
  const int64_t used = full + (rest > 0 ? 1 : 0);
  if (used < mesh_.shard_size) columns.narrow(0, used, mesh_.shard_size - used).zero_();
}

void FsdpUnit::TakeGradientsAlone() {
  CategoryScope category(Category::kShardedGradient);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i]->grad = TakeGradient(i).to(c10::ScalarType::Float);
    graph::TagStorage(parameters_[i]->grad, Category::kShardedGradient);
  }
}

void FsdpUnit::StartReplicateReduce(const Tensor& sum, int64_t after_event) {
  WaitEvent(comm::kReplicate, after_event);
  StreamScope stream(comm::kReplicate);
  comm::AllReduce(sum, mesh_.replicate_group);
  RecordEvent(comm::kReplicate, replicate_done_);
  replicate_in_flight_ = true;
}

void FsdpUnit::StartShardReduce(const Tensor& packed) {
  {
    CategoryScope category(Category::kShardedGradient);
    reducing_ = at::empty({packed_}, packed.options());
  }
  RecordEvent(comm::kCompute, reduce_fork_);
  WaitEvent(comm::kReduceScatter, reduce_fork_);
  {
    StreamScope stream(comm::kReduceScatter);
    comm::ReduceScatterInto(reducing_, packed, mesh_.shard_group);
    RecordEvent(comm::kReduceScatter, reduce_done_);
  }
  // Without earlier microbatches there is nothing to add first: the all-reduce follows without the compute stream.
  if (last_ && mesh_.replicate_size > 1 && !reduced_.defined()) StartReplicateReduce(reducing_, reduce_done_);
}

void FsdpUnit::StartReduce(bool last) {
  at::NoGradGuard no_grad;
  UnitScope unit(path_);
  last_ = last;
  if (mesh_.shard_size == 1 && mesh_.replicate_size == 1) return TakeGradientsAlone();
  const bool scatter = mesh_.shard_size > 1;
  Tensor packed;
  {
    CategoryScope category(scatter ? Category::kReduceScatterBuffer : Category::kShardedGradient);
    packed =
        at::empty({mesh_.shard_size, packed_}, parameters_[0]->value.options().requires_grad(false).dtype(precision_.reduce));
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    CategoryScope category(Category::kUnshardedGradient);
    PackGradient(i, TakeGradient(i), packed);
  }
  if (scatter) return StartShardReduce(packed);
  reduced_ = packed.view({packed_});
  RecordEvent(comm::kCompute, replicate_fork_);
  StartReplicateReduce(reduced_, replicate_fork_);
}

void FsdpUnit::FinishShardReduce() {
  if (!reducing_.defined()) return;
  at::NoGradGuard no_grad;
  UnitScope unit(path_);
  WaitEvent(comm::kCompute, reduce_done_);
  if (!reduced_.defined()) {
    reduced_ = std::exchange(reducing_, Tensor());
    return;
  }
  reduced_.add_(reducing_);
  reducing_.reset();
  if (!last_ || mesh_.replicate_size == 1) return;
  RecordEvent(comm::kCompute, replicate_fork_);
  StartReplicateReduce(reduced_, replicate_fork_);
}

void FsdpUnit::FinishReduce() {
  FinishShardReduce();
  at::NoGradGuard no_grad;
  UnitScope unit(path_);
  if (std::exchange(replicate_in_flight_, false)) WaitEvent(comm::kCompute, replicate_done_);
  if (!reduced_.defined()) return;  // one process: they are where they belong
  CategoryScope category(Category::kShardedGradient);
  reduced_ = reduced_.to(c10::ScalarType::Float);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    model::Parameter& p = *parameters_[i];
    p.grad = reduced_.narrow(0, pieces_[i].offset, p.spec.Elements()).view(p.spec.sizes);
  }
}

void FsdpUnit::ReleaseGradients() {
  for (model::Parameter* p : parameters_) {
    p->grad.reset();
    if (p->value.defined()) p->value.mutable_grad().reset();
  }
  kept_.assign(kept_.size(), Tensor());
  missing_.assign(missing_.size(), 0);
  reduced_.reset();
  reducing_.reset();
}

}  // namespace legoai::parallel
