// The launcher's list of checkpoints that all ranks have on disk and whose verdict is not known yet. Not thread-safe.
//
// Only the commit itself needs the server, which may be away. So training continues while it is asked:
//
//   rank                        launcher                            server, through LaunchCallbacks::commit
//   parts and manifest.pb.tmp
//   are on the disk
//   CheckpointReady(N), Arrived ->
//                               all ranks: N is pending, asked  ->
//                            <- Met, at once or when there is room
//   trains on                                                   <-  verdict on N
//                            <- Commit(N) or Deny(N)
//   rank 0 renames manifest.pb.tmp, or removes step-N
//
// - Verdicts are passed on in order of steps.
// - Only this class decides whether the ranks may continue: the launcher withholds the answer to the meeting that every rank
//   enters after writing its part. So no rank continues while another waits, however late a verdict reaches each of them. While a
//   meeting is held, nothing more can become pending.
// - A checkpoint is valid once manifest.pb is in place, which is after the server's Commit. Until then it is neither counted nor
//   removed when the latest few are kept, and never resumed from.
// - At the end the ranks wait for all verdicts (TrainerLink::AwaitVerdicts), so a successful attempt has none pending.
// - Ranks that die leave pending checkpoints on disk, intact. The caller may still wait for their verdicts: the next attempt
//   finds what the server has committed prepared, and completes the commit.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace legoai::launch {

// What the ranks wait for, for users.
std::string WaitsForVerdict(int64_t step);

class PendingCommits {
 public:
  // As LaunchCallbacks::commit.
  using Decide = std::function<std::optional<absl::Status>(int64_t step, const std::vector<std::string>& digests)>;
  struct Verdict {
    int64_t step = 0;
    absl::Status status;  // OK: commit
  };

  // `most`: how many may be pending while the ranks train. Empty `decide`: each is committed at once.
  PendingCommits(int64_t most, Decide decide);

  // Steps must increase.
  void Add(int64_t step, std::vector<std::string> digests);
  // Asks for each one, in order; returns the verdicts that may be passed on now.
  std::vector<Verdict> Ask();
  // The step whose verdict the ranks must wait for; nothing: they may continue.
  std::optional<int64_t> WaitsFor() const;

 private:
  struct Question {
    int64_t step = 0;
    std::vector<std::string> digests;
    std::optional<absl::Status> verdict;
  };

  const size_t most_;
  const Decide decide_;
  std::deque<Question> questions_;  // in order of steps
};

}  // namespace legoai::launch
