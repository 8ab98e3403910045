#include "simulator/engine/module_slices.h"

#include <algorithm>
#include <cctype>

#include "simulator/engine/trace_text.h"

namespace legoai::sim {
namespace {

// "model.layers.3.mlp": "model", "model.layers.3" and "model.layers.3.mlp". A number belongs to the name before it.
std::vector<std::string> PathsTo(const std::string& module) {
  std::vector<std::string> paths;
  for (size_t end = 0; end < module.size();) {
    end = std::min(module.find('.', end + 1), module.size());
    const bool number_follows = end + 1 < module.size() && std::isdigit(static_cast<unsigned char>(module[end + 1])) != 0;
    if (!number_follows) paths.push_back(module.substr(0, end));
  }
  return paths;
}

class Nesting {
 public:
  // What runs from `start` to `finish` is in these slices, outermost first; those that the task before it was in too go on.
  void Add(const std::vector<ModuleSlice>& path, int64_t start, int64_t finish) {
    size_t same = 0;
    while (same < path.size() && same < open_.size() && Same(slices_[open_[same]], path[same])) ++same;
    open_.resize(same);
    for (size_t depth = same; depth < path.size(); ++depth) {
      open_.push_back(slices_.size());
      slices_.push_back(path[depth]);
      slices_.back().start = start;
    }
    for (size_t index : open_) slices_[index].finish = finish;
  }
  std::vector<ModuleSlice> Take() { return std::move(slices_); }

 private:
  static bool Same(const ModuleSlice& a, const ModuleSlice& b) { return a.module == b.module && a.name == b.name; }

  std::vector<ModuleSlice> slices_;
  std::vector<size_t> open_;  // those that the last task was in
};

}  // namespace

std::vector<ModuleSlice> ModuleSlices(uint32_t stage, const StageTrace& trace, const StepSimulation& simulation,
                                      const TraceSpans& spans) {
  std::vector<std::vector<std::string>> paths;
  for (uint32_t module = 0; module < trace.trace->modules.size(); ++module) paths.push_back(PathsTo(trace.Module(module)));
  Nesting nesting;
  std::vector<ModuleSlice> path;
  for (TaskId id : simulation.lowered.compute[stage]) {
    const TaskInfo& info = simulation.lowered.tasks[id];
    if (info.kind == TaskKind::kMarker) continue;
    const graph::Instruction& instruction = trace.trace->instructions[info.instruction];
    const TraceSpan& span = spans.spans[spans.of[id]];
    path.clear();
    path.push_back({SpanName(span), "", span.phase});
    if (span.drawn && instruction.phase == graph::Phase::kRecompute) path.push_back({"recompute", "", instruction.phase});
    if (span.drawn) {
      size_t outer = 0;  // characters of the module around
      for (const std::string& module : paths[instruction.module]) {
        path.push_back({module.substr(outer), module, instruction.phase});
        outer = module.size() + 1;
      }
    }
    nesting.Add(path, Nanoseconds(simulation.schedule.start[id]), Nanoseconds(simulation.schedule.finish[id]));
  }
  return nesting.Take();
}

}  // namespace legoai::sim
