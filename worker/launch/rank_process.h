// A supervisor's state of one of its ranks: the process, its socket, and what was last heard of it. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/process/framing.h"
#include "proto/legoai/v1/gang.pb.h"
#include "proto/legoai/v1/launch.pb.h"

namespace legoai::launch {

class RankProcess {
 public:
  RankProcess(int64_t rank, pid_t pid, int socket, absl::Duration now);
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
  // Error: the message cannot be sent to a rank that has not closed its socket.
  absl::Status Send(const v1::ToTrainer& message);

  absl::Duration last_heard;             // on the supervisor's clock
  int64_t step = 0;                      // of its latest progress
  bool asked = false, answered = false;  // for its flight record
  std::optional<v1::Exit> exit;
  std::optional<int> wait_status;
  v1::Blame blame = v1::BLAME_NONE;  // the greatest of its faults that were reported

 private:
  const int64_t rank_;
  const pid_t pid_;
  int socket_;
  std::unique_ptr<MessageReader> reader_;
};

}  // namespace legoai::launch
