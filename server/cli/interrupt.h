// Handles Ctrl-C and SIGTERM while a command works.
#pragma once

#include <string>

#include "core/process/child_process.h"

namespace legoai::cli {

// During its lifetime, the first SIGINT, SIGTERM or SIGHUP requests an orderly stop, and the second an immediate one. A signal
// that was ignored stays ignored (nohup). One object at a time in a process.
class InterruptGuard {
 public:
  // Whether a closed terminal or pipe ends the process (SIGPIPE). It must not if work would be lost; a command that only watches,
  // as in `lego watch JOB | head`, has nothing left to do.
  enum class ClosedOutput { kIsIgnored, kEndsProcess };

  explicit InterruptGuard(ClosedOutput closed_output = ClosedOutput::kIsIgnored);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool interrupted() const;
  // Lines to print on standard error immediately after the first and later signals, so that the user knows that Ctrl-C was
  // noticed. Only the first call has an effect; before it nothing is printed.
  void Announce(const std::string& first, const std::string& later);
  // The first signal requests a stop that saves, the second one that does not.
  launch::StopPipe* stop_pipe() { return &stop_; }

 private:
  std::string first_answer_, later_answer_;  // whole lines; not changed once a handler may see them
  launch::StopPipe stop_;
};

}  // namespace legoai::cli
