// Checkpoints that all ranks have on the disk and whose verdict is not known yet, as the launcher keeps them. Not thread-safe.
//
// Only a commit's fence needs the server, and the server may be away. So training goes on while it is asked:
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
// - Verdicts are passed on in order of steps, none before its predecessor's.
// - Whether the ranks may go on is decided here and nowhere else: the launcher holds back the answer to the meeting that every
//   rank comes to after its part is written. So no rank goes on while another waits, however late a verdict reaches whom. While a
//   meeting is held nothing more can become pending.
// - A checkpoint counts for others once manifest.pb is in its place, which is after the server's Commit. Until then it is neither
//   counted nor removed by those who keep the latest few, and never resumed from.
// - At the end the ranks wait for all verdicts (TrainerLink::AwaitVerdicts), so an attempt that has ended well has none pending.
// - Ranks that die leave what is pending on the disk, whole. The one that asks may wait for its verdicts all the same: what the
//   server commits, the next attempt finds prepared and puts in its place.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace legoai::launch {

// What the ranks wait for, told to users.
std::string WaitsForVerdict(int64_t step);

class PendingCommits {
 public:
  // As LaunchCallbacks::commit.
  using Decide = std::function<std::optional<absl::Status>(int64_t step, const std::vector<std::string>& digests)>;
  struct Verdict {
    int64_t step = 0;
    absl::Status status;  // OK: commit
  };

  // `most`: how many may be pending while the ranks train. Empty `decide`: all are committed at once.
  PendingCommits(int64_t most, Decide decide);

  // `step` is later than all before it.
  void Add(int64_t step, std::vector<std::string> digests);
  // Asks for each of them, in order; returns the verdicts that may be passed on now.
  std::vector<Verdict> Ask();
  // The step whose verdict the ranks have to wait for; nothing: they may go on.
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
