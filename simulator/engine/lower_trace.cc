#include "simulator/engine/lower_trace.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/operators/operator_table.h"
#include "core/trace/annotation.h"
#include "core/trace/effects.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::sim {
namespace {

using graph::Instance;
using graph::Instances;
using graph::Instruction;
using graph::InstructionView;

// Both ends of a pipeline message are on streams of the same name seen from either side.
int64_t MessageChannel(int64_t stream) {
  if (stream == comm::kRecvPrevious) return comm::kSendNext;
  if (stream == comm::kRecvNext) return comm::kSendPrevious;
  return stream;
}

// Messages of one (from, to, channel), in the order of dispatch; the n-th send meets the n-th receive.
struct Messages {
  std::deque<TaskId> sends, receives;
};
using MessageKey = std::tuple<int64_t, int64_t, int64_t>;

// What a stage's rank asks of resources for one busy thread.
using Demands = std::vector<Demand>;

// By stage. A rank of a CPU host has the core that it is pinned to (the launcher's rank mod cores), or its part of the cores
// where there are more of them; any other device computes for itself.
std::vector<Demands> AddComputeResources(const std::vector<StageTrace>& stages, const v1::Cluster& cluster, Program* program) {
  const int64_t per_node = std::max<int64_t>(1, cluster.devices_per_node()),
                world = per_node * std::max<int64_t>(1, cluster.nodes());
  const int64_t cores = cluster.device().kind() == v1::CPU && cluster.host_cores() > 0 ? cluster.host_cores() : per_node;
  std::vector<Demands> demands(stages.size());
  if (cores >= per_node) {
    const double capacity = static_cast<double>(cores) / static_cast<double>(per_node);
    for (size_t i = 0; i < stages.size(); ++i) {
      demands[i].push_back({program->AddResource(absl::StrCat("stage ", stages[i].stage, ", compute"), capacity), 1});
    }
    return demands;
  }
  // Cores on which equally many ranks of each stage take turns are alike: one resource stands for them.
  std::map<std::pair<int64_t, int64_t>, std::vector<float>> ranks_on;  // (node, core) -> ranks, by stage
  for (int64_t rank = 0; rank < world; ++rank) {
    std::vector<float>& ranks = ranks_on[{rank / per_node, rank % per_node % cores}];
    ranks.resize(stages.size());
    ++ranks[rank * static_cast<int64_t>(stages.size()) / world];  // the pipeline is the outermost dimension of the mesh
  }
  std::set<std::vector<float>> kinds;
  for (const auto& [_, ranks] : ranks_on) {
    if (!kinds.insert(ranks).second) continue;
    const uint32_t core = program->AddResource(absl::StrCat("core ", kinds.size() - 1), 1);
    for (size_t i = 0; i < stages.size(); ++i) {
      if (ranks[i] > 0) demands[i].push_back({core, ranks[i]});
    }
  }
  return demands;
}

class StageLowering {
 public:
  StageLowering(uint32_t index, const StageTrace& stage, Demands thread, const v1::Cluster& cluster,
                const ComputeCostModel& compute, const CollectiveCostModel& collectives, std::map<MessageKey, Messages>* messages,
                LoweredStep* out)
      : index_(index),
        stage_(stage),
        thread_(std::move(thread)),
        trace_(*stage.trace),
        device_(cluster.device()),
        on_cpu_(cluster.device().kind() == v1::CPU),
        costs_(trace_, compute),
        known_costs_(trace_.instructions.size()),
        collectives_(collectives),
        messages_(messages),
        out_(out) {
    std::string prefix = absl::StrCat("stage ", stage.stage, ", ");
    for (const auto& tier : cluster.tiers()) {
      links_out_.push_back(out->program.AddResource(absl::StrCat(prefix, tier.name(), " out"), 1));
      links_in_.push_back(out->program.AddResource(absl::StrCat(prefix, tier.name(), " in"), 1));
    }
    for (int64_t stream = 0; stream < comm::kStreamCount; ++stream) {
      queues_.push_back(out->program.AddQueue(prefix + comm::StreamName(stream)));
    }
    pending_.resize(queues_.size());
  }

  absl::Status Run(const Instances& instances, const std::vector<const OperatorRow*>& rows) {
    for (const Instance& instance : instances.list) {
      now_ = &instance;
      for (uint32_t i = instance.begin; i < instance.end; ++i) {
        const Instruction& instruction = trace_.instructions[i];
        if (instruction.kind != Instruction::Kind::kOperator) continue;
        absl::Status status = Lower(i, instruction, *rows[instruction.operator_index]);
        if (!status.ok()) return Annotate(status, absl::StrCat("stage ", stage_.stage, ", instruction ", instance.PositionOf(i)));
      }
    }
    FlushWaits(comm::kCompute, static_cast<uint32_t>(trace_.instructions.size()) - 1);
    return absl::OkStatus();
  }

 private:
  absl::Status Lower(uint32_t i, const Instruction& instruction, const OperatorRow& row) {
    if (instruction.stream >= queues_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("is on unknown stream ", instruction.stream));
    }
    ++out_->operators;
    InstructionView op(trace_, instruction);
    switch (row.op_class) {
      case OpClass::kView: Dispatch(row.op_class); return absl::OkStatus();
      case OpClass::kControl: Dispatch(row.op_class); return LowerControl(i, op);
      case OpClass::kCollective: return LowerCollective(i, op);
      default: return LowerCompute(i, instruction);
    }
  }

  // The host spends its time on one instruction; on a CPU the next compute task carries what launches nothing.
  void Dispatch(OpClass op_class) {
    double seconds = DispatchShare(op_class) * device_.host_dispatch_seconds();
    host_ += seconds;
    carried_ += seconds;
  }
  double ReleaseTime() const { return on_cpu_ ? 0 : host_; }

  TaskId AddTask(uint32_t i, int64_t stream, double seconds, TaskKind kind) {
    TaskId id = out_->program.AddTaskWith(queues_[stream], seconds, ReleaseTime());
    out_->tasks.push_back({index_, i, now_->PositionOf(i), MicrobatchOf(i), static_cast<uint16_t>(stream), kind, 0});
    if (stream == comm::kCompute) out_->compute[index_].push_back(id);
    for (TaskId on : pending_[stream]) out_->program.AddWait(id, on);
    pending_[stream].clear();
    return id;
  }

  int32_t MicrobatchOf(uint32_t i) const { return now_->microbatch >= 0 ? now_->microbatch : trace_.instructions[i].microbatch; }

  // A task of no length that takes up what a stream waits for.
  void FlushWaits(int64_t stream, uint32_t i) {
    if (!pending_[stream].empty()) AddTask(i, stream, 0, TaskKind::kMarker);
  }

  absl::Status LowerCompute(uint32_t i, const Instruction& instruction) {
    if (!known_costs_[i]) {
      ASSIGN_OR_RETURN(known_costs_[i], costs_.Time(instruction));
    }
    const Cost& cost = *known_costs_[i];
    if (model_ != cost.model) {
      model_ = cost.model;
      model_seconds_ = &out_->model_seconds[model_];
    }
    *model_seconds_ += cost.seconds;
    host_ += device_.host_dispatch_seconds();
    double dispatch = 0;
    if (on_cpu_) {
      dispatch = carried_ + device_.host_dispatch_seconds();
      carried_ = 0;
    }
    TaskId id = AddTask(i, instruction.stream, cost.seconds + dispatch, TaskKind::kCompute);
    out_->tasks[id].dispatch_seconds = static_cast<float>(dispatch);
    AddComputeDemands(1);
    return absl::OkStatus();
  }

  absl::Status LowerControl(uint32_t i, const InstructionView& op) {
    if (const char* const missing = graph::MissingOperand(trace_, op.instruction()))
      return absl::InvalidArgumentError(absl::StrCat(op.name(), " has ", missing));
    auto use = graph::EventOf(trace_, op.instruction());
    if (!use) return absl::OkStatus();
    if (now_->steps != 0) {
      const auto before = graph::EventOf(trace_, trace_.instructions[now_->Before(i)]);
      if (before) use->event = now_->Grown(use->event, before->event);
    }
    if (use->stream < 0 || use->stream >= static_cast<int64_t>(queues_.size()))
      return absl::InvalidArgumentError(absl::StrCat(op.name(), " is of unknown stream ", use->stream));
    if (use->is_record) {
      FlushWaits(use->stream, i);
      events_[use->event] = out_->program.Last(queues_[use->stream]);
      return absl::OkStatus();
    }
    const auto found = events_.find(use->event);
    if (found == events_.end()) {
      return absl::InternalError(
          absl::StrCat("stream ", comm::StreamName(use->stream), " waits for event ", use->event, ", never recorded"));
    }
    if (found->second != kNoTask) pending_[use->stream].push_back(found->second);
    return absl::OkStatus();
  }

  // On a CPU the dispatching thread posts side work when it gets there, having waited for what it waits for.
  void AfterPosting(uint32_t i, int64_t stream) {
    if (!on_cpu_ || stream == comm::kCompute) return;
    FlushWaits(comm::kCompute, i);
    TaskId last = out_->program.Last(queues_[comm::kCompute]);
    if (last != kNoTask) pending_[stream].push_back(last);
  }

  struct TimeAndTier {
    double seconds;
    int tier;
    bool by_copies;  // and not by kernels
  };
  // Layers repeat their collectives, and groups may be large.
  absl::StatusOr<TimeAndTier> CollectiveCost(const CollectiveCall& call) {
    auto [found, added] = collective_costs_.try_emplace({call.kind, call.group, call.bytes}, TimeAndTier{0, -1, false});
    if (added) {
      const mesh::Group& group = stage_.groups()[call.group];
      ASSIGN_OR_RETURN(auto seconds, collectives_.Time(call.kind, call.bytes, group));
      const bool by_copies = call.kind == Effect::kRotate && collectives_.RotatesThroughMemory(group);
      found->second = {seconds, collectives_.TierOf(group.ranks), by_copies};
    }
    return found->second;
  }

  // Of the task added last, which takes `share` of what a computing thread takes.
  void AddComputeDemands(double share) {
    for (const Demand& demand : thread_) out_->program.AddDemand({demand.resource, demand.share * static_cast<float>(share)});
  }

  void AddCommunicationDemands(int tier, bool out, bool in, bool by_copies = false) {
    if (!by_copies) AddComputeDemands(device_.communication_compute_share());
    if (tier < 0) return;
    if (out) out_->program.AddDemand({links_out_[tier], 1});
    if (in) out_->program.AddDemand({links_in_[tier], 1});
  }

  absl::Status LowerCollective(uint32_t i, const InstructionView& op) {
    ASSIGN_OR_RETURN(auto call, stage_.CallOf(op));
    Dispatch(OpClass::kCollective);
    int64_t stream = op.instruction().stream;
    AfterPosting(i, stream);
    bool send = call.kind == Effect::kSend, receive = call.kind == Effect::kRecv;
    if (!send && !receive) {
      ASSIGN_OR_RETURN(auto cost, CollectiveCost(call));
      AddTask(i, stream, cost.seconds, TaskKind::kCommunication);
      AddCommunicationDemands(cost.tier, true, true, cost.by_copies);
      return absl::OkStatus();
    }
    int64_t peer = stage_.groups()[call.group].ranks[call.peer];
    ASSIGN_OR_RETURN(auto seconds, collectives_.MessageTime(call.bytes, stage_.rank, peer));
    TaskId id = AddTask(i, stream, seconds, TaskKind::kCommunication);
    AddCommunicationDemands(collectives_.TierOf(stage_.rank, peer), send, receive);
    int64_t channel = MessageChannel(stream);
    if (send) (*messages_)[{stage_.rank, peer, channel}].sends.push_back(id);
    if (receive) (*messages_)[{peer, stage_.rank, channel}].receives.push_back(id);
    return absl::OkStatus();
  }

  const uint32_t index_;
  const StageTrace& stage_;
  const Demands thread_;
  const graph::Trace& trace_;
  const v1::Device& device_;
  const bool on_cpu_;
  CostCache costs_;
  std::vector<std::optional<Cost>> known_costs_;  // by instruction
  const CollectiveCostModel& collectives_;
  std::map<MessageKey, Messages>* messages_;
  LoweredStep* out_;
  std::vector<uint32_t> links_out_, links_in_, queues_;
  std::vector<std::vector<TaskId>> pending_;    // by stream: what its next task waits for
  std::unordered_map<int64_t, TaskId> events_;  // what the latest record of an event stands behind
  std::map<std::tuple<Effect, int64_t, int64_t>, TimeAndTier> collective_costs_;  // by kind, group, bytes
  const char* model_ = nullptr;                                                   // of the last cost
  double* model_seconds_ = nullptr;
  double host_ = 0, carried_ = 0;
  const Instance* now_ = nullptr;  // what is being lowered
};

absl::Status JoinMessages(const std::map<MessageKey, Messages>& messages, Program* program) {
  for (const auto& [key, queue] : messages) {
    if (queue.sends.size() != queue.receives.size()) {
      auto [from, to, channel] = key;
      return absl::InvalidArgumentError(absl::StrCat("rank ", from, " sends ", queue.sends.size(), " messages to rank ", to,
                                                     " on channel ", comm::StreamName(channel), ", which receives ",
                                                     queue.receives.size(), "; is the Trace of every stage given?"));
    }
    for (size_t i = 0; i < queue.sends.size(); ++i) program->Join(queue.sends[i], queue.receives[i]);
  }
  return absl::OkStatus();
}

uint64_t Hash(const std::vector<uint32_t>& key) {
  uint64_t hash = 1469598103934665603u;
  for (uint32_t word : key) hash = (hash ^ word) * 1099511628211u;
  return hash;
}

}  // namespace

absl::StatusOr<CollectiveCall> StageTrace::CallOf(const InstructionView& op) const {
  ASSIGN_OR_RETURN(auto call, ParseCollective(op));
  if (call.peer >= 0 && instances != nullptr) call.peer += instances->rank_shift;
  return call;
}

absl::StatusOr<LoweredStep> LowerTraces(const std::vector<StageTrace>& stages, const v1::Cluster& cluster,
                                        const ComputeCostModel& compute, const CollectiveCostModel& collectives) {
  LoweredStep step;
  step.compute.resize(stages.size());
  std::map<MessageKey, Messages> messages;
  std::vector<Demands> threads = AddComputeResources(stages, cluster, &step.program);
  for (uint32_t i = 0; i < stages.size(); ++i) {
    ASSIGN_OR_RETURN(auto rows, ResolveOperators(*stages[i].trace));
    StageLowering lowering(i, stages[i], std::move(threads[i]), cluster, compute, collectives, &messages, &step);
    RETURN_IF_ERROR(lowering.Run(stages[i].instances != nullptr ? *stages[i].instances : graph::WholeOf(*stages[i].trace), rows));
  }
  absl::Status status = JoinMessages(messages, &step.program);
  if (!status.ok()) return status;
  return step;
}

std::string DescribeTask(const std::vector<StageTrace>& stages, const LoweredStep& step, TaskId id) {
  const TaskInfo& info = step.tasks[id];
  const graph::Trace& trace = *stages[info.stage].trace;
  std::string where = absl::StrCat("stage ", stages[info.stage].stage, ", ", comm::StreamName(info.stream), ": ");
  if (info.kind == TaskKind::kMarker || info.instruction >= trace.instructions.size()) return where + "waits";
  const Instruction& instruction = trace.instructions[info.instruction];
  const std::string module = stages[info.stage].Module(instruction.module);
  return absl::StrCat(where, trace.OperatorName(instruction), module.empty() ? "" : " in ", module, ", ",
                      graph::PhaseName(instruction.phase), " (instruction ", info.position, ")");
}

void CostCache::Key(const graph::Instruction& instruction, std::vector<uint32_t>* key) const {
  key->clear();
  key->push_back(instruction.operator_index);
  std::vector<uint32_t> seen;
  auto add_value = [&](int64_t id) {
    if (id < 0) return key->push_back(UINT32_MAX);
    key->push_back(trace_.values[id].geometry);
    uint32_t first = 0;
    while (first < seen.size() && seen[first] != static_cast<uint32_t>(id)) ++first;
    key->push_back(first);
    if (seen.size() < 16 && first == seen.size()) seen.push_back(static_cast<uint32_t>(id));
  };
  auto add = [&](const graph::Argument& argument) {
    key->push_back(static_cast<uint32_t>(argument.kind));
    switch (argument.kind) {
      case graph::Argument::Kind::kValue: return add_value(argument.index);
      case graph::Argument::Kind::kList:
      case graph::Argument::Kind::kOptionalList:
        key->push_back(static_cast<uint32_t>(trace_.lists[argument.index].size()));
        for (int64_t id : trace_.lists[argument.index]) add_value(id);
        return;
      default: key->push_back(argument.index);
    }
  };
  for (int i = 0; i < instruction.argument_count; ++i) add(trace_.arguments[instruction.first_argument + i]);
  for (int i = 0; i < instruction.result_count; ++i) add(trace_.results[instruction.first_result + i]);
}

absl::StatusOr<Cost> CostCache::Time(const graph::Instruction& instruction) {
  Key(instruction, &scratch_);
  std::vector<Entry>& bucket = entries_[Hash(scratch_)];
  for (const Entry& entry : bucket) {
    if (entry.key == scratch_) return entry.cost;
  }
  ASSIGN_OR_RETURN(auto cost, model_.Time(trace_, instruction));
  bucket.push_back({scratch_, cost});
  ++distinct_;
  return cost;
}

}  // namespace legoai::sim
