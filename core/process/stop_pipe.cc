#include "core/process/stop_pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

namespace legoai::launch {

StopPipe::StopPipe() {
  if (pipe2(fds_, O_CLOEXEC | O_NONBLOCK) != 0) fds_[0] = fds_[1] = -1;
}

StopPipe::~StopPipe() {
  for (int fd : fds_) {
    if (fd >= 0) close(fd);
  }
}

void StopPipe::Request(bool save) { Write(save ? 's' : 'd'); }
void StopPipe::Kill() { Write('k'); }
void StopPipe::Wake() { Write('w'); }

void StopPipe::Write(char byte) { [[maybe_unused]] const ssize_t written = write(fds_[1], &byte, 1); }

bool StopPipe::Pending() const {
  pollfd waiting = {fds_[0], POLLIN, 0};
  return poll(&waiting, 1, 0) > 0;
}

void StopPipe::Await() const {
  pollfd waiting = {fds_[0], POLLIN, 0};
  poll(&waiting, 1, 1000);
}

std::optional<Stop> StopPipe::Take() {
  char bytes[64];
  const ssize_t got = read(fds_[0], bytes, sizeof(bytes));
  const auto has = [&](char byte) { return got > 0 && std::find(bytes, bytes + got, byte) != bytes + got; };
  if (has('k')) return Stop::kKill;
  if (has('d')) return Stop::kDiscard;
  if (has('s')) return Stop::kSave;
  return std::nullopt;
}

}  // namespace legoai::launch
