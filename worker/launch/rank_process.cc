#include "worker/launch/rank_process.h"

#include <sys/wait.h>
#include <unistd.h>

namespace legoai::launch {

RankProcess::RankProcess(int64_t rank, pid_t pid, int socket, absl::Duration now)
    : last_heard(now), rank_(rank), pid_(pid), socket_(socket), reader_(std::make_unique<MessageReader>(socket)) {}

RankProcess::~RankProcess() { CloseSocket(); }

bool RankProcess::EndedWell() const {
  return exit && exit->cause() != v1::Exit::FAILED && wait_status && WIFEXITED(*wait_status) && WEXITSTATUS(*wait_status) == 0;
}

void RankProcess::CloseSocket() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

absl::Status RankProcess::Send(const v1::ToTrainer& message) {
  if (socket_ < 0) return absl::OkStatus();
  const absl::Status sent = WriteMessage(socket_, message);
  // A rank that is gone is found by its end of file, with a better reason.
  return absl::IsUnavailable(sent) ? absl::OkStatus() : sent;
}

}  // namespace legoai::launch
