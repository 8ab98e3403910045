#include "planner/autosac/facts.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/operators/operator_table.h"
#include "core/recipe/keep_policy.h"
#include "core/trace/annotation.h"
#include "core/trace/effects.h"
#include "proto/status.h"
#include "simulator/cost/collective_cost.h"
#include "simulator/cost/compute_cost.h"
#include "simulator/memory/memory_simulator.h"

namespace legoai::planner {
namespace {

using graph::Instruction;
using graph::InstructionView;
using graph::Phase;
using graph::Trace;

// A module's place in the model: "model.layers.3.mlp.up_proj" is "mlp.up_proj" of block 3.
struct Place {
  int64_t block = -1;  // -1: in none
  std::string module;
};

Place PlaceOf(const std::string& path) {
  const std::vector<std::string> parts = absl::StrSplit(path, '.');
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty() || !std::all_of(parts[i].begin(), parts[i].end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
    return {std::stoll(parts[i]), absl::StrJoin(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1, parts.end(), ".")};
  }
  return {};
}

std::string WithoutOverload(const std::string& name) { return name.substr(0, name.find('.')); }

// One forward of one block and its recomputation: instructions of the compute stream.
struct Pass {
  int32_t microbatch = -1;
  std::vector<uint32_t> forward, again;
};

class Reader {
 public:
  Reader(const Trace& trace, const v1::Cluster& cluster, std::vector<const sim::OperatorRow*> rows,
         std::unique_ptr<sim::RooflineModel> roofline)
      : trace_(trace), device_(cluster.device()), rows_(std::move(rows)), roofline_(std::move(roofline)), collectives_(cluster) {
    for (const std::string& path : trace.modules) places_.push_back(PlaceOf(path));
    freed_.assign(trace.storages.size(), UINT32_MAX);
    made_.assign(trace.storages.size(), UINT32_MAX);
  }

  absl::StatusOr<StageFacts> Read() {
    ReadLifetimes();
    ReadPasses();
    StageFacts facts;
    for (const auto& [block, pass] : passes_) {
      if (pass.again.empty()) continue;
      ASSIGN_OR_RETURN(auto read, ReadBlock(block, pass));
      facts.blocks.push_back(std::move(read));
    }
    if (facts.blocks.empty()) return absl::FailedPreconditionError("no block of the step is recomputed");
    ASSIGN_OR_RETURN(facts.states, ReadStates(facts.blocks));
    return facts;
  }

 private:
  // A block, by its place among those of the facts, and a microbatch.
  using Run = std::pair<size_t, int32_t>;
  static constexpr Run kNone{SIZE_MAX, -1};
  // Of a walk through the Trace.
  struct Progress {
    std::vector<int64_t> waiting;  // as MemoryState has it
    Run forward = kNone;           // that runs
    Run backward = kNone;          // that was last seen
  };

  const sim::OperatorRow& RowOf(const Instruction& op) const { return *rows_[op.operator_index]; }
  bool Computes(const Instruction& i) const {
    return i.kind == Instruction::Kind::kOperator && i.stream == comm::kCompute && RowOf(i).op_class != sim::OpClass::kControl;
  }

  void ReadLifetimes() {
    for (uint32_t i = 0; i < trace_.instructions.size(); ++i) {
      const Instruction& instruction = trace_.instructions[i];
      if (instruction.kind == Instruction::Kind::kFree) freed_[instruction.immediate] = i;
      if (instruction.kind != Instruction::Kind::kOperator) continue;
      InstructionView(trace_, instruction).ForEachResult([&](int, uint32_t value) {
        uint32_t& made = made_[trace_.values[value].storage];
        made = std::min(made, i);
      });
    }
  }

  // Of each block the first microbatch.
  void ReadPasses() {
    for (uint32_t i = 0; i < trace_.instructions.size(); ++i) {
      const Instruction& op = trace_.instructions[i];
      const int64_t block = places_[op.module].block;
      if (block < 0 || !Computes(op) || (op.phase != Phase::kForward && op.phase != Phase::kRecompute)) continue;
      const auto [found, fresh] = passes_.try_emplace(block);
      Pass& pass = found->second;
      if (fresh) pass.microbatch = op.microbatch;
      if (pass.microbatch != op.microbatch) continue;
      (op.phase == Phase::kForward ? pass.forward : pass.again).push_back(i);
    }
  }

  // The operator after the last of a recomputation: what is alive there is kept by autograd.
  uint32_t AfterPass(uint32_t last) const {
    uint32_t next = last + 1;
    while (next < trace_.instructions.size() && !Computes(trace_.instructions[next])) ++next;
    return next;
  }

  absl::StatusOr<BlockFacts> ReadBlock(int64_t block, const Pass& pass) const {
    BlockFacts facts{.block = block, .operators = {}};
    const uint32_t after = AfterPass(pass.again.back());
    std::map<uint32_t, int32_t> maker_of;  // by storage: the operator of the facts
    size_t again = 0;
    for (const uint32_t i : pass.forward) {
      const Instruction& op = trace_.instructions[i];
      const bool repeats = again < pass.again.size() && IsSame(op, trace_.instructions[pass.again[again]]);
      if (!IsOfBlock(op, i)) {
        again += repeats;
        continue;
      }
      ASSIGN_OR_RETURN(OperatorFacts read, ReadOperator(op, i));
      read.module = places_[op.module].module;
      read.recomputed = repeats;
      read.leader = LeaderOf(op, maker_of);
      read.saved = repeats && IsSaved(pass.again[again], after);
      again += repeats;
      const auto place = static_cast<int32_t>(facts.operators.size());
      ForEachMade(op, i, [&](int, uint32_t storage, int64_t) { maker_of[storage] = place; });
      facts.operators.push_back(std::move(read));
    }
    if (again < pass.again.size())
      return absl::InternalError(absl::StrCat("block ", block, ": recomputation runs ",
                                              trace_.OperatorName(trace_.instructions[pass.again[again]]),
                                              ", which its forward does not"));
    return facts;
  }

  bool IsSame(const Instruction& a, const Instruction& b) const {
    return a.operator_index == b.operator_index && a.module == b.module;
  }

  // Operators of data-parallel gathering run among a block's own: what they make or write are no activations.
  bool IsOfBlock(const Instruction& op, uint32_t index) const {
    bool is = true;
    const auto look = [&](uint32_t storage) { is = is && trace_.storages[storage].category == graph::Category::kActivation; };
    ForEachMade(op, index, [&](int, uint32_t storage, int64_t) { look(storage); });
    for (const uint32_t value : graph::OperandsOf(trace_, op).writes) look(trace_.values[value].storage);
    return is;
  }

  // Calls f(place of the result, storage, bytes).
  template <class F>
  void ForEachMade(const Instruction& op, uint32_t index, F f) const {
    const InstructionView view(trace_, op);
    view.ForEachResult([&](int place, uint32_t value) {
      const uint32_t storage = trace_.values[value].storage;
      if (made_[storage] != index || trace_.storages[storage].kind != graph::StorageKind::kInner) return;
      f(place, storage, sim::ResultBytes(view, RowOf(op), place, trace_.storages[storage].bytes, device_.kind()));
    });
  }

  bool IsSaved(uint32_t recomputed, uint32_t after) const {
    bool saved = false;
    ForEachMade(trace_.instructions[recomputed], recomputed,
                [&](int, uint32_t storage, int64_t) { saved = saved || freed_[storage] > after; });
    return saved;
  }

  int32_t LeaderOf(const Instruction& op, const std::map<uint32_t, int32_t>& maker_of) const {
    for (const uint32_t value : graph::OperandsOf(trace_, op).writes) {
      const auto maker = maker_of.find(trace_.values[value].storage);
      if (maker != maker_of.end()) return maker->second;
    }
    return -1;
  }

  absl::StatusOr<OperatorFacts> ReadOperator(const Instruction& op, uint32_t index) const {
    const sim::OperatorRow& row = RowOf(op);
    OperatorFacts facts;
    facts.name = WithoutOverload(trace_.OperatorName(op));
    ForEachMade(op, index, [&](int, uint32_t, int64_t bytes) { facts.bytes += bytes; });
    facts.view_like = row.op_class == sim::OpClass::kView;
    facts.random = facts.name == "lego::dropout";
    const auto& keepable = parallel::KeepableOperators();
    facts.keepable = std::find(keepable.begin(), keepable.end(), facts.name) != keepable.end();
    ASSIGN_OR_RETURN(facts.seconds, SecondsOf(op, row));
    return facts;
  }

  absl::StatusOr<double> SecondsOf(const Instruction& op, const sim::OperatorRow& row) const {
    if (row.op_class == sim::OpClass::kView) return 0.0;
    if (row.op_class == sim::OpClass::kCollective) {
      ASSIGN_OR_RETURN(const auto call, sim::ParseCollective(InstructionView(trace_, op)));
      return collectives_.Time(call.kind, call.bytes, trace_.groups[call.group].ranks);
    }
    ASSIGN_OR_RETURN(const auto cost, roofline_->Time(trace_, op));
    return cost.seconds;
  }

  absl::StatusOr<std::vector<MemoryState>> ReadStates(const std::vector<BlockFacts>& blocks) const {
    sim::MemoryOptions options = sim::MemoryOptionsOf(device_);
    options.timeline = true;
    ASSIGN_OR_RETURN(const auto profile, sim::SimulateMemory(trace_, options));
    std::vector<int64_t> most = profile.live_bytes;
    for (const auto& point : profile.timeline) {
      int64_t bytes = 0;
      for (const int64_t part : point.bytes) bytes += part;
      most[point.position] = std::max(most[point.position], bytes);
    }
    std::map<int64_t, size_t> index_of;
    for (size_t i = 0; i < blocks.size(); ++i) index_of[blocks[i].block] = i;
    std::map<std::vector<int64_t>, int64_t> states;
    Progress progress{.waiting = std::vector<int64_t>(blocks.size(), 0)};
    for (uint32_t i = 0; i < trace_.instructions.size(); ++i) {
      const Instruction& op = trace_.instructions[i];
      // Parameters are gathered ahead, under the path of the block that they are for.
      const bool runs = Computes(op) && RowOf(op).op_class != sim::OpClass::kView && IsOfBlock(op, i);
      if (runs) Advance(op, index_of, &progress);
      int64_t& bytes = states[progress.waiting];
      bytes = std::max(bytes, most[i]);
    }
    return Undominated(states);
  }

  // A block waits when the operators of its forward are over, until the first of its backward.
  void Advance(const Instruction& op, const std::map<int64_t, size_t>& index_of, Progress* progress) const {
    const auto found = index_of.find(places_[op.module].block);
    const bool in_block = found != index_of.end();
    const bool in_forward = in_block && op.phase == Phase::kForward;
    const Run run = in_block ? Run(found->second, op.microbatch) : kNone;
    const Run forward = in_forward ? run : kNone;
    if (progress->forward != kNone && progress->forward != forward) ++progress->waiting[progress->forward.first];
    progress->forward = forward;
    const bool begins_backward = in_block && !in_forward && op.phase != Phase::kOptimizer && run != progress->backward;
    if (!begins_backward) return;
    if (progress->waiting[found->second] > 0) --progress->waiting[found->second];
    progress->backward = run;
  }

  static std::vector<MemoryState> Undominated(const std::map<std::vector<int64_t>, int64_t>& states) {
    std::vector<MemoryState> kept;
    for (auto state = states.rbegin(); state != states.rend(); ++state) {  // longer waits come first
      const bool dominated = std::any_of(kept.begin(), kept.end(), [&](const MemoryState& other) {
        bool more = other.bytes >= state->second;
        for (size_t i = 0; more && i < other.waiting.size(); ++i) more = other.waiting[i] >= state->first[i];
        return more;
      });
      if (!dominated) kept.push_back({state->first, state->second});
    }
    return kept;
  }

  const Trace& trace_;
  const v1::Device& device_;
  const std::vector<const sim::OperatorRow*> rows_;  // by operator of the Trace
  const std::unique_ptr<sim::RooflineModel> roofline_;
  const sim::CollectiveCostModel collectives_;
  std::vector<Place> places_;           // by module
  std::vector<uint32_t> freed_, made_;  // by storage: instructions; UINT32_MAX: never
  std::map<int64_t, Pass> passes_;      // by block
};

template <class F>
int64_t SumOf(const std::vector<OperatorFacts>& operators, F bytes) {
  int64_t sum = 0;
  for (const OperatorFacts& op : operators) sum += bytes(op);
  return sum;
}

}  // namespace

int64_t BlockFacts::TotalBytes() const {
  return SumOf(operators, [](const OperatorFacts& op) { return op.recomputed ? op.bytes : 0; });
}

int64_t BlockFacts::SavedBytes() const {
  return SumOf(operators, [](const OperatorFacts& op) { return op.saved ? op.bytes : 0; });
}

double BlockFacts::TotalSeconds() const {
  double seconds = 0;
  for (const OperatorFacts& op : operators) seconds += op.recomputed ? op.seconds : 0;
  return seconds;
}

absl::StatusOr<StageFacts> FactsOf(const graph::Trace& trace, const v1::Cluster& cluster) {
  ASSIGN_OR_RETURN(auto rows, sim::ResolveOperators(trace));
  ASSIGN_OR_RETURN(auto roofline, sim::RooflineModel::Create(cluster.device()));
  return Reader(trace, cluster, std::move(rows), std::move(roofline)).Read();
}

}  // namespace legoai::planner
