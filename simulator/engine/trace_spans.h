// Stretches of a step that act for one microbatch, and which of them a trace file draws operator by operator.
//
// Torch-free. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulator/engine/lower_trace.h"

namespace legoai::sim {

// Consecutive tasks of one stage, of one phase and microbatch. Recomputation belongs to the backward that it is for.
struct TraceSpan {
  uint32_t stage = 0;  // index into the list of stages
  graph::Phase phase = graph::Phase::kInit;
  int32_t microbatch = -1;  // -1: none
  int64_t tasks = 0;
  bool drawn = true;  // task by task; else as one slice on each stream
};

inline constexpr uint32_t kNoSpan = UINT32_MAX;

struct TraceSpans {
  std::vector<TraceSpan> spans;        // stage by stage, in the order of dispatch
  std::vector<uint32_t> of;            // by TaskId; kNoSpan: a marker, or a pipeline message
  int64_t tasks = 0, drawn_tasks = 0;  // without markers
  bool Drawn(TaskId id) const { return of[id] == kNoSpan || spans[of[id]].drawn; }
};

// Where there are more than `limit` tasks, of every stage only the first and the last forward and backward are drawn task by
// task. What belongs to no microbatch (the optimizer) and pipeline messages always are.
TraceSpans FindSpans(const std::vector<StageTrace>& stages, const LoweredStep& step, int64_t limit);

// "forward of microbatch 3"
std::string SpanName(const TraceSpan& span);

}  // namespace legoai::sim
