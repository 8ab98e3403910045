#include "simulator/capture/instance_actions.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/trace/effects.h"
#include "proto/status.h"
#include "simulator/capture/captured_actions.h"

namespace legoai::sim {
namespace {

using graph::Instance;
using graph::Instances;
using graph::Instruction;
using graph::Trace;
using parallel::Action;
using parallel::LoweredAction;
using parallel::Schedule;

// Pieces are a chunk's storages of one captured microbatch, in the order of chunks and labels.
class Instancer {
 public:
  Instancer(const Trace& trace, const CapturedActions& parts, const Labels& labels)
      : trace_(trace), parts_(parts), labels_(labels) {}

  // `all` with the captured rank's chunks.
  absl::StatusOr<Instances> Run(const std::vector<LoweredAction>& all) {
    PlaceStorages();
    Bind();
    out_.list.reserve(all.size() + 2);
    RETURN_IF_ERROR(Add(parts_.prologue(), OutsideOfActions()));
    for (size_t i = 0; i < all.size(); ++i) {
      const int label = labels_.Of(all[i].microbatch);
      const auto part = parts_.Find(all[i], label);
      if (!part) return absl::FailedPreconditionError(absl::StrCat("no captured action is like ", parallel::Print(all[i], true)));
      Instance instance;
      instance.binding = static_cast<uint32_t>(all[i].microbatch);
      instance.action = static_cast<int32_t>(i);
      instance.microbatch = all[i].microbatch;
      const bool grows = labels_.IsNext(label) && !labels_.AllCaptured();
      instance.steps = grows ? all[i].microbatch - label : 0;  // a label is the captured microbatch's number
      RETURN_IF_ERROR(Add(*part, instance));
    }
    RETURN_IF_ERROR(Add(parts_.epilogue(), OutsideOfActions()));
    return std::move(out_);
  }

 private:
  int32_t PieceOf(int32_t chunk, int label) const { return chunk * (labels_.last + 1) + label; }
  Instance OutsideOfActions() const {
    Instance instance;
    instance.binding = static_cast<uint32_t>(labels_.microbatches);
    return instance;
  }

  void PlaceStorages() {
    const uint32_t count = trace_.storages.size();
    out_.pieces.resize(count);
    out_.places.resize(count);
    for (uint32_t s = 0; s < count; ++s) {
      const int home = parts_.Home(s);
      out_.pieces[s] = home == kNoMicrobatch ? graph::kSharedPiece : PieceOf(parts_.ChunkOf(s), home);
      out_.places[s] = home == kNoMicrobatch ? 0 : parts_.Local(s);
    }
    out_.storages = count;
  }

  // Each microbatch of each chunk gets storages of its own; then each microbatch, and what lies outside of all, its view of them.
  void Bind() {
    std::vector<std::vector<int64_t>> first(parts_.chunks());  // by chunk and microbatch
    for (int32_t chunk = 0; chunk < parts_.chunks(); ++chunk) {
      for (int64_t m = 0; m < labels_.microbatches; ++m) {
        first[chunk].push_back(out_.storages);
        out_.storages += parts_.StoragesOf(chunk, labels_.Of(m));
      }
    }
    for (int64_t m = 0; m <= labels_.microbatches; ++m) {
      std::vector<int64_t>& binding = out_.bindings.emplace_back();
      for (int32_t chunk = 0; chunk < parts_.chunks(); ++chunk) {
        for (int label = 0; label <= labels_.last; ++label) {
          const int64_t of = labels_.MicrobatchOf(label, m);
          binding.push_back(of < 0 ? graph::kUnbound : first[chunk][of]);
        }
      }
    }
  }

  absl::Status Add(CapturedActions::Part part, Instance instance) {
    if (!Bound(part, instance.binding)) {
      return absl::FailedPreconditionError(
          absl::StrCat("a storage of another microbatch is used in microbatch ", instance.microbatch));
    }
    instance.begin = part.begin;
    instance.end = part.end;
    instance.before = part.before;
    instance.position = out_.positions();
    out_.list.push_back(instance);
    return absl::OkStatus();
  }

  // Whether the binding has all pieces that the part uses.
  bool Bound(CapturedActions::Part part, uint32_t binding) {
    auto [found, fresh] = pieces_of_.try_emplace({part.begin, part.end});
    if (fresh) found->second = PiecesOf(part);
    return std::all_of(found->second.begin(), found->second.end(),
                       [&](int32_t piece) { return out_.bindings[binding][piece] != graph::kUnbound; });
  }
  std::vector<int32_t> PiecesOf(CapturedActions::Part part) const {
    std::vector<int32_t> pieces;
    const auto add = [&](uint32_t storage) {
      if (out_.pieces[storage] != graph::kSharedPiece) pieces.push_back(out_.pieces[storage]);
    };
    const auto add_value = [&](int, uint32_t value) { add(trace_.values[value].storage); };
    for (uint32_t i = part.begin; i < part.end; ++i) {
      const Instruction& instruction = trace_.instructions[i];
      if (instruction.kind == Instruction::Kind::kFree) add(static_cast<uint32_t>(instruction.immediate));
      if (instruction.kind == Instruction::Kind::kResize) add(instruction.operator_index);
      if (instruction.kind != Instruction::Kind::kOperator) continue;
      const graph::InstructionView view(trace_, instruction);
      view.ForEachInput(add_value);
      view.ForEachResult(add_value);
    }
    std::sort(pieces.begin(), pieces.end());
    pieces.erase(std::unique(pieces.begin(), pieces.end()), pieces.end());
    return pieces;
  }

  const Trace& trace_;
  const CapturedActions& parts_;
  const Labels labels_;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<int32_t>> pieces_of_;  // by part
  Instances out_;
};

// The chunks in the order in which their gradients end: reductions wait for each other in it.
std::vector<int32_t> OrderOfReductions(const std::vector<LoweredAction>& actions) {
  std::vector<int32_t> chunks;
  for (const LoweredAction& action : actions) {
    const bool ends = action.reduce_gradients && action.kind != LoweredAction::Kind::kInputGradient;
    if (ends) chunks.push_back(action.chunk);
  }
  return chunks;
}

// What `rank` does, with the chunks that stand in the same places of `captured_rank`.
std::vector<LoweredAction> WithChunksOf(int64_t captured_rank, const parallel::Placement& placement,
                                        std::vector<LoweredAction> all) {
  for (LoweredAction& action : all) {
    action.chunk = static_cast<int32_t>(placement.ChunkOf(captured_rank, placement.LocalOf(action.chunk)));
  }
  return all;
}

Labels LabelsOf(const Schedule& schedule, int64_t rank) {
  std::vector<Variant> variants(parallel::MicrobatchesOf(schedule), Variant(schedule.placement.locals()));
  for (const Action& action : schedule.ranks[rank]) {
    if (action.kind != Action::Kind::kInputGradient) continue;
    variants[action.microbatch][schedule.placement.LocalOf(action.chunk)] = true;
  }
  return Labels(schedule.placement.ranks, std::move(variants));
}

}  // namespace

int64_t CapturedMicrobatches(const Schedule& schedule, int64_t rank) { return LabelsOf(schedule, rank).last + 1; }

std::vector<int64_t> CapturedVariants(const Schedule& schedule, int64_t rank) {
  const Labels labels = LabelsOf(schedule, rank);
  std::vector<int64_t> variants;
  for (int label = 0; label <= labels.last && label < labels.microbatches; ++label) {
    for (const bool parts : labels.VariantOf(label)) variants.push_back(parts);
  }
  return variants;
}

std::vector<LoweredAction> ActionsToCapture(const Schedule& schedule, int64_t rank) {
  const Labels labels = LabelsOf(schedule, rank);
  const int64_t captured = std::min<int64_t>(labels.microbatches, labels.last + 1);
  Schedule few = parallel::BreadthFirst(schedule.placement, captured, /*parts_backward=*/false);
  std::vector<Action> actions;
  for (const Action& action : few.ranks[rank]) {
    const bool parts = labels.VariantOf(action.microbatch)[schedule.placement.LocalOf(action.chunk)];
    actions.push_back(action);
    if (action.kind != Action::Kind::kBackward || !parts) continue;
    actions.back().kind = Action::Kind::kInputGradient;
    actions.push_back({Action::Kind::kWeightGradient, action.chunk, action.microbatch});
  }
  few.ranks[rank] = std::move(actions);
  std::vector<LoweredAction> lowered = parallel::Lowering(few).Rank(rank);
  for (LoweredAction& action : lowered) {
    if (action.microbatch + 1 == captured) action.microbatch = static_cast<int32_t>(labels.microbatches - 1);
  }
  return lowered;
}

bool ServesOtherLayers(const Trace& captured) {
  return std::none_of(captured.operators.begin(), captured.operators.end(),
                      [](const graph::Operator& op) { return op.name == "lego::dropout"; });
}

absl::StatusOr<Instances> InstanceActions(const Trace& captured, const std::vector<LoweredAction>& captured_actions,
                                          const std::vector<LoweredAction>& all, const Schedule& schedule, int64_t rank,
                                          int64_t rank_shift) {
  const std::vector<LoweredAction> actions = WithChunksOf(rank - rank_shift, schedule.placement, all);
  if (OrderOfReductions(actions) != OrderOfReductions(captured_actions)) {
    return absl::FailedPreconditionError("the gradients of chunks end in another order than was captured");
  }
  const Labels labels = LabelsOf(schedule, rank);
  ASSIGN_OR_RETURN(const auto parts, CapturedActions::Read(captured, captured_actions, labels));
  ASSIGN_OR_RETURN(auto instances, Instancer(captured, parts, labels).Run(actions));
  instances.groups = captured.groups;
  instances.rank_shift = rank_shift;
  return instances;
}

}  // namespace legoai::sim
