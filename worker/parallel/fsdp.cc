#include "worker/parallel/fsdp.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"

namespace legoai::parallel {
namespace {

using model::Gradients;
using model::Layer;

void Append(std::vector<model::Parameter*>* to, const std::vector<model::Parameter*>& from) {
  to->insert(to->end(), from.begin(), from.end());
}

}  // namespace

DataParallel::DataParallel(model::LanguageModel& model, const DataParallelOptions& options)
    : model_(model), options_(options), mesh_(DataParallelMesh::Current()) {
  MakeUnits();
  for (auto& unit : units_) {
    for (model::Parameter* p : unit->parameters()) {
      p->OnGradientReady([this, unit = unit.get()](model::Parameter& parameter) { GradientReady(*unit, parameter); });
    }
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].units.empty()) continue;
    model_.layers()[i].module->Intercept([this, i](const at::Tensor& input, const model::ForwardFunction& next) {
      BeforeForward(i);
      at::Tensor output = next(input);
      AfterForward(i, output);
      return output;
    });
  }
}

std::vector<FsdpUnit*> DataParallel::AddUnits(const std::string& path, const std::vector<model::Parameter*>& parameters) {
  std::vector<FsdpUnit*> added;
  const auto add = [&](const std::string& name, std::vector<model::Parameter*> of) {
    units_.push_back(std::make_unique<FsdpUnit>(name, std::move(of), mesh_, options_.precision, options_.values_stay));
    added.push_back(units_.back().get());
  };
  if (options_.unit_per_parameter) {
    for (model::Parameter* p : parameters) add(p->name(), {p});
  } else if (!parameters.empty()) {
    add(path, parameters);
  }
  return added;
}

void DataParallel::MakeUnits() {
  auto& layers = model_.layers();
  layers_.resize(layers.size());
  // A tied weight is the embedding's: the head joins that unit, which is gathered once for both.
  const bool tied = model_.config().tie_word_embeddings() && layers.size() > 1 &&
                    layers.front().kind == Layer::Kind::kEmbedding && layers.back().kind == Layer::Kind::kHead;
  for (size_t i = 0; i < layers.size(); ++i) {
    Entry& entry = layers_[i];
    // The gradient of an embedding needs the tokens, not the weight.
    entry.read_in_backward = layers[i].kind != Layer::Kind::kEmbedding;
    entry.last_of_units = !(tied && i == 0);
    if (tied && i + 1 == layers.size()) {
      entry.units = layers_[0].units;
      continue;
    }
    std::vector<model::Parameter*> parameters = layers[i].module->Parameters();
    if (tied && i == 0) Append(&parameters, layers.back().module->Parameters());
    entry.units = AddUnits(layers[i].module->path(), parameters);
  }
  MakeUses(tied);
}

void DataParallel::MakeUses(bool tied) {
  for (const auto& [begin, end] : model_.chunks()) {
    std::vector<Use>& uses = uses_.emplace_back();
    for (size_t layer = begin; layer < end; ++layer) {
      for (model::Parameter* p : model_.layers()[layer].module->Parameters()) {
        for (FsdpUnit* const unit : layers_[layer].units) {
          if (unit->Has(*p)) AddUse(unit, p, &uses);
        }
      }
    }
  }
  if (!tied || uses_.size() == 1) return;
  shared_ = layers_[0].units.front();
  auto* const head = dynamic_cast<model::OutputHead*>(model_.layers().back().module.get());
  TORCH_CHECK(head != nullptr && head->lm_head()->tied(), "the head does not hold the tied weight");
  AddUse(shared_, head->lm_head()->weight(), &uses_.back());
}

void DataParallel::AddUse(FsdpUnit* unit, model::Parameter* parameter, std::vector<Use>* uses) {
  auto use = std::find_if(uses->begin(), uses->end(), [&](const Use& of) { return of.unit == unit; });
  if (use == uses->end()) use = uses->insert(uses->end(), {unit, {}});
  use->parameters.push_back(parameter);
}

void DataParallel::AllocateValues(c10::Device device) {
  for (auto& unit : units_) unit->Allocate(device);
}

// Starts gathers of the layers that come next: forward in their order, backward the other way round.
void DataParallel::Prefetch(size_t layer, int64_t direction) {
  for (int64_t ahead = 1; ahead <= options_.prefetch_depth; ++ahead) {
    const int64_t next = static_cast<int64_t>(layer) + direction * ahead;
    if (next < 0 || next >= static_cast<int64_t>(layers_.size())) return;
    const Entry& entry = layers_[next];
    if (direction < 0 && !entry.read_in_backward) continue;
    for (FsdpUnit* unit : entry.units) unit->StartGather();
  }
}

void DataParallel::BeforeForward(size_t layer) {
  for (FsdpUnit* unit : layers_[layer].units) unit->FinishGather();
  Prefetch(layer, 1);
}

void DataParallel::AfterForward(size_t layer, const at::Tensor& output) {
  const Entry& entry = layers_[layer];
  const bool backward_follows = c10::GradMode::is_enabled();
  const bool last_layer = layer + 1 == layers_.size();
  if (entry.last_of_units && (!backward_follows || (options_.reshard_after_forward && !last_layer))) {
    for (FsdpUnit* unit : entry.units) {
      backward_follows && entry.read_in_backward ? unit->ReshardAfterForward() : unit->Reshard();
    }
  }
  if (backward_follows && entry.read_in_backward && output.requires_grad()) {
    output.register_hook([this, layer](const at::Tensor&) { BeforeBackward(layer); });
  }
}

void DataParallel::BeforeBackward(size_t layer) {
  for (FsdpUnit* unit : layers_[layer].units) unit->FinishGather();
  Prefetch(layer, -1);
}

void DataParallel::CheckGradientsCame() const {
  for (const auto& unit : units_) {
    const std::vector<std::string> missing = unit->MissingGradients();
    TORCH_CHECK(missing.empty(), "the backward brought no gradient for ", absl::StrJoin(missing, ", "));
  }
}

void DataParallel::BeginBackward(bool last, size_t chunk, Gradients gradients) {
  parts_ = parts_ || gradients != Gradients::kAll;
  if (!parts_) CheckGradientsCame();
  if (gradients != Gradients::kWeights) {
    for (const Use& use : uses_.at(chunk)) use.unit->ExpectGradients(use.parameters);
  }
  gradients_ = gradients;
  last_ = last;
  reduce_ = last || (mesh_.shard_size > 1 && options_.reduce_each_microbatch);
  completed_.clear();
}

void DataParallel::GradientReady(FsdpUnit& unit, model::Parameter& parameter) {
  const bool whole = unit.GradientReady(parameter);
  // Which of two chunks brings the last gradient of a shared unit depends on the schedule: all are kept.
  if (!reduce_ || &unit == shared_) unit.KeepGradient(parameter);
  if (whole && gradients_ != Gradients::kInputs && &unit != shared_) Complete(unit);
}

void DataParallel::Complete(FsdpUnit& unit) {
  completed_.insert(&unit);
  // Every use of a value lies before the completion of its gradient, so the values go before the buffers come.
  if (last_ || options_.reshard_after_forward) unit.Reshard();
  if (!reduce_) return;
  if (reducing_ != nullptr) reducing_->FinishShardReduce();
  unit.StartReduce(last_);
  reducing_ = &unit;
  if (options_.unit_per_parameter) unit.FinishShardReduce();
}

void DataParallel::EndBackward(bool last, size_t chunk, Gradients gradients) {
  if (!last || gradients == Gradients::kInputs) return;
  const std::vector<Use>& uses = uses_.at(chunk);
  for (auto use = uses.rbegin(); gradients == Gradients::kWeights && use != uses.rend(); ++use) {
    if (use->unit != shared_ && completed_.count(use->unit) == 0) Complete(*use->unit);
  }
  const bool shares = shared_ != nullptr && (chunk == 0 || chunk + 1 == uses_.size());
  if (shares && ++ended_ == 2) Complete(*shared_);
}

void DataParallel::FinishBackward() {
  reducing_ = nullptr;
  ended_ = 0;
  parts_ = false;
  CheckGradientsCame();
  for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit) (*unit)->FinishReduce();
}

void DataParallel::ReleaseGradients() {
  reducing_ = nullptr;
  for (auto& unit : units_) unit->ReleaseGradients();
}

void DataParallel::GatherUpdated() {
  if (!options_.values_stay) return;
  for (auto& unit : units_) unit->Expire();
  GatherAtFirst();
}

void DataParallel::GatherAtFirst() {
  if (!options_.values_stay) return;
  for (size_t i = 0; i < units_.size(); ++i) {
    units_[i]->StartGather();
    for (size_t next = i + 1; next < units_.size() && next <= i + options_.prefetch_depth; ++next) units_[next]->StartGather();
    units_[i]->FinishGather();
  }
}

std::vector<StateTensor> DataParallel::State() const {
  std::vector<StateTensor> state;
  for (const auto& unit : units_) {
    for (size_t i = 0; i < unit->parameters().size(); ++i) {
      const model::Parameter& p = *unit->parameters()[i];
      state.push_back({p.name(), p.master, graph::Category::kShardedParameter});
      if (unit->flats()[i].defined()) {
        state.push_back({p.name() + ".unsharded", unit->flats()[i], graph::Category::kUnshardedParameter});
      }
    }
  }
  return state;
}

}  // namespace legoai::parallel
