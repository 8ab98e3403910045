// Writes a simulated step as a trace file that ui.perfetto.dev and chrome://tracing open (Chrome's JSON object format).
//
// One process for each pipeline stage; in it a track of phases with their modules nested in them, and one for each stream on
// which something runs. Arrows lead from a send to its receive, and from a collective to the operator that waits for it. Counters
// show live memory. Times are of simulated time, to the nanosecond; slices of a track nest or follow each other.
//
// Files are written from front to back and never held in memory. Thread-safety: pure functions but for the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "simulator/engine/lower_trace.h"
#include "simulator/engine/step_simulation.h"
#include "simulator/memory/memory_simulator.h"

namespace legoai::sim {

// What a file is made of. All of it must outlive the call.
struct TraceSource {
  const std::vector<StageTrace>& stages;
  const StepSimulation& simulation;
  const std::vector<MemoryProfile>& memory;  // one for each stage, made with MemoryOptions::timeline, or none at all
  const v1::Cluster& cluster;
  std::map<std::string, std::string> about = {};  // goes into the file's "otherData"
};

struct TraceFileOptions {
  // Everything, whatever the size; the limits do not count then.
  bool full = false;
  // Above so many operators and collectives only a part of them is drawn one by one (SpanSelection below).
  int64_t task_limit = 50'000;
  // Of each counter of memory; the peaks stay as they are (memory_counters.h).
  int64_t counter_points = 1'000;
};

struct TraceFileReport {
  int64_t text_bytes = 0;  // before compression
  std::string left_out;    // what the file does not show, for its user; empty: nothing
};

// A name that ends in ".gz" is compressed. Errors: FieldError of `field` if the file cannot be written; those of
// ResolveOperators.
absl::StatusOr<TraceFileReport> WriteChromeTrace(const std::string& field, const std::string& path, const TraceSource& source,
                                                 const TraceFileOptions& options = {});

// Only the counters of memory: the memory timeline of each stage.
absl::StatusOr<TraceFileReport> WriteMemoryTimeline(const std::string& field, const std::string& path, const TraceSource& source,
                                                    const TraceFileOptions& options = {});

// Stretches of a step that act for one microbatch, and which of them a trace file draws operator by operator.
//
// Thread-safety: pure functions.

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

}  // namespace legoai::sim
