#include "worker/train/step_trace.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/files.h"
#include "core/operators/op_facts.h"
#include "core/operators/operator_table.h"
#include "core/trace/annotation.h"
#include "core/trace/effects.h"
#include "core/trace/live_bytes.h"
#include "core/trace/module_slices.h"
#include "core/trace/shape_text.h"
#include "core/trace/trace_events.h"
#include "core/trace/views.h"
#include "proto/status.h"

namespace legoai::train {
namespace {

using comm::TimeSpan;
using graph::Instruction;
using graph::InstructionView;
using graph::TraceEvents;

class Writer {
 public:
  Writer(const MeasuredStep& step, graph::TraceFile* file)
      : step_(step), trace_(step.trace), shapes_(step.trace), events_(file), spans_(step.trace.instructions.size()) {
    for (const auto& op : step.times.operators) spans_.at(static_cast<size_t>(op.instruction)) = op.span;
    // A communication takes from its start to its end on its stream, wherever it was dispatched.
    for (const auto& call : step.times.calls) {
      if (call.instruction != comm::kNotRecorded) spans_.at(static_cast<size_t>(call.instruction)) = call.span;
    }
  }

  void Write() {
    std::vector<bool> used(comm::kStreamCount);
    used[comm::kCompute] = true;
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (IsShown(i)) used[trace_.instructions[i].stream] = true;
    }
    events_.BeginFile();
    events_.Stage(step_.stage, step_.rank, used);
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (IsShown(i)) Operator(i);
    }
    for (const TimeSpan& wait : step_.times.waits) Wait(wait);
    Modules();
    Memory();
    events_.EndFile(step_.about);
  }

 private:
  bool IsShown(size_t i) const {
    const Instruction& instruction = trace_.instructions[i];
    if (instruction.kind != Instruction::Kind::kOperator || !spans_[i]) return false;
    const std::string& name = trace_.OperatorName(instruction);
    const graph::EffectRow* effect = graph::FindEffect(name);
    return effect != nullptr ? effect->IsCommunication() : !graph::IsView(name);
  }

  void Operator(size_t i) {
    const Instruction& instruction = trace_.instructions[i];
    const InstructionView op(trace_, instruction);
    const graph::EffectRow* effect = graph::FindEffect(op.name());
    events_.Begin("X", op.name(), effect == nullptr ? "compute" : "communication", step_.stage,
                  TraceEvents::kFirstStreamTrack + instruction.stream, spans_[i]->begin_ns);
    events_.Duration(spans_[i]->length_ns());
    std::string* const text = events_.text();
    absl::StrAppend(text, ",\"args\":{\"phase\":\"", graph::PhaseName(instruction.phase), "\"");
    if (const std::string& module = trace_.modules[instruction.module]; !module.empty())
      absl::StrAppend(text, ",\"module\":", graph::Quoted(module));
    if (instruction.microbatch >= 0) absl::StrAppend(text, ",\"microbatch\":", instruction.microbatch);
    absl::StrAppend(text, ",\"shapes\":\"", shapes_.Of(op), "\"");
    if (effect != nullptr) {
      Communication(op, *effect);
    } else if (const sim::OperatorRow* row = sim::FindOperator(op.name())) {
      absl::StrAppend(text, sim::FactsAsJson(sim::FactsOf(op, *row)));
    }
    absl::StrAppend(text, ",\"instruction\":", i, "}");
    events_.End();
  }

  void Communication(const InstructionView& op, const graph::EffectRow& effect) {
    const auto group_id = op.Constant<int64_t>(effect.group);
    if (!group_id || *group_id < 0 || *group_id >= static_cast<int64_t>(trace_.groups.size())) return;
    const mesh::Group& group = trace_.groups[static_cast<size_t>(*group_id)];
    if (const graph::Value* tensor = op.Input(effect.tensor)) {
      const graph::Geometry& geometry = op.GeometryOf(*tensor);
      absl::StrAppend(events_.text(), ",\"bytes\":", graph::Elements(geometry) * graph::ElementBytes(geometry.dtype));
    }
    absl::StrAppend(events_.text(), ",\"group\":", graph::Quoted(mesh::NameOf(group.dim)));
    const auto peer = effect.IsMessage() ? op.Constant<int64_t>(effect.peer) : std::nullopt;
    absl::StrAppend(events_.text(), peer ? ",\"peer\":" : ",\"ranks\":", peer ? group.ranks[*peer] : group.ranks.size);
  }

  void Wait(const TimeSpan& wait) {
    if (wait.length_ns() <= 0) return;
    events_.Begin("X", "wait", "wait", step_.stage, TraceEvents::kFirstStreamTrack + comm::kCompute, wait.begin_ns);
    events_.Duration(wait.length_ns());
    absl::StrAppend(events_.text(), ",\"args\":{\"phase\":\"", graph::PhaseName(PhaseAt(wait.begin_ns)), "\"}");
    events_.End();
  }

  graph::Phase PhaseAt(int64_t at) const {
    for (const auto& phase : step_.times.phases) {
      if (phase.span.begin_ns <= at && at < phase.span.end_ns) return phase.phase;
    }
    return graph::Phase::kInit;
  }

  void Modules() {
    graph::ModuleNesting nesting;
    for (size_t i = 0; i < spans_.size(); ++i) {
      const Instruction& instruction = trace_.instructions[i];
      if (instruction.stream != comm::kCompute || !IsShown(i)) continue;
      const graph::Phase span = graph::SpanPhase(instruction.phase);
      nesting.Add(graph::SpanName(span, instruction.microbatch), span, instruction.phase, &trace_.modules[instruction.module],
                  spans_[i]->begin_ns, spans_[i]->end_ns);
    }
    events_.Modules(step_.stage, nesting.Take());
  }

  // As in a predicted step: what an operator of the compute stream allocates is there from its start, and what is freed after it
  // goes at its end.
  void Memory() {
    graph::LiveBytes live(trace_);
    int64_t now = 0;
    Counters(now, live);
    for (size_t i = 0; i < spans_.size(); ++i) {
      const bool computes = trace_.instructions[i].stream == comm::kCompute && spans_[i];
      if (computes) now = std::max(now, spans_[i]->begin_ns);
      live.Run(trace_.instructions[i]);
      Counters(now, live);
      if (computes) now = std::max(now, spans_[i]->end_ns);
    }
  }

  // Those that have changed; what is never there has none.
  void Counters(int64_t at, const graph::LiveBytes& live) {
    const auto tell = [&](const std::string& name, int64_t bytes, int64_t* told) {
      if (bytes == *told) return;
      *told = bytes;
      events_.Counter(step_.stage, name, at, bytes);
    };
    tell("memory", live.total(), &told_total_);
    for (int c = 0; c < graph::kCategories; ++c) {
      const auto category = static_cast<graph::Category>(c);
      tell(absl::StrCat("memory: ", graph::CategoryText(category)), live.of(category), &told_[static_cast<size_t>(c)]);
    }
  }

  const MeasuredStep& step_;
  const graph::Trace& trace_;
  const graph::ShapeText shapes_;
  TraceEvents events_;
  std::vector<std::optional<TimeSpan>> spans_;  // by instruction
  int64_t told_total_ = 0;
  std::array<int64_t, graph::kCategories> told_{};
};

}  // namespace

std::string StepTracePath(const std::string& run_directory, int64_t step, int64_t rank) {
  return absl::StrCat(run_directory, "/traces/step-", step, "-rank-", rank, ".json.gz");
}

absl::Status WriteStepTrace(const std::string& path, const MeasuredStep& step) {
  RETURN_IF_ERROR(checkpoint::MakeFolders(std::filesystem::path(path).parent_path().string()));
  ASSIGN_OR_RETURN(const auto file, graph::TraceFile::Create("metrics.trace_steps", path));
  Writer(step, file.get()).Write();
  return file->Close();
}

}  // namespace legoai::train
