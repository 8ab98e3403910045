// How a signal handler, or another thread, tells a launcher to stop, or to look at something.
#pragma once

#include <optional>

namespace legoai::launch {

// Ways to stop, from the mildest: after a checkpoint; at the next step; all ranks are killed at once.
enum class Stop { kSave, kDiscard, kKill };

class StopPipe {
 public:
  StopPipe();
  ~StopPipe();
  StopPipe(const StopPipe&) = delete;
  StopPipe& operator=(const StopPipe&) = delete;

  // Stop at the next step boundary; `save`: after a checkpoint. Async-signal-safe, thread-safe.
  void Request(bool save);
  // Kill all ranks at once: whoever asked for them has lost the right to. As safe.
  void Kill();
  // Look again: an answer that the launcher waits for is there (LaunchCallbacks::commit). As safe.
  void Wake();

  // Whether something was asked that nobody has taken yet.
  bool Pending() const;
  // Waits until there is a request, or it is woken; a second at the most.
  void Await() const;
  // For poll: readable when there is a request, or it was woken.
  int fd() const { return fds_[0]; }
  // Takes all requests there are, and gives the sharpest. Nothing if there is none.
  std::optional<Stop> Take();

 private:
  void Write(char byte);
  int fds_[2] = {-1, -1};
};

}  // namespace legoai::launch
