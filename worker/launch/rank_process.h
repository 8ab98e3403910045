// What the launcher knows of one rank: its process, its socket, what it last said, and how it ended. Torch-free.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/legoai/v1/launch.pb.h"
#include "worker/launch/framing.h"

namespace legoai::launch {

// How near a failure is to the root: a rank that lost its peer, or waited for it in vain, is never the cause where another is.
enum class Blame { kNone = 0, kConsequence = 1, kUnresponsive = 2, kCause = 3 };

class RankProcess {
 public:
  RankProcess(int64_t rank, pid_t pid, int socket);
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  int64_t rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  int socket() const { return socket_; }  // -1 once the rank has closed it
  MessageReader& reader() { return *reader_; }
  bool reaped() const { return wait_status.has_value(); }
  // Ended as it should: Exit with FINISHED or STOPPED, then exit code 0.
  bool EndedWell() const;
  void CloseSocket();
  // A message it cannot take is its failure.
  void Send(const v1::ToTrainer& message);
  void Fail(Blame blame, const absl::Status& status);  // the first of the greatest blame is kept
  // Looks at how the process ended. `stopping`: the launcher had begun to stop all ranks.
  void Ended(int status, bool stopping);
  // "rank 1 (last heard of in step 12)"
  std::string Name() const;

  absl::Time last_heard;
  v1::Progress last_progress;
  bool asked = false, answered = false;  // for its flight record
  std::optional<v1::CheckpointReady> ready;
  std::optional<v1::Exit> exit;
  std::optional<int> wait_status;
  Blame blame = Blame::kNone;
  absl::Status failure;
  absl::Time failed_at = absl::InfiniteFuture();

 private:
  const int64_t rank_;
  const pid_t pid_;
  int socket_;
  std::unique_ptr<MessageReader> reader_;
};

}  // namespace legoai::launch
