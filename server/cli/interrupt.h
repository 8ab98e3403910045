// Ctrl-C and SIGTERM while a command works.
#pragma once

#include <string>

#include "core/process/child_process.h"

namespace legoai::cli {

// While it lives, the first signal of SIGINT, SIGTERM or SIGHUP asks for an orderly stop, and the second for one at once. One
// that was ignored stays ignored (nohup). One at a time in a process.
class InterruptGuard {
 public:
  // Whether a terminal or pipe that is gone ends the process (SIGPIPE). It must not where work would be lost; who only looks on,
  // as in `lego watch JOB | head`, has nothing left to do.
  enum class ClosedOutput { kIsIgnored, kEndsProcess };

  explicit InterruptGuard(ClosedOutput closed_output = ClosedOutput::kIsIgnored);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool interrupted() const;
  // What the first signal and the later ones are answered with from now on, at once and as a line on standard error: whoever
  // presses Ctrl-C must not wonder whether it was heard. Nothing before the first call, which is the one that counts.
  void Announce(const std::string& first, const std::string& later);
  // The first signal requests a stop that saves, the second one that does not.
  launch::StopPipe* stop_pipe() { return &stop_; }

 private:
  std::string first_answer_, later_answer_;  // whole lines; not changed once a handler may see them
  launch::StopPipe stop_;
};

}  // namespace legoai::cli
