// Writes a simulated step as a trace file that ui.perfetto.dev and chrome://tracing open (Chrome's JSON object format).
//
// One process per pipeline stage, with a track of phases and their nested modules, and one track per stream in use. Arrows lead
// from a send to its receive, and from a collective to the operator that waits for it. Counters show live memory. Times are
// simulated, in whole nanoseconds; slices of a track nest or follow each other.
//
// Files are streamed and never held in memory. Thread-safety: pure functions except for the file.
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

// The inputs of a file. All of them must outlive the call.
struct TraceSource {
  const std::vector<StageTrace>& stages;
  const StepSimulation& simulation;
  const std::vector<MemoryProfile>& memory;  // one per stage, made with MemoryOptions::timeline, or none
  const v1::Cluster& cluster;
  std::map<std::string, std::string> about = {};  // goes into the file's "otherData"
};

struct TraceFileOptions {
  // Write everything, ignoring the limits.
  bool full = false;
  // With more operators and collectives than this only some are drawn one by one (FindSpans below).
  int64_t task_limit = 50'000;
  // Points per memory counter; peaks are preserved (memory_counters.h).
  int64_t counter_points = 1'000;
};

struct TraceFileReport {
  int64_t text_bytes = 0;  // before compression
  std::string left_out;    // what the file omits, for its user; empty: nothing
};

// A file whose name ends in ".gz" is compressed. Errors: FieldError of `field` if the file cannot be written; those of
// ResolveOperators.
absl::StatusOr<TraceFileReport> WriteChromeTrace(const std::string& field, const std::string& path, const TraceSource& source,
                                                 const TraceFileOptions& options = {});

// Only the counters of memory: the memory timeline of each stage.
absl::StatusOr<TraceFileReport> WriteMemoryTimeline(const std::string& field, const std::string& path, const TraceSource& source,
                                                    const TraceFileOptions& options = {});

// Spans of a step that work on one microbatch, and which of them a trace file draws operator by operator.
//
// Thread-safety: pure functions.

// Consecutive tasks of one stage, phase and microbatch. Recomputation belongs to its backward.
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

// With more than `limit` tasks, only the first and the last forward and backward of every stage are drawn task by task. Tasks of
// no microbatch (the optimizer) and pipeline messages are always drawn.
TraceSpans FindSpans(const std::vector<StageTrace>& stages, const LoweredStep& step, int64_t limit);

}  // namespace legoai::sim
