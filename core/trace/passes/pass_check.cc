#include "core/trace/passes/pass_check.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/trace/annotation.h"
#include "core/trace/effects.h"
#include "core/trace/fused_kernel.h"
#include "core/trace/passes/norm_gradients.h"
#include "core/trace/passes/rewriter.h"
#include "core/trace/verify.h"
#include "core/trace/views.h"

namespace legoai::graph {
namespace {

constexpr int64_t kMost = 5;  // findings of a kind

class Findings {
 public:
  template <class... T>
  void Add(const T&... parts) {
    if (static_cast<int64_t>(lines_.size()) < kMost) lines_.push_back(absl::StrCat(parts...));
  }
  void MoveTo(std::vector<std::string>* all) { std::move(lines_.begin(), lines_.end(), std::back_inserter(*all)); }

 private:
  std::vector<std::string> lines_;
};

std::string NameOf(const Trace& trace, uint32_t storage) {
  const std::string& name = trace.storages[storage].name;
  return absl::StrCat("storage ", storage, name.empty() ? "" : " ", name);
}

int64_t BytesOf(const Geometry& geometry) { return Elements(geometry) * ElementBytes(geometry.dtype); }

// The bytes that each storage has at most.
std::vector<int64_t> MostBytes(const Trace& trace) {
  std::vector<int64_t> most;
  for (const Storage& storage : trace.storages) most.push_back(storage.bytes);
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.kind == Instruction::Kind::kResize)
      most[instruction.operator_index] = std::max(most[instruction.operator_index], instruction.immediate);
    if (instruction.kind != Instruction::Kind::kOperator) continue;
    if (const auto resize = StorageResizeOf(trace, instruction))
      most[resize->storage] = std::max(most[resize->storage], resize->bytes);
  }
  return most;
}

void CheckExtents(const Trace& trace, Findings* findings) {
  const std::vector<int64_t> most = MostBytes(trace);
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.kind != Instruction::Kind::kOperator) continue;
    const auto check = [&](int, uint32_t id) {
      const Value& value = trace.values[id];
      const int64_t extent = ExtentBytes(trace.geometries[value.geometry]);
      if (extent > most[value.storage])
        findings->Add(trace.Line(instruction, true), ": a tensor of ", extent, " bytes in a storage of ", most[value.storage]);
    };
    const InstructionView op(trace, instruction);
    op.ForEachInput(check);
    op.ForEachResult(check);
  }
}

void CheckCollectives(const Trace& trace, Findings* findings) {
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.kind != Instruction::Kind::kOperator) continue;
    const InstructionView op(trace, instruction);
    const EffectRow* const row = FindEffect(op.name());
    if (row == nullptr) continue;
    if (const char* missing = MissingOperand(trace, instruction)) {
      findings->Add(trace.Line(instruction, true), ": ", missing);
    } else if (row->effect == Effect::kAllGather || row->effect == Effect::kReduceScatter) {
      const Geometry &whole = op.GeometryOf(*op.Input(row->tensor)), &part = op.GeometryOf(*op.Input(1 - row->tensor));
      const int64_t ranks = trace.groups[*op.Constant<int64_t>(row->group)].ranks.size;
      if (whole.dtype != part.dtype || Elements(whole) != ranks * Elements(part))
        findings->Add(trace.Line(instruction, true), ": the tensors do not fit a group of ", ranks);
    }
  }
}

// Gives which storages are made and stay.
int64_t CheckFrees(const Trace& trace, Findings* findings) {
  enum class State : char { kUnseen, kAlive, kFreed };
  std::vector<State> states(trace.storages.size(), State::kUnseen);
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.kind == Instruction::Kind::kFree) {
      State& state = states[instruction.immediate];
      if (state == State::kFreed) findings->Add(NameOf(trace, instruction.immediate), " is freed twice");
      state = State::kFreed;
    }
    for (uint32_t storage : StoragesOf(trace, instruction)) {
      if (states[storage] == State::kFreed)
        findings->Add(trace.Line(instruction, true), ": ", NameOf(trace, storage), " is freed");
      if (states[storage] == State::kUnseen) states[storage] = State::kAlive;
    }
  }
  int64_t stay = 0;
  for (size_t i = 0; i < states.size(); ++i) {
    stay += states[i] == State::kAlive && trace.storages[i].kind == StorageKind::kInner;
  }
  return stay;
}

void CheckBindings(const char* what, const Trace& before, const std::map<std::string, uint32_t>& a, const Trace& after,
                   const std::map<std::string, uint32_t>& b, Findings* findings) {
  for (const auto& [name, value] : a) {
    const auto found = b.find(name);
    if (found == b.end()) {
      findings->Add(what, " ", name, " is gone");
    } else if (!(before.geometries[before.values[value].geometry] == after.geometries[after.values[found->second].geometry])) {
      findings->Add(what, " ", name, " has another geometry");
    }
  }
  if (b.size() > a.size()) findings->Add(b.size() - a.size(), " more ", what, "s than before");
}

bool IsTensorParallel(const Trace& trace, const InstructionView& op, const EffectRow& row) {
  const auto group = op.Constant<int64_t>(row.group);
  return group && *group >= 0 && *group < static_cast<int64_t>(trace.groups.size()) &&
         trace.groups[*group].dim == mesh::Dim::kTp;
}

// What a rank sends round a ring, if the operator is a ring or a hop of one.
std::optional<int64_t> RingBytes(const Trace& trace, const InstructionView& op, const EffectRow& row) {
  const int64_t ranks = trace.groups[*op.Constant<int64_t>(row.group)].ranks.size;
  const int64_t bytes = BytesOf(op.GeometryOf(*op.Input(row.tensor)));
  switch (row.effect) {
    case Effect::kAllGather:
    case Effect::kReduceScatter: return bytes / ranks * (ranks - 1);
    case Effect::kRotate: return bytes;
    default: return std::nullopt;
  }
}

// By stream and group. Of FSDP's streams one entry for each operator, with the sum of their bytes; of tensor parallel what is
// sent round the ring, at once or hop by hop beside the compute stream.
using Traffic = std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<std::string, int64_t>>>;
Traffic TrafficOf(const Trace& trace) {
  Traffic traffic;
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.kind != Instruction::Kind::kOperator) continue;
    const InstructionView op(trace, instruction);
    const EffectRow* const row = FindEffect(op.name());
    if (row == nullptr || !row->IsCommunication()) continue;
    std::string name = op.name();
    int64_t bytes = BytesOf(op.GeometryOf(*op.Input(row->tensor))), stream = instruction.stream;
    bool joins = stream == comm::kAllGather || stream == comm::kReduceScatter || stream == comm::kReplicate;
    const auto ring = IsTensorParallel(trace, op, *row) ? RingBytes(trace, op, *row) : std::nullopt;
    if (ring && (stream == comm::kCompute || stream == comm::kRotate)) {
      name = "ring", bytes = *ring, stream = comm::kCompute, joins = true;
    }
    auto& sent = traffic[{stream, op.Constant<int64_t>(row->group).value_or(-1)}];
    if (joins && !sent.empty() && sent.back().first == name) {
      sent.back().second += bytes;
    } else {
      sent.emplace_back(std::move(name), bytes);
    }
  }
  return traffic;
}

// What happened to a storage: a hash of its writes in their order with the reads between them, in any order. A product that is
// cut by rows counts once.
struct History {
  size_t writes = 0, reads = 0, last_read = 0, last_write = 0;
  bool used = false;
};
// What the parts of one product have in common: `right` is the operand that is not cut.
size_t ProductOf(size_t who, const Instruction& instruction, uint32_t right) {
  size_t hash = who;
  for (const int64_t mark : {int64_t{right}, int64_t{instruction.microbatch}, int64_t{instruction.action},
                             static_cast<int64_t>(instruction.phase)}) {
    hash = hash * 1'000'003 + static_cast<size_t>(mark);
  }
  return hash;
}

std::vector<History> HistoriesOf(const Trace& trace) {
  std::vector<History> histories(trace.storages.size());
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.kind != Instruction::Kind::kOperator || IsViewOf(trace, instruction)) continue;
    if (IsView(trace.OperatorName(instruction))) continue;  // memory without contents
    const std::string& full = trace.OperatorName(instruction);
    const bool is_part = full == "aten::mm.out" || full == "aten::addmm.out";
    const std::string& module = trace.modules[instruction.module];
    const std::string name = absl::StrCat(is_part ? full.substr(0, full.find('.')) : full, " ", module);
    const size_t who = std::hash<std::string>()(name) | 1;
    const Operands operands = OperandsOf(trace, instruction);
    const size_t product = is_part ? ProductOf(who, instruction, operands.reads.back()) : 0;
    for (uint32_t value : operands.reads) {
      History& history = histories[trace.values[value].storage];
      history.used = true;
      if (is_part && history.last_read == product) continue;
      history.reads += who;
      history.last_read = product;
    }
    for (const std::vector<uint32_t>* written : {&operands.writes, &operands.results}) {
      for (uint32_t value : *written) {
        History& history = histories[trace.values[value].storage];
        history.used = true;
        if (is_part && history.last_write == who) continue;
        history.writes = (history.writes * 1'000'003 ^ history.reads) * 1'000'003 ^ who;
        history.reads = history.last_read = 0;
        history.last_write = who;
      }
    }
  }
  return histories;
}

// The storages that change hands where tensor parallel exchanges tokens, which a ring does in other steps: those of its
// collectives, and what is copied from or to these.
std::vector<char> ExchangedStorages(const Trace& trace) {
  std::vector<char> exchanged(trace.storages.size());
  const auto mark = [&](const Instruction& instruction) {
    for (uint32_t storage : StoragesOf(trace, instruction)) exchanged[storage] = true;
  };
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.kind != Instruction::Kind::kOperator) continue;
    const EffectRow* const row = FindEffect(trace.OperatorName(instruction));
    if (row == nullptr || !row->IsCommunication()) continue;
    const InstructionView op(trace, instruction);
    if (IsTensorParallel(trace, op, *row) && RingBytes(trace, op, *row)) mark(instruction);
  }
  const std::vector<char> by_collectives = exchanged;
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.kind != Instruction::Kind::kOperator || trace.OperatorName(instruction) != "aten::clone") continue;
    const std::vector<uint32_t> storages = StoragesOf(trace, instruction);
    const auto is_known = [&](uint32_t storage) { return by_collectives[storage] != 0; };
    if (std::any_of(storages.begin(), storages.end(), is_known)) mark(instruction);
  }
  return exchanged;
}

void CheckFlow(const Trace& before, const Trace& after, Findings* findings) {
  const std::vector<History> a = HistoriesOf(before), b = HistoriesOf(after);
  const std::vector<char> exchanged = ExchangedStorages(before);
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (!a[i].used || !b[i].used || exchanged[i]) continue;
    if (a[i].writes != b[i].writes || a[i].reads != b[i].reads)
      findings->Add(NameOf(after, static_cast<uint32_t>(i)), " is not read and written as before");
  }
}

size_t Mix(size_t a, size_t b) { return (a * 1'000'003 ^ b) * 0x9e3779b97f4a7c15 + (a >> 29); }

// What storages hold, as hashes of the operators that wrote them and of what those read: equal where the same operators are
// applied to the same contents, fused or one by one.
class Contents {
 public:
  explicit Contents(const Trace& trace) : trace_(trace), of_(trace.storages.size()) {
    for (size_t i = 0; i < of_.size(); ++i)
      of_[i] = std::hash<std::string>()(trace.storages[i].name + trace.storages[i].contents);
    for (const Instruction& instruction : trace.instructions) {
      if (instruction.kind == Instruction::Kind::kOperator && !IsViewOf(trace, instruction)) Run(instruction);
    }
  }

  // Of what is bound, by name.
  std::map<std::string, size_t> Bound() const {
    std::map<std::string, size_t> bound;
    for (const auto* bindings : {&trace_.inputs, &trace_.outputs}) {
      for (const auto& [name, value] : *bindings) bound[name] = of_[trace_.values[value].storage];
    }
    return bound;
  }
  // Of operators that are never fused, in their order.
  const std::vector<size_t>& calls() const { return calls_; }

 private:
  size_t Read(uint32_t value) const { return of_[trace_.values[value].storage]; }
  void Set(uint32_t value, size_t hash) { of_[trace_.values[value].storage] = hash; }

  void Run(const Instruction& instruction) {
    if (const std::string* const text = FusedKernelText(trace_, instruction)) return RunFused(instruction, *text);
    const std::string& name = trace_.OperatorName(instruction);
    if (const NormGradient* const gradient = FindNormGradient(name)) return RunNormGradient(instruction, *gradient);
    size_t hash = std::hash<std::string>()(name);
    const InstructionView op(trace_, instruction);
    op.ForEachInput([&](int, uint32_t value) { hash = Mix(hash, Read(value)); });
    if (FindFusible(name) == nullptr) calls_.push_back(hash);
    op.ForEachInput([&](int place, uint32_t value) {
      if (op.writes() >> place & 1) Set(value, Written(Read(value), hash));
    });
    size_t number = 0;
    const Operands operands = OperandsOf(trace_, instruction);
    op.ForEachResult([&](int, uint32_t value) {
      const auto is_it = [&](uint32_t other) { return trace_.values[other].storage == trace_.values[value].storage; };
      if (std::none_of(operands.writes.begin(), operands.writes.end(), is_it)) Set(value, Made(hash, number));
      ++number;
    });
  }
  // Whole or in parts, which are each of what they read.
  void RunNormGradient(const Instruction& instruction, const NormGradient& gradient) {
    const InstructionView op(trace_, instruction);
    const auto value_at = [&](int i) { return trace_.results[instruction.first_result + i].index; };
    const auto read = [&](const std::string& part, const std::vector<int>& positions) {
      size_t hash = std::hash<std::string>()(part);
      for (const int position : positions) {
        if (op.Input(position) != nullptr) hash = Mix(hash, of_[op.Input(position)->storage]);
      }
      return hash;
    };
    const bool is_part = op.name() == gradient.weight_name;
    std::vector<int> all(op.argument_count());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    const std::string name(gradient.name);
    const size_t weights = read(name + " weights", is_part ? all : gradient.weight_reads);
    if (!is_part && op.Result(0) != nullptr) Set(value_at(0), Made(read(name, FindFusible(name)->tensors), 0));
    bool has_weights = false;
    for (int i = is_part ? 0 : 1; i < op.result_count(); ++i) {
      if (op.Result(i) == nullptr) continue;
      Set(value_at(i), Made(weights, is_part ? i + 1 : i));
      has_weights = true;
    }
    if (has_weights) calls_.push_back(weights);
  }
  static size_t Written(size_t before, size_t hash) { return Mix(Mix(hash, 1), before); }
  static size_t Made(size_t hash, size_t number) { return Mix(Mix(hash, 2), number); }

  void RunFused(const Instruction& instruction, const std::string& text) {
    const auto kernel = ParseFusedKernel(text);
    if (!kernel.ok()) return calls_.push_back(0);
    std::vector<size_t> registers;
    const InstructionView op(trace_, instruction);
    op.ForEachInput([&](int place, uint32_t value) {
      if (place == 0) registers.push_back(Read(value));
    });
    for (const FusedStatement& statement : kernel->statements) {
      size_t hash = std::hash<std::string>()(statement.op);
      for (const FusedOperand& operand : statement.operands) {
        if (operand.reg >= 0) hash = Mix(hash, registers[operand.reg]);
      }
      const bool in_place = FindFusible(statement.op)->in_place;
      for (size_t i = 0; i < statement.results.size(); ++i)
        registers.push_back(in_place ? Written(registers[statement.operands[0].reg], hash) : Made(hash, i));
    }
    size_t written = 0, made = 0;
    op.ForEachInput([&](int place, uint32_t value) {
      if (place == 1) Set(value, registers[kernel->written[written++].reg]);
    });
    op.ForEachResult([&](int, uint32_t value) { Set(value, registers[kernel->results[made++].reg]); });
  }

  const Trace& trace_;
  std::vector<size_t> of_;
  std::vector<size_t> calls_;
};

bool HasFused(const Trace& trace) {
  return std::any_of(trace.operators.begin(), trace.operators.end(),
                     [](const Operator& op) { return op.name == kFusedOperator; });
}

// Where a pass has fused operators, others read and write storages than before.
void CheckContents(const Trace& before, const Trace& after, Findings* findings) {
  const Contents a(before), b(after);
  if (a.calls() != b.calls()) findings->Add("operators that are not fused read other contents than before");
  const auto of_a = a.Bound(), of_b = b.Bound();
  for (const auto& [name, hash] : of_a) {
    const auto found = of_b.find(name);
    if (found != of_b.end() && found->second != hash) findings->Add(name, " has other contents at the end than before");
  }
}

}  // namespace

std::vector<std::string> TraceFindings(const Trace& trace) {
  std::vector<std::string> all = Races(trace, kMost);
  const std::vector<std::string> reads = BadReads(trace, kMost);
  all.insert(all.end(), reads.begin(), reads.end());
  Findings extents, collectives, frees;
  CheckExtents(trace, &extents);
  CheckCollectives(trace, &collectives);
  CheckFrees(trace, &frees);
  for (Findings* findings : {&extents, &collectives, &frees}) findings->MoveTo(&all);
  return all;
}

std::vector<std::string> PassFindings(const Trace& before, const Trace& after) {
  Findings findings, ignored;
  CheckBindings("input", before, before.inputs, after, after.inputs, &findings);
  CheckBindings("output", before, before.outputs, after, after.outputs, &findings);
  if (TrafficOf(before) != TrafficOf(after)) findings.Add("the collectives of a group are others, or in another order");
  if (HasFused(after) && !HasFused(before)) {
    CheckContents(before, after, &findings);
  } else {
    CheckFlow(before, after, &findings);
  }
  const int64_t more = CheckFrees(after, &ignored) - CheckFrees(before, &ignored);
  if (more > 0) findings.Add(more, " more storages stay at the end");
  std::vector<std::string> all;
  findings.MoveTo(&all);
  return all;
}

}  // namespace legoai::graph
