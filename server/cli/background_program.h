// A program that `lego` starts and that goes on without it. It is known by a file that says its number and the time at which it
// started, since numbers are used again. Linux. Not thread-safe; calls of several processes that start or end
// programs of one folder must be kept apart by a lock of theirs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace legoai::cli {

class BackgroundProgram {
 public:
  // NAME.json says what runs, NAME.log is what it writes; both lie in `folder`.
  BackgroundProgram(const std::string& folder, const std::string& name);

  // What was started, and by which build.
  struct Start {
    pid_t pid = 0;
    uint64_t start_time = 0;  // clock ticks since the machine was started
    std::string build;
    std::vector<std::string> command;
  };

  const std::string& name() const { return name_; }
  const std::string& log() const { return log_; }
  // Nothing if it does not run.
  std::optional<Start> Running() const;
  // The value of "--option=value" in its command; empty if it does not run, or was not given one.
  std::string ValueOf(const std::string& option) const;

  // Starts it in the background, with this process's folder and environment. Errors: FieldErrors of what cannot be run or
  // written.
  absl::Status Run(const std::vector<std::string>& command);
  // Asks it to end (SIGTERM), and kills it after `patience`. Whether it has ended by itself, or did not run.
  bool End(absl::Duration patience);

  // What it has written since Run().
  std::string LogSinceRun() const;
  // The message of the last line that it has written; empty: none.
  std::string LastMessage() const;

 private:
  const std::string name_, record_, log_;
  int64_t log_begin_ = 0;
};

}  // namespace legoai::cli
