#include "simulator/engine/chrome_trace.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/errors.h"
#include "worker/comm/stream_ids.h"

namespace legoai::sim {
namespace {

// Text in JSON quotes. Names of operators and modules are plain ASCII; anything else is escaped.
std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c >= 0x7f) {
      absl::StrAppend(&out, absl::StrFormat("\\u%04x", c));
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

class Writer {
 public:
  Writer(const std::vector<StageTrace>& stages, const StepSimulation& simulation) : stages_(stages), simulation_(simulation) {}

  void Names(bool threads) {
    for (const auto& stage : stages_) {
      std::string label = absl::StrCat("stage ", stage.stage, " (rank ", stage.rank, ")");
      Add(absl::StrCat("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":", stage.stage, ",\"args\":{\"name\":", Quoted(label),
                       "}}"));
      if (!threads) continue;
      for (int64_t stream = 0; stream < comm::kStreamCount; ++stream) {
        Add(absl::StrCat("{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":", stage.stage, ",\"tid\":", stream,
                         ",\"args\":{\"name\":", Quoted(comm::StreamName(stream)), "}}"));
      }
    }
  }

  void Tasks() {
    for (TaskId id = 0; id < simulation_.lowered.tasks.size(); ++id) {
      const TaskInfo& info = simulation_.lowered.tasks[id];
      if (info.kind != TaskKind::kMarker) Task(id, info);
    }
  }

  // The counter moves when the instruction that changed it starts; what has no task of its own (frees, views) at the last start
  // on the compute stream before it.
  void Memory(uint32_t index, const MemoryProfile& profile) {
    std::vector<double> times = InstructionTimes(index);
    for (const auto& point : profile.timeline) Counter(stages_[index], times[point.instruction], point.bytes);
  }

  std::string Take() { return absl::StrCat("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", text_, "\n]}\n"); }

 private:
  void Add(const std::string& event) { absl::StrAppend(&text_, text_.empty() ? "" : ",\n", event); }

  void Task(TaskId id, const TaskInfo& info) {
    const StageTrace& stage = stages_[info.stage];
    const graph::Instruction& instruction = stage.trace->instructions[info.instruction];
    double start = simulation_.schedule.start[id], seconds = simulation_.schedule.finish[id] - start;
    bool compute = info.kind == TaskKind::kCompute;
    std::string event = absl::StrFormat("{\"ph\":\"X\",\"name\":%s,\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f",
                                        Quoted(stage.trace->OperatorName(instruction)), compute ? "compute" : "communication",
                                        stage.stage, info.stream, start * 1e6, seconds * 1e6);
    absl::StrAppend(&event, ",\"args\":{\"phase\":\"", graph::PhaseName(instruction.phase),
                    "\",\"module\":", Quoted(stage.trace->modules[instruction.module]), ",\"instruction\":", info.instruction);
    if (instruction.microbatch >= 0) absl::StrAppend(&event, ",\"microbatch\":", instruction.microbatch);
    Add(event + "}}");
  }

  std::vector<double> InstructionTimes(uint32_t index) const {
    std::vector<double> times(stages_[index].trace->instructions.size(), -1);
    for (TaskId id : simulation_.lowered.compute[index]) {
      const TaskInfo& info = simulation_.lowered.tasks[id];
      if (info.instruction < times.size() && times[info.instruction] < 0)
        times[info.instruction] = simulation_.schedule.start[id];
    }
    double now = 0;
    for (double& time : times) now = time = std::max(now, time);
    return times;
  }

  void Counter(const StageTrace& stage, double seconds, const CategoryBytes& bytes) {
    static const char* const kNames[] = {
        "other",      "sharded_parameter",   "unsharded_parameter", "buffer", "sharded_gradient",  "unsharded_gradient",
        "activation", "activation_gradient", "optimizer_state",     "input",  "all_gather_buffer", "reduce_scatter_buffer"};
    std::string event = absl::StrFormat("{\"ph\":\"C\",\"name\":\"memory (bytes)\",\"pid\":%d,\"ts\":%.3f,\"args\":{",
                                        stage.stage, seconds * 1e6);
    for (int i = 0; i < kCategoryCount; ++i) absl::StrAppend(&event, i ? "," : "", "\"", kNames[i], "\":", bytes[i]);
    Add(event + "}}");
  }

  const std::vector<StageTrace>& stages_;
  const StepSimulation& simulation_;
  std::string text_;
};

}  // namespace

std::string ChromeTrace(const std::vector<StageTrace>& stages, const StepSimulation& simulation,
                        const std::vector<MemoryProfile>& memory) {
  Writer writer(stages, simulation);
  writer.Names(true);
  writer.Tasks();
  for (uint32_t i = 0; i < memory.size() && i < stages.size(); ++i) writer.Memory(i, memory[i]);
  return writer.Take();
}

std::string MemoryTimeline(const std::vector<StageTrace>& stages, const StepSimulation& simulation,
                           const std::vector<MemoryProfile>& memory) {
  Writer writer(stages, simulation);
  writer.Names(false);
  for (uint32_t i = 0; i < memory.size() && i < stages.size(); ++i) writer.Memory(i, memory[i]);
  return writer.Take();
}

absl::Status WriteTextFile(const std::string& field, const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  bool ok = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr && std::fclose(file) != 0) ok = false;
  if (ok) return absl::OkStatus();
  return FieldError(field, path, absl::StrCat("cannot write this file: ", std::strerror(errno)), absl::StatusCode::kUnavailable);
}

}  // namespace legoai::sim
