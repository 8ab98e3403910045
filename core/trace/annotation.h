// What the step is doing right now, for a recorder: phase, module, pipeline action, microbatch, and the category of new storages.
// The trainer sets it whether or not there is a recorder; it costs a few stores.
//
// One step runs at a time in a process, and its operators are dispatched by one thread at a time (on CUDA, backward by autograd's
// thread while the caller waits), so there is one object per process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/trace/trace.h"

namespace legoai::graph {

struct Annotation {
  Phase phase = Phase::kInit;
  int32_t action = -1;  // index into the rank's list of pipeline actions
  int32_t microbatch = -1;
  const std::string* module = nullptr;  // full path; not owned, outlives the scope
  std::optional<Category> category;     // of new storages; unset: by phase (activation, activation gradient, other)
};

Annotation& CurrentAnnotation();

// Sets one field for a scope, then restores it.
template <class T>
class AnnotationScope {
 public:
  AnnotationScope(T Annotation::*field, T value) : field_(field), previous_(CurrentAnnotation().*field) {
    CurrentAnnotation().*field = value;
  }
  ~AnnotationScope() { CurrentAnnotation().*field_ = previous_; }
  AnnotationScope(const AnnotationScope&) = delete;
  AnnotationScope& operator=(const AnnotationScope&) = delete;

 private:
  T Annotation::*field_;
  T previous_;
};

struct PhaseScope : AnnotationScope<Phase> {
  explicit PhaseScope(Phase phase) : AnnotationScope(&Annotation::phase, phase) {}
};
struct CategoryScope : AnnotationScope<std::optional<Category>> {
  explicit CategoryScope(Category category) : AnnotationScope(&Annotation::category, std::optional<Category>(category)) {}
};

}  // namespace legoai::graph

namespace legoai::comm {

// Stream numbers, the same in every rank and every Trace.
//
// The compute stream is the calling thread; it runs all ATen operators and the collectives that the next operator needs at once
// (tensor parallel, gradient norm). Side streams run only lego:: operators.
enum StreamId : int64_t {
  kCompute = 0,
  kAllGather = 1,      // FSDP unshard
  kReduceScatter = 2,  // FSDP gradients
  kReplicate = 3,      // DDP and HSDP all-reduce of gradients
  kSendNext = 4,       // pipeline: activations to the next stage
  kRecvPrevious = 5,   // pipeline: activations from the previous stage
  kSendPrevious = 6,   // pipeline: activation gradients to the previous stage
  kRecvNext = 7,       // pipeline: activation gradients from the next stage
  kRotate = 8,         // round a group: keys, values and their gradients (context), chunks of asynchronous tensor parallel
  kTensorGather = 9,   // tensor parallel: inputs gathered once more in backward
  kStreamCount = 10,
};

const char* StreamName(int64_t stream);

}  // namespace legoai::comm
