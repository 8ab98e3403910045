#include "simulator/engine/trace_spans.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "core/trace/stream_ids.h"

namespace legoai::sim {
namespace {

using graph::Phase;

Phase SpanPhase(Phase phase) { return phase == Phase::kRecompute ? Phase::kBackward : phase; }

bool CanBeLeftOut(const TraceSpan& span) {
  return span.microbatch >= 0 && (span.phase == Phase::kForward || span.phase == Phase::kBackward);
}

// Leaves all spans out that can be, but for the first and the last of each phase of a stage.
void LeaveOut(size_t stages, std::vector<TraceSpan>* spans) {
  struct Ends {
    TraceSpan *first = nullptr, *last = nullptr;
  };
  std::vector<std::array<Ends, 2>> ends(stages);
  for (TraceSpan& span : *spans) {
    if (!CanBeLeftOut(span)) continue;
    span.drawn = false;
    Ends& of = ends[span.stage][span.phase == Phase::kForward ? 0 : 1];
    if (of.first == nullptr) of.first = &span;
    of.last = &span;
  }
  for (const auto& stage : ends) {
    for (const Ends& of : stage) {
      if (of.first != nullptr) of.first->drawn = of.last->drawn = true;
    }
  }
}

}  // namespace

TraceSpans FindSpans(const std::vector<StageTrace>& stages, const LoweredStep& step, int64_t limit) {
  TraceSpans found;
  found.of.assign(step.tasks.size(), kNoSpan);
  int64_t messages = 0;
  for (TaskId id = 0; id < step.tasks.size(); ++id) {
    const TaskInfo& info = step.tasks[id];
    if (info.kind == TaskKind::kMarker) continue;
    ++found.tasks;
    if (info.stream >= comm::kSendNext) {
      ++messages;
      continue;
    }
    const graph::Instruction& instruction = stages[info.stage].trace->instructions[info.instruction];
    const Phase phase = SpanPhase(instruction.phase);
    const bool same = !found.spans.empty() && found.spans.back().stage == info.stage && found.spans.back().phase == phase &&
                      found.spans.back().microbatch == info.microbatch;
    if (!same) found.spans.push_back({info.stage, phase, info.microbatch});
    ++found.spans.back().tasks;
    found.of[id] = static_cast<uint32_t>(found.spans.size() - 1);
  }
  if (found.tasks > limit) LeaveOut(stages.size(), &found.spans);
  found.drawn_tasks = messages;
  for (const TraceSpan& span : found.spans) found.drawn_tasks += span.drawn ? span.tasks : 0;
  return found;
}

std::string SpanName(const TraceSpan& span) {
  return absl::StrCat(graph::PhaseName(span.phase), span.microbatch >= 0 ? absl::StrCat(" of microbatch ", span.microbatch) : "");
}

}  // namespace legoai::sim
