#include "worker/launch/stop_pipe.h"

#include <fcntl.h>
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

void StopPipe::Request(bool save) {
  const char byte = save ? 's' : 'd';
  [[maybe_unused]] const ssize_t written = write(fds_[1], &byte, 1);
}

std::optional<bool> StopPipe::Take() {
  char bytes[64];
  const ssize_t got = read(fds_[0], bytes, sizeof(bytes));
  if (got <= 0) return std::nullopt;
  return std::find(bytes, bytes + got, 'd') == bytes + got;
}

}  // namespace legoai::launch
