// Pipeline schedules: the order in which each rank runs the forward and backward passes of its chunks, as plain data. Pure
// functions.
//
// A chunk, or virtual stage, is a run of the model's layers; chunk c lies on rank c mod ranks of the group "pp" (Narayanan et al.
// 2021, section 2.2), so a microbatch that goes through the chunks goes around the ranks; or, two chunks a rank, in a V, down the
// ranks and up again.
//   GPipe (Huang et al. 2019): one chunk a rank; all forwards, then all backwards; keeps every microbatch's activations.
//   1F1B (Narayanan et al. 2019): one chunk a rank; stage s starts with stages - 1 - s forwards, then alternates one forward and
//     one backward, so it never keeps more than stages - s microbatches.
//   Interleaved 1F1B (Narayanan et al. 2021): several chunks a rank, which take turns by rounds of about as many microbatches as
//     there are ranks; the bubble shrinks by the number of chunks a rank.
//   Looped BFS (Lamy-Poirier 2022): GPipe with several chunks a rank: all microbatches of a chunk, then of the next one.
//   Interleaved zero bubble, ZBV, DualPipeV: core/schedule/zero_bubble.h. Trainer and simulator do not run those in a V yet.
#pragma once

#include <cstdint>
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

struct Schedule {
  int64_t chunks = 1;                      // of all ranks together: a multiple of theirs
  std::vector<std::vector<Action>> ranks;  // what each rank does, in order
  bool in_v = false;                       // chunk c < p lies on rank c, the others on rank 2 p - 1 - c

  int64_t RankOf(int64_t chunk) const {
    const auto p = static_cast<int64_t>(ranks.size());
    return in_v && chunk >= p ? 2 * p - 1 - chunk : chunk % p;
  }
};

// Whether trainer and simulator run it.
bool IsSupported(v1::PipelineSchedule kind);

// Whether the schedule gives a rank several chunks: of interleaved zero bubble one or more.
bool Loops(v1::PipelineSchedule kind);

// Whether the gradients of weights come apart from those of inputs.
bool PartsBackward(v1::PipelineSchedule kind);

// Whether the schedule can place so many chunks: one a rank, or several of those that loop, two where they lie in a V.
bool PlacesChunks(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks);

// What the schedule needs: DualPipeV two for each rank.
int64_t LeastMicrobatches(v1::PipelineSchedule kind, int64_t ranks);

// With one rank every schedule is F0 B0 F1 B1 ...: gradient accumulation; it has one chunk.
// Errors: InvalidArgument for a schedule that is not known, counts below 1, chunks that the schedule cannot place, or fewer
// microbatches than it needs.
absl::StatusOr<Schedule> MakeSchedule(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks, int64_t microbatches);

// Forwards alone, in the order of interleaved 1F1B: evaluation.
absl::StatusOr<Schedule> MakeForwardSchedule(int64_t ranks, int64_t chunks, int64_t microbatches);

// How many forwards, chunk by chunk, `rank` has begun before its first backward is done: the most of which it keeps activations.
int64_t MostInFlight(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks, int64_t microbatches, int64_t rank);

// Holds for every training schedule: each rank runs each microbatch of its chunks forward once and computes either gradient once,
// in microbatch order of each, and the dependencies across ranks have no cycle. FailedPrecondition says what is wrong, and where
// each rank stands if they block each other.
absl::Status CheckSchedule(const Schedule& schedule, int64_t microbatches);

// A forward takes 1, a backward 2, each of its two gradients 1.
int64_t CostOf(const Action& action);

// By rank and action: when it is done by CostOf, if messages take no time. `schedule` is sound.
std::vector<std::vector<int64_t>> CompletionTimes(const Schedule& schedule);

// "F0", "B0", of the gradients apart "I0" and "W0"; with the chunk before it "2F0".
std::string Print(const Action& action, bool with_chunk);
// "F0 F1 B0 B1"; with several chunks a rank "0F0 2F0 2B0 0B0", the chunk first.
std::string Print(const std::vector<Action>& actions);

}  // namespace legoai::parallel
