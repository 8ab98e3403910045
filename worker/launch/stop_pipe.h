// How a signal handler, or another thread, tells a launcher to stop. Torch-free.
#pragma once

#include <optional>

namespace legoai::launch {

class StopPipe {
 public:
  StopPipe();
  ~StopPipe();
  StopPipe(const StopPipe&) = delete;
  StopPipe& operator=(const StopPipe&) = delete;

  // Stop at the next step boundary; `save`: after a checkpoint. Async-signal-safe, thread-safe.
  void Request(bool save);

  // For poll: readable when there is a request.
  int fd() const { return fds_[0]; }
  // Takes all requests there are: whether to save, which one that does not overrules. Nothing if there is none.
  std::optional<bool> Take();

 private:
  int fds_[2] = {-1, -1};
};

}  // namespace legoai::launch
