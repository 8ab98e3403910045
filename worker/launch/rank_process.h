// The launcher's state of one rank: its process, its socket, its last messages, and how it ended.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/process/framing.h"
#include "proto/legoai/v1/flight_record.pb.h"
#include "proto/legoai/v1/launch.pb.h"

namespace legoai::launch {

// How close a failure is to the root cause: a rank that lost its peer or timed out waiting for it is never the cause if another
// rank can be.
enum class Blame { kNone = 0, kConsequence = 1, kHung = 2, kUnresponsive = 3, kCause = 4 };

class RankProcess {
 public:
  // `failures` counts the job's failures and is not owned.
  RankProcess(int64_t rank, pid_t pid, int socket, absl::Duration now, int64_t* failures);
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  int64_t rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  int socket() const { return socket_; }  // -1 once the rank has closed it
  MessageReader& reader() { return *reader_; }
  bool reaped() const { return wait_status.has_value(); }
  // Ended normally: Exit with FINISHED or STOPPED, then exit code 0.
  bool EndedWell() const;
  void CloseSocket();
  // If the message cannot be sent, the rank has failed.
  void Send(const v1::ToTrainer& message);
  void Fail(Blame blame, const absl::Status& status);  // keeps the first failure with the greatest blame
  // Evaluates how the process ended. `stopping`: the launcher was already stopping all ranks.
  void Ended(int status, bool stopping);
  // "rank 1 (train, step 12)"
  std::string Name() const;
  // Its current condition, for its flight record.
  v1::RankCondition Condition(absl::Duration now) const;

  absl::Duration last_heard;  // on the launcher's clock
  v1::Progress last_progress;
  bool asked = false, answered = false;  // for its flight record
  std::string waits_in;                  // its answer; empty: no communication
  int64_t meeting = 0;                   // the last it entered
  std::optional<v1::CheckpointReady> ready;
  std::optional<v1::Exit> exit;
  std::optional<int> wait_status;
  Blame blame = Blame::kNone;
  absl::Status failure;   // prefixed with its name
  int64_t failed_as = 0;  // 1: the first rank of the job that failed

 private:
  const int64_t rank_;
  const pid_t pid_;
  int socket_;
  int64_t* const failures_;
  std::string reason_;  // of the failure, without the prefix
  std::unique_ptr<MessageReader> reader_;
};

}  // namespace legoai::launch
