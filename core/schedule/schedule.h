// Pipeline schedules: the order in which each rank runs the forward and backward passes of its chunks, as plain data. Pure
// functions.
//
// A chunk, or virtual stage, is a run of the model's layers. Placement says which rank of the group "pp" has it: chunks go round
// the ranks (Narayanan et al. 2021, section 2.2), or lie in a V, down the ranks and up again (Qi et al. 2024, section 6).
//   GPipe (Huang et al. 2019): one chunk a rank; all forwards, then all backwards; keeps every microbatch's activations.
//   1F1B (Narayanan et al. 2019): one chunk a rank; stage s starts with stages - 1 - s forwards, then alternates one forward and
//     one backward, so it never keeps more than stages - s microbatches.
//   Interleaved 1F1B (Narayanan et al. 2021): several chunks a rank, which take turns by rounds of about as many microbatches as
//     there are ranks; the bubble shrinks by the number of chunks a rank.
//   Looped BFS (Lamy-Poirier 2022): GPipe with several chunks a rank: all microbatches of a chunk, then of the next one.
//   Interleaved zero bubble, ZBV, DualPipeV: core/schedule/zero_bubble.h.
//   Any other: core/schedule/schedule_csv.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::parallel {

struct Action {
  enum class Kind : uint8_t { kForward, kBackward, kInputGradient, kWeightGradient };  // kBackward: both gradients
  Kind kind = Kind::kForward;
  int32_t chunk = 0;
  int32_t microbatch = 0;
  bool operator==(const Action&) const = default;
};

// Which rank has which chunk: the only such map for trainer, capture and closed forms.
struct Placement {
  int64_t ranks = 1;
  int64_t chunks = 1;  // of all ranks together: a multiple of theirs
  bool in_v = false;   // the first `ranks` chunks go down the ranks, the next ones up again, and so on; otherwise they go round

  int64_t locals() const { return chunks / ranks; }  // of a rank
  int64_t RankOf(int64_t chunk) const {
    const int64_t place = chunk % ranks;
    return in_v && LocalOf(chunk) % 2 == 1 ? ranks - 1 - place : place;
  }
  // Which of its rank's chunks it is, in the order of the model.
  int64_t LocalOf(int64_t chunk) const { return chunk / ranks; }
  int64_t ChunkOf(int64_t rank, int64_t local) const {
    return local * ranks + (in_v && local % 2 == 1 ? ranks - 1 - rank : rank);
  }
  int64_t RankOfLast() const { return RankOf(chunks - 1); }  // the first chunk is rank 0's
  // Whether both exist, on different ranks, so that messages go between them.
  bool Talk(int64_t chunk, int64_t other) const {
    return chunk >= 0 && other >= 0 && chunk < chunks && other < chunks && RankOf(chunk) != RankOf(other);
  }
  // Whether both exist, on the same rank, so that tensors are handed over directly.
  bool Meet(int64_t chunk, int64_t other) const {
    return chunk >= 0 && other >= 0 && chunk < chunks && other < chunks && RankOf(chunk) == RankOf(other);
  }
  bool operator==(const Placement&) const = default;
};

struct Schedule {
  Placement placement;
  std::vector<std::vector<Action>> ranks;  // what each rank does, in order
};

// Where the chunks of a schedule lie, whether or not it can place this many.
Placement PlacementOf(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks);

// Whether the schedule gives a rank several chunks; interleaved zero bubble gives one or more.
bool Loops(v1::PipelineSchedule kind);

// Whether it computes gradients of weights separately from those of inputs.
bool PartsBackward(v1::PipelineSchedule kind);

// Whether the schedule can place this many chunks: one per rank, several if it loops, two in a V.
bool PlacesChunks(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks);

// The fewest microbatches of the schedule: two per rank for DualPipeV.
int64_t LeastMicrobatches(v1::PipelineSchedule kind, int64_t ranks);

// With one rank every schedule is F0 B0 F1 B1 ...: gradient accumulation; it has one chunk.
// Errors: InvalidArgument for a schedule that is not known, counts below 1, chunks that the schedule cannot place, or fewer
// microbatches than it needs.
absl::StatusOr<Schedule> MakeSchedule(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks, int64_t microbatches);

// Forwards only, in the order of interleaved 1F1B: for evaluation. Errors: InvalidArgument for counts below 1.
absl::StatusOr<Schedule> MakeForwardSchedule(const Placement& placement, int64_t microbatches);

// Looped BFS for any placement, with backwards whole or split. Counts are at least 1. With one rank as MakeSchedule.
Schedule BreadthFirst(const Placement& placement, int64_t microbatches, bool parts_backward);

// The most chunk forwards whose activations `rank` holds at once: started, and the input gradient not done.
int64_t MostInFlight(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks, int64_t microbatches, int64_t rank);

// What is wrong with a schedule, and at which actions of which ranks; one past the last where something is missing.
struct ScheduleFault {
  struct Place {
    size_t rank = 0, action = 0;
  };
  std::string why;  // "pipeline rank 1: B0 before its forward"
  std::vector<Place> places;
};

// Nothing if the training schedule is sound: each rank runs each microbatch of its chunks forward once and computes each gradient
// once, in microbatch order, and the ranks do not deadlock.
std::optional<ScheduleFault> FindFault(const Schedule& schedule, int64_t microbatches);
// The same; FailedPrecondition says why.
absl::Status CheckSchedule(const Schedule& schedule, int64_t microbatches);

// The number of microbatches of a sound schedule.
int64_t MicrobatchesOf(const Schedule& schedule);
// Whether it computes gradients of weights separately from those of inputs.
bool PartsBackward(const Schedule& schedule);

// A forward takes 1, a backward 2, each of its two gradients 1.
int64_t CostOf(const Action& action);

// By rank and action: when it is done by CostOf, if messages take no time. `schedule` is sound.
std::vector<std::vector<int64_t>> CompletionTimes(const Schedule& schedule);

// "F0", "B0", "I0" and "W0" for separate gradients; with the chunk in front "2F0".
std::string Print(const Action& action, bool with_chunk);
// "F0 F1 B0 B1"; with several chunks a rank "0F0 2F0 2B0 0B0", the chunk first.
std::string Print(const std::vector<Action>& actions);

}  // namespace legoai::parallel
