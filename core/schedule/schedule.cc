#include "core/schedule/schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/status.h"

namespace legoai::parallel {
namespace {

using Kind = Action::Kind;

// The forwards of a rank in the order of interleaved 1F1B, and its backwards, which take the chunks from behind. Each round has
// about as many microbatches as there are ranks; rounds differ by one microbatch at most.
std::vector<Action> InRounds(Kind kind, int64_t rank, int64_t ranks, int64_t chunks, int64_t microbatches) {
  const int64_t rounds = std::max<int64_t>(1, microbatches / ranks), locals = chunks / ranks;
  const int64_t each = microbatches / rounds, more = microbatches % rounds;
  std::vector<Action> actions;
  actions.reserve(locals * microbatches);
  for (int64_t round = 0, first = 0; round < rounds; ++round) {
    const int64_t end = first + each + (round < more ? 1 : 0);
    for (int64_t i = 0; i < locals; ++i) {
      const int64_t chunk = rank + ranks * (kind == Kind::kForward ? i : locals - 1 - i);
      for (int64_t m = first; m < end; ++m) actions.push_back({kind, static_cast<int32_t>(chunk), static_cast<int32_t>(m)});
    }
    first = end;
  }
  return actions;
}

// Chunk by chunk, all microbatches of each.
std::vector<Action> ByChunk(Kind kind, int64_t rank, int64_t ranks, int64_t chunks, int64_t microbatches) {
  std::vector<Action> actions;
  const int64_t locals = chunks / ranks;
  for (int64_t i = 0; i < locals; ++i) {
    const int64_t chunk = rank + ranks * (kind == Kind::kForward ? i : locals - 1 - i);
    for (int64_t m = 0; m < microbatches; ++m) actions.push_back({kind, static_cast<int32_t>(chunk), static_cast<int32_t>(m)});
  }
  return actions;
}

// Forwards that run before forwards and backwards alternate, which they do until forwards run out.
int64_t Ahead(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks, int64_t microbatches, int64_t rank) {
  const int64_t locals = chunks / ranks;
  if (ranks == 1) return 0;
  if (kind == v1::GPIPE || kind == v1::LOOPED_BFS) return locals * microbatches;
  if (locals == 1) return ranks - 1 - rank;
  const int64_t rounds = std::max<int64_t>(1, microbatches / ranks);
  const int64_t largest = (microbatches + rounds - 1) / rounds;
  return (locals - 1) * largest + 2 * (ranks - 1 - rank);
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

absl::Status CheckOneRank(const Schedule& schedule, size_t rank, int64_t microbatches) {
  const bool loops = schedule.chunks > static_cast<int64_t>(schedule.ranks.size());
  std::vector<int64_t> forwards(schedule.chunks, 0), backwards(schedule.chunks, 0);
  const auto wrong = [&](const auto&... why) {
    return absl::FailedPreconditionError(absl::StrCat("pipeline rank ", rank, ": ", why...));
  };
  for (const Action& action : schedule.ranks[rank]) {
    if (action.chunk < 0 || action.chunk >= schedule.chunks || schedule.RankOf(action.chunk) != static_cast<int64_t>(rank)) {
      return wrong(Print(action, loops), " of chunk ", action.chunk, ", which is not its own");
    }
    int64_t& next = (action.kind == Kind::kForward ? forwards : backwards)[action.chunk];
    if (action.microbatch != next) return wrong(Print(action, loops), " where microbatch ", next, " is due");
    if (action.kind == Kind::kBackward && next >= forwards[action.chunk])
      return wrong(Print(action, loops), " before its forward");
    ++next;
  }
  for (int64_t chunk = rank; chunk < schedule.chunks; chunk += schedule.ranks.size()) {
    if (forwards[chunk] == microbatches && backwards[chunk] == microbatches) continue;
    return wrong(forwards[chunk], " forwards and ", backwards[chunk], " backwards of chunk ", chunk, " for ", microbatches,
                 " microbatches");
  }
  return absl::OkStatus();
}

absl::Status CheckCounts(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks, int64_t microbatches) {
  if (ranks < 1 || microbatches < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a pipeline needs at least one rank and one microbatch, not ", ranks, " and ", microbatches));
  }
  if (!v1::PipelineSchedule_IsValid(kind) || kind == v1::PIPELINE_SCHEDULE_UNSPECIFIED) {
    return absl::InvalidArgumentError(absl::StrCat("unknown pipeline schedule ", static_cast<int>(kind)));
  }
  if (PlacesChunks(kind, ranks, chunks)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("pipeline schedule ", v1::PipelineSchedule_Name(kind), " cannot place ", chunks,
                                                 " chunks on ", ranks, " ranks"));
}

// Runs the ranks against each other, each as far as it gets. Counts are enough because both kinds run in microbatch order.
class Progress {
 public:
  explicit Progress(const Schedule& schedule)
      : schedule_(schedule),
        position_(schedule.ranks.size(), 0),
        free_at_(schedule.ranks.size(), 0),
        forward_ends_(schedule.chunks),
        backward_ends_(schedule.chunks),
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
    const bool forward = action.kind == Kind::kForward;
    const int64_t source = action.chunk + (forward ? -1 : 1);
    int64_t start = free_at_[rank];
    if (source >= 0 && source < schedule_.chunks) {
      const std::vector<int64_t>& arrived = (forward ? forward_ends_ : backward_ends_)[source];
      if (action.microbatch >= static_cast<int64_t>(arrived.size())) return false;
      start = std::max(start, arrived[action.microbatch]);
    }
    free_at_[rank] = start + CostOf(action);
    (forward ? forward_ends_ : backward_ends_)[action.chunk].push_back(free_at_[rank]);
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

bool Loops(v1::PipelineSchedule kind) { return kind == v1::INTERLEAVED_1F1B || kind == v1::LOOPED_BFS; }

bool PlacesChunks(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks) {
  return ranks > 1 && Loops(kind) ? chunks % ranks == 0 && chunks >= 2 * ranks : chunks == ranks;
}

absl::StatusOr<Schedule> MakeSchedule(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks, int64_t microbatches) {
  RETURN_IF_ERROR(CheckCounts(kind, ranks, chunks, microbatches));
  Schedule schedule{chunks, {}};
  const auto order = kind == v1::LOOPED_BFS ? ByChunk : InRounds;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    schedule.ranks.push_back(Alternate(order(Kind::kForward, rank, ranks, chunks, microbatches),
                                       order(Kind::kBackward, rank, ranks, chunks, microbatches),
                                       Ahead(kind, ranks, chunks, microbatches, rank)));
  }
  return schedule;
}

absl::StatusOr<Schedule> MakeForwardSchedule(int64_t ranks, int64_t chunks, int64_t microbatches) {
  RETURN_IF_ERROR(CheckCounts(chunks > ranks ? v1::INTERLEAVED_1F1B : v1::ONE_F_ONE_B, ranks, chunks, microbatches));
  Schedule schedule{chunks, {}};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    schedule.ranks.push_back(InRounds(Kind::kForward, rank, ranks, chunks, microbatches));
  }
  return schedule;
}

int64_t MostInFlight(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks, int64_t microbatches, int64_t rank) {
  return std::min(chunks / ranks * microbatches, Ahead(kind, ranks, chunks, microbatches, rank) + 1);
}

absl::Status CheckSchedule(const Schedule& schedule, int64_t microbatches) {
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) RETURN_IF_ERROR(CheckOneRank(schedule, rank, microbatches));
  Progress progress(schedule);
  if (progress.Run()) return absl::OkStatus();
  const bool loops = schedule.chunks > static_cast<int64_t>(schedule.ranks.size());
  std::string blocked;
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const size_t at = progress.position()[rank];
    if (at == schedule.ranks[rank].size()) continue;
    absl::StrAppend(&blocked, blocked.empty() ? "" : ", ", "rank ", rank, " at ", Print(schedule.ranks[rank][at], loops));
  }
  return absl::FailedPreconditionError(absl::StrCat("pipeline ranks wait for each other: ", blocked));
}

int64_t CostOf(const Action& action) { return action.kind == Kind::kForward ? 1 : 2; }

std::vector<std::vector<int64_t>> CompletionTimes(const Schedule& schedule) {
  Progress progress(schedule);
  progress.Run();
  return progress.TakeEnds();
}

std::string Print(const Action& action, bool with_chunk) {
  const char* const kind = action.kind == Kind::kForward ? "F" : "B";
  return with_chunk ? absl::StrCat(action.chunk, kind, action.microbatch) : absl::StrCat(kind, action.microbatch);
}

std::string Print(const std::vector<Action>& actions) {
  const bool loops = std::any_of(actions.begin(), actions.end(), [&](const Action& a) { return a.chunk != actions[0].chunk; });
  return absl::StrJoin(actions, " ", [&](std::string* out, const Action& action) { absl::StrAppend(out, Print(action, loops)); });
}

}  // namespace legoai::parallel
