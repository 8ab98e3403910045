// All kinds of data parallelism for a language model: FSDP (ZeRO-3 per parameter), ZeRO-1 and 2, HSDP, DDP, and mixed precision,
// which is a gather of its own (Rajbhandari et al. 2020, Zhao et al. 2023).
//
// The model's layers become units: each layer one, embedding and head together where they share a weight; for the passes of
// core/trace/passes each parameter is one. The order is static: a unit is gathered before its layer runs, while layers before it
// compute; in backward the other way round; gradients are reduced when the unit's last one is ready, one reduction behind the
// computation. A unit that two chunks of a pipeline rank share (a tied weight, where chunks lie in a V) is reduced with the one
// whose gradients end last. Values that stay whole are gathered once a step, after the update. Where the runtime's mesh has
// groups "reshard", backward gathers over these, from what their ranks keep of each forward.
//
// Use, per step: forward and backward of each microbatch (of each chunk) with BeginBackward before; FinishBackward after the
// last; GatherUpdated and ReleaseGradients after the update. Errors: c10::Error. Not thread-safe. It does not own the model and
// must outlive its use; it uses the comm::Runtime that was current at construction.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/trace/trace.h"
#include "worker/model/language_model.h"
#include "worker/model/weight_gradients.h"
#include "worker/parallel/fsdp_unit.h"

namespace legoai::parallel {

struct DataParallelOptions {
  Precision precision = {};
  // Values are freed after each forward (except the last unit's, whose backward comes next) and each backward. Otherwise they
  // stay until the last microbatch's backward.
  bool reshard_after_forward = true;
  // Values keep their memory from step to step (ZeRO-1 and 2).
  bool values_stay = false;
  // How many layers ahead of the computing one are gathered.
  int64_t prefetch_depth = 1;
  // Each parameter is a unit, gathered right before its layer and reduced alone, and each collective is waited for at once: what
  // the passes of core/trace/passes begin with. prefetch_depth is 0, and there is no pipeline.
  bool unit_per_parameter = false;
  // If parameters are sharded, gradients are reduced after each microbatch and only their shards are kept. Otherwise whole
  // gradients are accumulated and reduced once.
  bool reduce_each_microbatch = true;
};

// A tensor that persists across steps.
struct StateTensor {
  std::string name;
  at::Tensor tensor;
  graph::Category category = graph::Category::kOther;
};

class DataParallel {
 public:
  // Shards the parameters' specs and adds the outermost interceptors of each layer. Allocates no memory.
  DataParallel(model::LanguageModel& model, const DataParallelOptions& options);
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Allocates Parameter::value of every parameter; masters must exist. See Materialize() in parallelize.h.
  void AllocateValues(c10::Device device);

  // Call it before each microbatch's backward of a chunk, or each part of it. `last`: it is the chunk's last of its kind, which
  // completes the gradients of its layers; with a split backward, reduction follows the weight gradients.
  void BeginBackward(bool last, size_t chunk = 0, model::Gradients gradients = model::Gradients::kAll);
  // Call it after each.
  void EndBackward(bool last, size_t chunk, model::Gradients gradients);
  // Call it after the backward of the last microbatch: waits for all reductions; then every Parameter::grad is valid. Fails
  // naming a parameter that got no gradient.
  void FinishBackward();
  void ReleaseGradients();
  // If values stay: gathers them from the updated masters, layer by layer.
  void GatherUpdated();
  // If values stay: gathers those never gathered. A step does so by itself; call it before a recording, which must start like any
  // step but the first.
  void GatherAtFirst();

  // Masters under the parameters' names; values with their own storage under "<name>.unsharded", of 0 bytes between steps unless
  // they stay.
  std::vector<StateTensor> State() const;

 private:
  struct Entry {  // of a layer
    std::vector<FsdpUnit*> units;
    bool last_of_units = false;  // no later layer uses them
    bool read_in_backward = true;
  };
  // A pipeline chunk's part of a unit: the parameters for which its backward computes gradients.
  struct Use {
    FsdpUnit* unit = nullptr;
    std::vector<model::Parameter*> parameters;
  };
  void MakeUnits();
  std::vector<FsdpUnit*> AddUnits(const std::string& path, const std::vector<model::Parameter*>& parameters);
  void BeforeForward(size_t layer);
  void AfterForward(size_t layer, const at::Tensor& output);
  void Prefetch(size_t layer, int64_t direction);
  void BeforeBackward(size_t layer);
  void CheckGradientsCame() const;
  void MakeUses(bool tied);
  static void AddUse(FsdpUnit* unit, model::Parameter* parameter, std::vector<Use>* uses);
  void GradientReady(FsdpUnit& unit, model::Parameter& parameter);
  void Complete(FsdpUnit& unit);

  model::LanguageModel& model_;
  DataParallelOptions options_;
  DataParallelMesh mesh_;
  std::vector<std::unique_ptr<FsdpUnit>> units_;
  std::vector<Entry> layers_;
  std::vector<std::vector<Use>> uses_;  // by chunk, in the order of its layers
  FsdpUnit* reducing_ = nullptr;  // its reduce-scatter is in flight
  FsdpUnit* shared_ = nullptr;    // by the first and the last chunk, if there is one
  int ended_ = 0;                 // of these two, those whose gradients of this step are all there
  bool parts_ = false;            // in this step, gradients of weights may be put off
  // Of the backward under way:
  bool reduce_ = true, last_ = true;
  model::Gradients gradients_ = model::Gradients::kAll;
  std::set<const FsdpUnit*> completed_;
};

}  // namespace legoai::parallel
