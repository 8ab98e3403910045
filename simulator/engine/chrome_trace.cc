#include "simulator/engine/chrome_trace.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "core/trace/annotation.h"
#include "core/trace/module_slices.h"
#include "core/trace/trace_events.h"
#include "core/trace/trace_text.h"
#include "proto/status.h"
#include "simulator/engine/memory_counters.h"
#include "simulator/engine/slice_args.h"

namespace legoai::sim {
namespace {

using graph::Nanoseconds;

class Writer {
 public:
  Writer(const TraceSource& source, const TraceFileOptions& options, graph::TraceFile* file)
      : source_(source),
        options_(options),
        step_(source.simulation.lowered),
        schedule_(source.simulation.schedule),
        events_(file) {}

  // `used`: by stage and stream; none: no tracks.
  void Names(const std::vector<std::vector<bool>>& used) {
    for (size_t i = 0; i < source_.stages.size(); ++i)
      events_.Stage(source_.stages[i].stage, source_.stages[i].rank, used.empty() ? std::vector<bool>() : used[i]);
  }

  absl::Status Tasks(const TraceSpans& spans) {
    spans_ = &spans;
    critical_.assign(step_.tasks.size(), false);
    for (TaskId id : source_.simulation.critical_path) critical_[id] = true;
    for (const StageTrace& stage : source_.stages) {
      ASSIGN_OR_RETURN(auto args, SliceArgs::Create(stage, source_.cluster));
      args_.push_back(std::move(args));
    }
    for (TaskId id = 0; id < step_.tasks.size(); ++id) {
      if (step_.tasks[id].kind == TaskKind::kMarker) continue;
      if (spans.Drawn(id)) {
        Task(id);
      } else {
        AddToSummary(id);
      }
    }
    EndSummary();
    return absl::OkStatus();
  }

  void Modules() {
    for (uint32_t i = 0; i < source_.stages.size(); ++i)
      events_.Modules(source_.stages[i].stage, ModuleSlices(i, source_.stages[i], source_.simulation, *spans_));
  }

  void Flows() {
    for (auto [send, receive] : step_.program.joins()) Flow("message", SendFirst(send, receive));
    std::vector<TaskId> next(step_.tasks.size(), kNoTask);  // in the queue
    for (TaskId id = 0; id < step_.tasks.size(); ++id) {
      const TaskId previous = step_.program.tasks()[id].previous;
      if (previous != kNoTask) next[previous] = id;
    }
    std::set<std::pair<TaskId, TaskId>> known;
    for (auto [task, on] : step_.program.waits()) {
      if (step_.tasks[on].kind != TaskKind::kCommunication) continue;
      // A marker stands for the waits of what comes after it.
      while (task != kNoTask && step_.tasks[task].kind == TaskKind::kMarker) task = next[task];
      const bool drawn = task != kNoTask && spans_->Drawn(task) && spans_->Drawn(on);
      if (drawn && known.insert({on, task}).second) Flow("wait", {on, task});
    }
  }

  // Whether points were left out.
  bool Memory(uint32_t index) {
    bool thinned = false;
    for (const MemoryCounter& counter : MemoryCounters(index, source_.simulation, source_.memory[index])) {
      const auto points = options_.full ? counter.points : Thinned(counter.points, options_.counter_points);
      thinned = thinned || points.size() < counter.points.size();
      for (const CounterPoint& point : points)
        events_.Counter(source_.stages[index].stage, counter.name, point.nanoseconds, point.bytes);
    }
    return thinned;
  }

  void BeginFile() { events_.BeginFile(); }
  void EndFile(const std::map<std::string, std::string>& about) { events_.EndFile(about); }

 private:
  // What was not drawn task by task, of one span on one stream.
  struct Summary {
    int64_t start = 0, finish = 0, busy = 0, tasks = 0;
    double flops = 0;
  };

  int64_t Start(TaskId id) const { return Nanoseconds(schedule_.start[id]); }
  int64_t Finish(TaskId id) const { return Nanoseconds(schedule_.finish[id]); }
  // Of the stage with this index.
  void Begin(absl::string_view kind, absl::string_view name, absl::string_view category, uint32_t stage, int64_t stream,
             int64_t at) {
    events_.Begin(kind, name, category, source_.stages[stage].stage, graph::TraceEvents::kFirstStreamTrack + stream, at);
  }

  void Task(TaskId id) {
    const TaskInfo& info = step_.tasks[id];
    const graph::Trace& trace = *source_.stages[info.stage].trace;
    const graph::Instruction& instruction = trace.instructions[info.instruction];
    Begin("X", trace.OperatorName(instruction), info.kind == TaskKind::kCompute ? "compute" : "communication",
          info.stage, info.stream, Start(id));
    events_.Duration(Finish(id) - Start(id));
    std::string* const text = events_.text();
    absl::StrAppend(text, ",\"args\":{\"phase\":\"", graph::PhaseName(instruction.phase), "\"");
    if (const std::string module = source_.stages[info.stage].Module(instruction.module); !module.empty())
      absl::StrAppend(text, ",\"module\":", graph::Quoted(module));
    if (info.microbatch >= 0) absl::StrAppend(text, ",\"microbatch\":", info.microbatch);
    const double alone = step_.program.tasks()[id].seconds, took = schedule_.finish[id] - schedule_.start[id];
    args_[info.stage].Append(info, alone, text);
    if (alone > 0 && took > 1.01 * alone) absl::StrAppend(text, ",\"slowdown\":", absl::StrFormat("%.2f", took / alone));
    if (critical_[id]) absl::StrAppend(text, ",\"critical\":true");
    absl::StrAppend(text, ",\"instruction\":", info.position, "}");
    events_.End();
  }

  void AddToSummary(TaskId id) {
    const TaskInfo& info = step_.tasks[id];
    if (spans_->of[id] != summarized_) EndSummary();
    summarized_ = spans_->of[id];
    auto [found, added] = summaries_.try_emplace(info.stream, Summary{Start(id), 0, 0, 0, 0});
    Summary& summary = found->second;
    summary.finish = Finish(id);
    summary.busy += Finish(id) - Start(id);
    ++summary.tasks;
    if (info.kind != TaskKind::kCompute) return;
    const graph::Trace& trace = *source_.stages[info.stage].trace;
    summary.flops += args_[info.stage].Facts(trace.instructions[info.instruction]).flops;
  }

  void EndSummary() {
    if (summarized_ == kNoSpan) return;
    const TraceSpan& span = spans_->spans[summarized_];
    for (const auto& [stream, summary] : summaries_) {
      Begin("X", graph::SpanName(span.phase, span.microbatch), "span", span.stage, stream, summary.start);
      events_.Duration(summary.finish - summary.start);
      std::string* const text = events_.text();
      absl::StrAppend(text, ",\"args\":{\"phase\":\"", graph::PhaseName(span.phase), "\",\"microbatch\":", span.microbatch,
                      ",\"operators\":", summary.tasks, ",\"busy_us\":");
      graph::AppendMicroseconds(summary.busy, text);
      absl::StrAppend(text, ",\"flops\":", absl::StrFormat("%.0f", summary.flops), "}");
      events_.End();
    }
    summaries_.clear();
    summarized_ = kNoSpan;
  }

  std::pair<TaskId, TaskId> SendFirst(TaskId a, TaskId b) const {
    const uint16_t stream = step_.tasks[a].stream;
    const bool sends = stream == comm::kSendNext || stream == comm::kSendPrevious;
    return sends ? std::pair(a, b) : std::pair(b, a);
  }

  // Both ends lie within their slices, a nanosecond from where they begin or end, so that no neighbour is meant.
  void Flow(absl::string_view name, std::pair<TaskId, TaskId> ends) {
    const auto [from, to] = ends;
    const int64_t leaves = std::max(Start(from), name == "wait" ? Finish(from) - 1 : std::min(Start(from) + 1, Finish(from) - 1));
    const int64_t arrives =
        name == "wait" ? std::min(Start(to) + 1, std::max(Start(to), Finish(to) - 1)) : std::max(Start(to), Finish(to) - 1);
    ++flows_;
    FlowEnd("s", name, from, leaves, "");
    FlowEnd("f", name, to, arrives, ",\"bp\":\"e\"");
  }
  void FlowEnd(absl::string_view kind, absl::string_view name, TaskId id, int64_t at, absl::string_view binding) {
    const TaskInfo& info = step_.tasks[id];
    Begin(kind, name, "flow", info.stage, info.stream, at);
    absl::StrAppend(events_.text(), ",\"id\":", flows_, binding);
    events_.End();
  }

  const TraceSource& source_;
  const TraceFileOptions& options_;
  const LoweredStep& step_;
  const Schedule& schedule_;
  graph::TraceEvents events_;
  const TraceSpans* spans_ = nullptr;
  std::vector<SliceArgs> args_;           // by stage
  std::vector<bool> critical_;            // by task
  std::map<int64_t, Summary> summaries_;  // by stream, of the span `summarized_`
  uint32_t summarized_ = kNoSpan;
  int64_t flows_ = 0;
};

// By stage and stream: whether a slice is there.
std::vector<std::vector<bool>> UsedStreams(const TraceSource& source) {
  std::vector<std::vector<bool>> used(source.stages.size(), std::vector<bool>(comm::kStreamCount));
  for (const TaskInfo& info : source.simulation.lowered.tasks) {
    if (info.kind != TaskKind::kMarker) used[info.stage][info.stream] = true;
  }
  return used;
}

std::string TasksLeftOut(const TraceSpans& spans) {
  if (spans.drawn_tasks == spans.tasks) return "";
  return absl::StrCat(
      spans.drawn_tasks, " of ", spans.tasks,
      " operators and collectives are drawn one by one: of every stage those of its first and its last forward and "
      "backward, and of no microbatch; each other forward and backward is one slice");
}

std::string PointsLeftOut(int64_t limit) {
  return absl::StrCat("counters of memory have ", limit, " points at most, all peaks among them");
}

// Memory, the end of the file and the report on it.
absl::StatusOr<TraceFileReport> Finish(const TraceSource& source, const TraceFileOptions& options, std::string left_out,
                                       Writer* writer, graph::TraceFile* file) {
  bool thinned = false;
  for (uint32_t i = 0; i < source.memory.size() && i < source.stages.size(); ++i) thinned = writer->Memory(i) || thinned;
  if (thinned) absl::StrAppend(&left_out, left_out.empty() ? "" : "; ", PointsLeftOut(options.counter_points));
  std::map<std::string, std::string> about = source.about;
  about["left_out"] = left_out.empty() ? "nothing" : left_out;
  writer->EndFile(about);
  RETURN_IF_ERROR(file->Close());
  return TraceFileReport{file->text_bytes(), std::move(left_out)};
}

using graph::Phase;

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

absl::StatusOr<TraceFileReport> WriteChromeTrace(const std::string& field, const std::string& path, const TraceSource& source,
                                                 const TraceFileOptions& options) {
  const TraceSpans spans = FindSpans(source.stages, source.simulation.lowered,
                                     options.full ? std::numeric_limits<int64_t>::max() : options.task_limit);
  ASSIGN_OR_RETURN(auto file, graph::TraceFile::Create(field, path));
  Writer writer(source, options, file.get());
  writer.BeginFile();
  writer.Names(UsedStreams(source));
  RETURN_IF_ERROR(writer.Tasks(spans));
  writer.Modules();
  writer.Flows();
  return Finish(source, options, TasksLeftOut(spans), &writer, file.get());
}

absl::StatusOr<TraceFileReport> WriteMemoryTimeline(const std::string& field, const std::string& path, const TraceSource& source,
                                                    const TraceFileOptions& options) {
  ASSIGN_OR_RETURN(auto file, graph::TraceFile::Create(field, path));
  Writer writer(source, options, file.get());
  writer.BeginFile();
  writer.Names({});
  return Finish(source, options, "", &writer, file.get());
}

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
    const Phase phase = graph::SpanPhase(instruction.phase);
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

}  // namespace legoai::sim
