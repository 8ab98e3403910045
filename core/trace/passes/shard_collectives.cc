#include "core/trace/passes/shard_collectives.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "core/trace/annotation.h"
#include "core/trace/effects.h"
#include "core/trace/passes/rewriter.h"
#include "proto/status.h"

namespace legoai::graph {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

Phase HalfOf(Phase phase) { return phase == Phase::kRecompute ? Phase::kBackward : phase; }

class Finder {
 public:
  explicit Finder(const Trace& trace) : trace_(trace), users_(trace.storages.size()), frees_(trace.storages.size(), kNone) {
    for (uint32_t i = 0; i < trace.instructions.size(); ++i) {
      const Instruction& instruction = trace.instructions[i];
      AddToSpan(i);
      if (instruction.kind == Instruction::Kind::kFree) frees_[instruction.immediate] = i;
      for (uint32_t storage : StoragesOf(trace, instruction)) users_[storage].push_back(i);
    }
  }

  absl::StatusOr<ShardCollectives> Run() {
    for (uint32_t i = 0; i < trace_.instructions.size(); ++i) {
      const Instruction& instruction = trace_.instructions[i];
      if (instruction.kind != Instruction::Kind::kOperator) continue;
      const std::string& name = trace_.OperatorName(instruction);
      if (instruction.stream == comm::kAllGather && name == "lego::all_gather_into") RETURN_IF_ERROR(AddGather(i));
      if (instruction.stream == comm::kReduceScatter && name == "lego::reduce_scatter_into") RETURN_IF_ERROR(AddReduction(i));
    }
    return std::move(found_);
  }

 private:
  void AddToSpan(uint32_t i) {
    const Instruction& now = trace_.instructions[i];
    auto& spans = found_.spans;
    const Instruction* const begin = spans.empty() ? nullptr : &trace_.instructions[spans.back().first];
    // Frees bear the marks of the instruction after them.
    if (begin == nullptr || HalfOf(begin->phase) != HalfOf(now.phase) || begin->action != now.action ||
        begin->microbatch != now.microbatch) {
      spans.emplace_back(i, i);
    }
    spans.back().second = i + 1;
    span_of_.push_back(static_cast<uint32_t>(spans.size() - 1));
  }

  absl::Status Bad(uint32_t i, const char* what) const {
    return absl::InternalError(absl::StrCat("instruction ", i, ", ", trace_.Line(trace_.instructions[i], true), ": ", what));
  }

  // The event of an instruction if it is a record or a wait of this stream.
  int64_t EventAt(uint32_t i, bool is_record, int64_t stream) const {
    const auto event = EventOf(trace_, trace_.instructions[i]);
    return event && event->is_record == is_record && event->stream == stream ? event->event : -1;
  }
  // The next record or wait of an event of a stream, after or before `from`, in the span; kNone: there is none.
  uint32_t Next(uint32_t from, bool is_record, int64_t stream, int64_t event) const {
    for (uint32_t i = from + 1; i < found_.spans[span_of_[from]].second; ++i) {
      if (const int64_t at = EventAt(i, is_record, stream); at >= 0 && (event < 0 || at == event)) return i;
    }
    return kNone;
  }
  uint32_t Last(uint32_t from, bool is_record, int64_t stream, int64_t event) const {
    for (uint32_t i = from; i-- > found_.spans[span_of_[from]].first;) {
      if (const int64_t at = EventAt(i, is_record, stream); at >= 0 && (event < 0 || at == event)) return i;
    }
    return kNone;
  }

  // What gathers and reductions have in common. `also`: a storage that is made for the collective besides the buffer.
  absl::Status Fill(uint32_t at, const Value& buffer, uint32_t also, ShardCollective* out) const {
    const Instruction& collective = trace_.instructions[at];
    out->parameter = trace_.modules[collective.module];
    out->phase = HalfOf(collective.phase);
    out->span = span_of_[at];
    out->collective = at;
    out->buffer = buffer.storage;
    if (trace_.storages[buffer.storage].kind != StorageKind::kInner || frees_[buffer.storage] == kNone)
      return Bad(at, "its buffer is not made and freed in the step");
    const uint32_t fork_wait = Last(at, false, collective.stream, -1);
    const uint32_t fork = fork_wait == kNone ? kNone : Last(fork_wait, true, comm::kCompute,
                                                            EventOf(trace_, trace_.instructions[fork_wait])->event);
    const uint32_t done = Next(at, true, collective.stream, -1);
    if (fork == kNone || done == kNone) return Bad(at, "no events around it");
    out->wait = Next(done, false, comm::kCompute, EventOf(trace_, trace_.instructions[done])->event);
    if (out->wait == kNone) return Bad(at, "the compute stream does not wait for it in the span");
    std::set<uint32_t> start = {fork, fork_wait, at, done};
    for (uint32_t user : users_[buffer.storage]) {
      if (user < at) start.insert(user);
    }
    if (also != kNone && users_[also].front() < at) start.insert(users_[also].front());
    out->start.assign(start.begin(), start.end());
    if (span_of_[out->start.front()] != out->span) return Bad(at, "its buffer is packed in another span");
    return absl::OkStatus();
  }

  absl::Status AddGather(uint32_t at) {
    const InstructionView op(trace_, trace_.instructions[at]);
    Gather gather;
    RETURN_IF_ERROR(Fill(at, *op.Input(0), kNone, &gather));
    if (op.Input(1)->storage != gather.buffer) return Bad(at, "gathers from outside its buffer");
    std::set<uint32_t> finish = {gather.wait, frees_[gather.buffer]};
    uint32_t last = gather.wait;
    for (uint32_t user : users_[gather.buffer]) {
      if (user <= at) continue;
      if (user < gather.wait) return Bad(at, "the buffer is read before the wait");
      finish.insert(user);
      last = std::max(last, user);
      const Operands operands = OperandsOf(trace_, trace_.instructions[user]);
      for (uint32_t value : operands.writes) gather.parameters.push_back(trace_.values[value].storage);
    }
    std::sort(gather.parameters.begin(), gather.parameters.end());
    gather.parameters.erase(std::unique(gather.parameters.begin(), gather.parameters.end()), gather.parameters.end());
    for (uint32_t storage : gather.parameters) {
      for (uint32_t user : users_[storage]) {
        if (user > gather.wait && user < last) finish.insert(user);
      }
    }
    gather.finish.assign(finish.begin(), finish.end());
    found_.gathers.push_back(std::move(gather));
    return absl::OkStatus();
  }

  absl::Status AddReduction(uint32_t at) {
    const InstructionView op(trace_, trace_.instructions[at]);
    Reduction reduction;
    reduction.sum = op.Input(0)->storage;
    if (trace_.storages[reduction.sum].kind != StorageKind::kInner || frees_[reduction.sum] == kNone)
      return Bad(at, "its sums are not made and freed in the step");
    RETURN_IF_ERROR(Fill(at, *op.Input(1), reduction.sum, &reduction));
    const uint32_t freed = frees_[reduction.buffer];
    if (freed < reduction.wait) return Bad(at, "its buffer is freed before the wait");
    reduction.finish = {reduction.wait, freed};
    const uint32_t end = found_.spans[reduction.span].second;
    for (uint32_t user : users_[reduction.sum]) {
      if (user > at && IsReplicaSum(user)) {  // in another span: of what later microbatches add
        if (span_of_[user] == reduction.span) RETURN_IF_ERROR(AddReplicas(user, /*follows_tail=*/false, &reduction));
        continue;
      }
      if (user > reduction.wait && user < end) reduction.tail.push_back(user);
      if (user > at && user < reduction.wait) return Bad(at, "the sums are read before the wait");
    }
    for (const uint32_t adds : std::vector<uint32_t>(reduction.tail)) RETURN_IF_ERROR(AddReplicasOfEarlier(adds, &reduction));
    if (frees_[reduction.sum] < end) reduction.tail.push_back(frees_[reduction.sum]);
    found_.reductions.push_back(std::move(reduction));
    return absl::OkStatus();
  }

  bool IsReplicaSum(uint32_t i) const {
    const Instruction& instruction = trace_.instructions[i];
    return instruction.stream == comm::kReplicate && trace_.OperatorName(instruction) == "lego::all_reduce_";
  }

  // Sums that are added to those of earlier microbatches, which are then summed over the replicas.
  absl::Status AddReplicasOfEarlier(uint32_t adds, Reduction* reduction) const {
    for (uint32_t value : OperandsOf(trace_, trace_.instructions[adds]).writes) {
      const uint32_t storage = trace_.values[value].storage;
      const auto& users = users_[storage];
      const auto next = std::upper_bound(users.begin(), users.end(), adds);
      if (storage == reduction->sum || next == users.end() || !IsReplicaSum(*next)) continue;
      if (span_of_[*next] != reduction->span) return Bad(*next, "sums over replicas in another span");
      return AddReplicas(*next, /*follows_tail=*/true, reduction);
    }
    return absl::OkStatus();
  }

  absl::Status AddReplicas(uint32_t at, bool follows_tail, Reduction* reduction) const {
    ReplicaSum sum{.collective = at, .issue = {}, .wait = kNone, .follows_tail = follows_tail};
    const uint32_t fork_wait = Last(at, false, comm::kReplicate, -1), done = Next(at, true, comm::kReplicate, -1);
    if (fork_wait == kNone || done == kNone) return Bad(at, "no events around it");
    const int64_t fork = EventOf(trace_, trace_.instructions[fork_wait])->event;
    if (follows_tail) {
      const uint32_t record = Last(fork_wait, true, comm::kCompute, fork);
      if (record == kNone) return Bad(at, "does not wait for the compute stream");
      sum.issue.push_back(record);
    } else if (Last(fork_wait, true, comm::kReduceScatter, fork) == kNone) {
      return Bad(at, "does not wait for its reduction");
    }
    sum.issue.insert(sum.issue.end(), {fork_wait, at, done});
    const int64_t event = EventOf(trace_, trace_.instructions[done])->event;
    for (uint32_t i = done + 1; i < trace_.instructions.size() && sum.wait == kNone; ++i) {
      if (EventAt(i, false, comm::kCompute) == event) sum.wait = i;
    }
    if (sum.wait == kNone) return Bad(at, "the compute stream does not wait for it");
    reduction->replicas = std::move(sum);
    return absl::OkStatus();
  }

  const Trace& trace_;
  std::vector<std::vector<uint32_t>> users_;  // operators by storage
  std::vector<uint32_t> frees_, span_of_;
  ShardCollectives found_;
};

}  // namespace

absl::StatusOr<ShardCollectives> FindShardCollectives(const Trace& trace) { return Finder(trace).Run(); }

}  // namespace legoai::graph
