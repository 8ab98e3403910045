#include "core/schedule/schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/schedule/zero_bubble.h"
#include "proto/status.h"

namespace legoai::parallel {
namespace {

using Kind = Action::Kind;

// The forwards of a rank in the order of interleaved 1F1B, and its backwards, which take the chunks from behind. Each round has
// about as many microbatches as there are ranks; rounds differ by one microbatch at most.
std::vector<Action> InRounds(Kind kind, int64_t rank, const Placement& placement, int64_t microbatches) {
  const int64_t rounds = std::max<int64_t>(1, microbatches / placement.ranks), locals = placement.locals();
  const int64_t each = microbatches / rounds, more = microbatches % rounds;
  std::vector<Action> actions;
  actions.reserve(locals * microbatches);
  for (int64_t round = 0, first = 0; round < rounds; ++round) {
    const int64_t end = first + each + (round < more ? 1 : 0);
    for (int64_t i = 0; i < locals; ++i) {
      const int64_t chunk = placement.ChunkOf(rank, kind == Kind::kForward ? i : locals - 1 - i);
      for (int64_t m = first; m < end; ++m) actions.push_back({kind, static_cast<int32_t>(chunk), static_cast<int32_t>(m)});
    }
    first = end;
  }
  return actions;
}

// Chunk by chunk, all microbatches of each.
std::vector<Action> ByChunk(Kind kind, int64_t rank, const Placement& placement, int64_t microbatches) {
  std::vector<Action> actions;
  const int64_t locals = placement.locals();
  for (int64_t i = 0; i < locals; ++i) {
    const int64_t chunk = placement.ChunkOf(rank, kind == Kind::kForward ? i : locals - 1 - i);
    for (int64_t m = 0; m < microbatches; ++m) actions.push_back({kind, static_cast<int32_t>(chunk), static_cast<int32_t>(m)});
  }
  return actions;
}

bool LiesInV(v1::PipelineSchedule kind) { return kind == v1::ZBV_ZERO_BUBBLE || kind == v1::DUALPIPE_V; }

// Forwards that run before forwards and backwards alternate, which they do until forwards run out.
int64_t Ahead(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks, int64_t microbatches, int64_t rank) {
  const int64_t locals = chunks / ranks;
  if (ranks == 1) return 0;
  if (kind == v1::GPIPE || kind == v1::LOOPED_BFS) return locals * microbatches;
  if (locals == 1) return ranks - 1 - rank;
  const int64_t rounds = std::max<int64_t>(1, microbatches / ranks);
  const int64_t largest = (microbatches + rounds - 1) / rounds;
  return (locals - 1) * largest + (kind == v1::INTERLEAVED_ZERO_BUBBLE ? 1 : 2) * (ranks - 1 - rank);
}

std::vector<Action> Alternate(const std::vector<Action>& forwards, const std::vector<Action>& backwards, int64_t ahead) {
  const int64_t count = forwards.size();
  std::vector<Action> actions(forwards.begin(), forwards.begin() + std::min(ahead, count));
  actions.reserve(2 * count);
  for (int64_t i = 0; i < count; ++i) {
    if (i + ahead < count) actions.push_back(forwards[i + ahead]);
    actions.push_back(backwards[i]);
  }
  return actions;
}

bool HasInput(const Action& action) { return action.kind == Kind::kBackward || action.kind == Kind::kInputGradient; }
bool HasWeights(const Action& action) { return action.kind == Kind::kBackward || action.kind == Kind::kWeightGradient; }

// How far a chunk's microbatches are.
struct Done {
  int64_t forwards = 0, inputs = 0, weights = 0;

  // What is wrong with doing this next; empty: nothing.
  std::string Add(const Action& action) {
    const int64_t due = action.kind == Kind::kForward ? forwards : HasInput(action) ? inputs : weights;
    if (action.microbatch != due) return absl::StrCat(" where microbatch ", due, " is due");
    if (HasInput(action) && inputs >= forwards) return " before its forward";
    if (action.kind == Kind::kWeightGradient && weights >= inputs) return " before the gradient of its input";
    if (HasWeights(action) && weights != action.microbatch) return absl::StrCat(" before the weight gradients of ", weights);
    forwards += action.kind == Kind::kForward;
    inputs += HasInput(action);
    weights += HasWeights(action);
    return "";
  }
};

std::optional<ScheduleFault> FindFaultOfRank(const Schedule& schedule, size_t rank, int64_t microbatches) {
  const Placement& placement = schedule.placement;
  const std::vector<Action>& actions = schedule.ranks[rank];
  const bool loops = placement.locals() > 1;
  std::vector<Done> done(placement.locals());
  const auto wrong = [&](size_t action, const auto&... why) {
    return ScheduleFault{absl::StrCat("pipeline rank ", rank, ": ", why...), {{rank, action}}};
  };
  for (size_t i = 0; i < actions.size(); ++i) {
    const int64_t chunk = actions[i].chunk;
    if (chunk < 0 || chunk >= placement.chunks || placement.RankOf(chunk) != static_cast<int64_t>(rank)) {
      return wrong(i, Print(actions[i], loops), " of chunk ", chunk, ", which is not its own");
    }
    const std::string fault = done[placement.LocalOf(chunk)].Add(actions[i]);
    if (!fault.empty()) return wrong(i, Print(actions[i], loops), fault);
  }
  for (int64_t local = 0; local < placement.locals(); ++local) {
    const Done& of = done[local];
    if (of.forwards == microbatches && of.inputs == microbatches && of.weights == microbatches) continue;
    return wrong(actions.size(), of.forwards, " forwards and ", std::min(of.inputs, of.weights), " backwards of chunk ",
                 placement.ChunkOf(rank, local), " for ", microbatches, " microbatches");
  }
  return std::nullopt;
}

absl::Status CheckCounts(int64_t ranks, int64_t microbatches) {
  if (ranks >= 1 && microbatches >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a pipeline needs at least one rank and one microbatch, not ", ranks, " and ", microbatches));
}

absl::Status CheckCounts(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks, int64_t microbatches) {
  RETURN_IF_ERROR(CheckCounts(ranks, microbatches));
  if (!v1::PipelineSchedule_IsValid(kind) || kind == v1::PIPELINE_SCHEDULE_UNSPECIFIED) {
    return absl::InvalidArgumentError(absl::StrCat("unknown pipeline schedule ", static_cast<int>(kind)));
  }
  if (const int64_t least = LeastMicrobatches(kind, ranks); microbatches < least) {
    return absl::InvalidArgumentError(absl::StrCat("pipeline schedule ", v1::PipelineSchedule_Name(kind), " on ", ranks,
                                                   " ranks needs at least ", least, " microbatches, not ", microbatches));
  }
  if (PlacesChunks(kind, ranks, chunks)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("pipeline schedule ", v1::PipelineSchedule_Name(kind), " cannot place ", chunks,
                                                 " chunks on ", ranks, " ranks"));
}

// Runs the ranks against each other, each as far as it gets. Counts are enough because every kind runs in microbatch order.
class Progress {
 public:
  explicit Progress(const Schedule& schedule)
      : schedule_(schedule),
        position_(schedule.ranks.size(), 0),
        free_at_(schedule.ranks.size(), 0),
        forward_ends_(schedule.placement.chunks),
        backward_ends_(schedule.placement.chunks),
        ends_(schedule.ranks.size()) {}

  // False if the ranks block each other.
  bool Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
        while (position_[rank] < schedule_.ranks[rank].size() && Step(rank)) moved = true;
      }
    }
    for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      if (position_[rank] < schedule_.ranks[rank].size()) return false;
    }
    return true;
  }
  const std::vector<size_t>& position() const { return position_; }
  std::vector<std::vector<int64_t>> TakeEnds() { return std::move(ends_); }

 private:
  bool Step(size_t rank) {
    const Action& action = schedule_.ranks[rank][position_[rank]];
    const bool forward = action.kind == Kind::kForward, needs_nothing = action.kind == Kind::kWeightGradient;
    const int64_t source = action.chunk + (forward ? -1 : 1);
    int64_t start = free_at_[rank];
    if (source >= 0 && source < schedule_.placement.chunks && !needs_nothing) {
      const std::vector<int64_t>& arrived = (forward ? forward_ends_ : backward_ends_)[source];
      if (action.microbatch >= static_cast<int64_t>(arrived.size())) return false;
      start = std::max(start, arrived[action.microbatch]);
    }
    free_at_[rank] = start + CostOf(action);
    if (!needs_nothing) (forward ? forward_ends_ : backward_ends_)[action.chunk].push_back(free_at_[rank]);
    ends_[rank].push_back(free_at_[rank]);
    ++position_[rank];
    return true;
  }

  const Schedule& schedule_;
  std::vector<size_t> position_;
  std::vector<int64_t> free_at_;
  std::vector<std::vector<int64_t>> forward_ends_, backward_ends_;  // by chunk, by microbatch
  std::vector<std::vector<int64_t>> ends_;                          // by rank, by action
};

}  // namespace

Placement PlacementOf(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks) {
  return {ranks, chunks, ranks > 1 && LiesInV(kind)};
}

bool Loops(v1::PipelineSchedule kind) { return kind != v1::GPIPE && kind != v1::ONE_F_ONE_B; }

bool PartsBackward(v1::PipelineSchedule kind) { return kind == v1::INTERLEAVED_ZERO_BUBBLE || LiesInV(kind); }

bool PlacesChunks(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks) {
  if (ranks == 1 || !Loops(kind)) return chunks == ranks;
  if (LiesInV(kind)) return chunks == 2 * ranks;
  return chunks % ranks == 0 && chunks >= (kind == v1::INTERLEAVED_ZERO_BUBBLE ? 1 : 2) * ranks;
}

int64_t LeastMicrobatches(v1::PipelineSchedule kind, int64_t ranks) {
  return kind == v1::DUALPIPE_V && ranks > 1 ? 2 * ranks : 1;
}

absl::StatusOr<Schedule> MakeSchedule(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks, int64_t microbatches) {
  RETURN_IF_ERROR(CheckCounts(kind, ranks, chunks, microbatches));
  Schedule schedule{PlacementOf(kind, ranks, chunks), {}};
  const auto order = kind == v1::LOOPED_BFS ? ByChunk : InRounds;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    if (schedule.placement.in_v) {
      schedule.ranks.push_back(InV(kind, ranks, microbatches, rank));
      continue;
    }
    const std::vector<Action> forwards = order(Kind::kForward, rank, schedule.placement, microbatches);
    const std::vector<Action> backwards = order(Kind::kBackward, rank, schedule.placement, microbatches);
    const int64_t ahead = Ahead(kind, ranks, chunks, microbatches, rank);
    const bool parts = ranks > 1 && PartsBackward(kind);
    schedule.ranks.push_back(parts ? InterleavedZeroBubble(forwards, backwards, ahead, rank)
                                   : Alternate(forwards, backwards, ahead));
  }
  return schedule;
}

absl::StatusOr<Schedule> MakeForwardSchedule(const Placement& placement, int64_t microbatches) {
  RETURN_IF_ERROR(CheckCounts(placement.ranks, microbatches));
  Schedule schedule{placement, {}};
  for (int64_t rank = 0; rank < placement.ranks; ++rank) {
    schedule.ranks.push_back(InRounds(Kind::kForward, rank, placement, microbatches));
  }
  return schedule;
}

Schedule BreadthFirst(const Placement& placement, int64_t microbatches, bool parts_backward) {
  if (placement.ranks == 1) return *MakeSchedule(v1::GPIPE, 1, 1, microbatches);
  Schedule schedule{placement, {}};
  for (int64_t rank = 0; rank < placement.ranks; ++rank) {
    std::vector<Action>& actions = schedule.ranks.emplace_back(ByChunk(Kind::kForward, rank, placement, microbatches));
    for (Action action : ByChunk(Kind::kBackward, rank, placement, microbatches)) {
      if (parts_backward) action.kind = Kind::kInputGradient;
      actions.push_back(action);
      if (parts_backward) actions.push_back({Kind::kWeightGradient, action.chunk, action.microbatch});
    }
  }
  return schedule;
}

int64_t MostInFlight(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks, int64_t microbatches, int64_t rank) {
  if (ranks == 1 || !LiesInV(kind)) {
    return std::min(chunks / ranks * microbatches, Ahead(kind, ranks, chunks, microbatches, rank) + 1);
  }
  int64_t now = 0, most = 0;
  for (const Action& action : InV(kind, ranks, microbatches, rank)) {
    now += action.kind == Kind::kForward ? 1 : HasInput(action) ? -1 : 0;
    most = std::max(most, now);
  }
  return most;
}

std::optional<ScheduleFault> FindFault(const Schedule& schedule, int64_t microbatches) {
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    if (auto fault = FindFaultOfRank(schedule, rank, microbatches)) return fault;
  }
  Progress progress(schedule);
  if (progress.Run()) return std::nullopt;
  ScheduleFault fault{"pipeline ranks wait for each other: ", {}};
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const size_t at = progress.position()[rank];
    if (at == schedule.ranks[rank].size()) continue;
    absl::StrAppend(&fault.why, fault.places.empty() ? "" : ", ", "rank ", rank, " at ",
                    Print(schedule.ranks[rank][at], schedule.placement.locals() > 1));
    fault.places.push_back({rank, at});
  }
  return fault;
}

absl::Status CheckSchedule(const Schedule& schedule, int64_t microbatches) {
  const auto fault = FindFault(schedule, microbatches);
  return fault ? absl::FailedPreconditionError(fault->why) : absl::OkStatus();
}

int64_t MicrobatchesOf(const Schedule& schedule) {
  int64_t most = 0;
  for (const Action& action : schedule.ranks[0]) most = std::max<int64_t>(most, action.microbatch + 1);
  return most;
}

bool PartsBackward(const Schedule& schedule) {
  return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [](const std::vector<Action>& actions) {
    return std::any_of(actions.begin(), actions.end(), [](const Action& a) { return a.kind == Kind::kInputGradient; });
  });
}

int64_t CostOf(const Action& action) { return action.kind == Kind::kBackward ? 2 : 1; }

std::vector<std::vector<int64_t>> CompletionTimes(const Schedule& schedule) {
  Progress progress(schedule);
  progress.Run();
  return progress.TakeEnds();
}

std::string Print(const Action& action, bool with_chunk) {
  static constexpr const char* kNames[] = {"F", "B", "I", "W"};
  const char* const kind = kNames[static_cast<int>(action.kind)];
  return with_chunk ? absl::StrCat(action.chunk, kind, action.microbatch) : absl::StrCat(kind, action.microbatch);
}

std::string Print(const std::vector<Action>& actions) {
  const bool loops = std::any_of(actions.begin(), actions.end(), [&](const Action& a) { return a.chunk != actions[0].chunk; });
  return absl::StrJoin(actions, " ", [&](std::string* out, const Action& action) { absl::StrAppend(out, Print(action, loops)); });
}

}  // namespace legoai::parallel
