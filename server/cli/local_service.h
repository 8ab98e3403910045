// The service on one machine for one user: legoai-server and one legoai-agent in the background, with store, logs and records in
// one folder. Linux. Not thread-safe; of several processes on one folder, one at a time holds the lock.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace legoai::cli {

// A program that `lego` starts in the background. A file records its process id and start time, because ids are reused. Not
// thread-safe; processes that start or end programs of one folder must use a lock.
class BackgroundProgram {
 public:
  // NAME.json records what runs, NAME.log is its output; both are in `folder`.
  BackgroundProgram(const std::string& folder, const std::string& name);

  // What was started, by which build.
  struct Start {
    pid_t pid = 0;
    uint64_t start_time = 0;  // clock ticks since boot
    std::string build;
    std::vector<std::string> command;
  };

  const std::string& name() const { return name_; }
  const std::string& log() const { return log_; }
  // Nothing if it is not running.
  std::optional<Start> Running() const;
  // The value of "--option=value" in its command; empty if it is not running or has no such option.
  std::string ValueOf(const std::string& option) const;

  // Starts it in the background, with this process's working folder and environment. Errors: FieldErrors of what cannot be run or
  // written.
  absl::Status Run(const std::vector<std::string>& command);
  // Asks it to end (SIGTERM), and kills it after `patience`. True if it ended by itself or was not running.
  bool End(absl::Duration patience);

  // Its output since Run().
  std::string LogSinceRun() const;
  // The message of its last log line; empty if none.
  std::string LastMessage() const;

 private:
  const std::string name_, record_, log_;
  int64_t log_begin_ = 0;
};

class LocalService {
 public:
  // The default: legoai in the user's data folder. Errors: FieldError of --data if that is unknown.
  static absl::StatusOr<std::string> DefaultFolder();

  // `folder` need not exist.
  explicit LocalService(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const BackgroundProgram& server() const { return server_; }
  const BackgroundProgram& agent() const { return agent_; }
  bool AnyRuns() const { return server_.Running() || agent_.Running(); }
  bool BothRun() const { return server_.Running() && agent_.Running(); }

  // Locks the folder, creating it if necessary, until the result is destroyed. Errors: FieldError of --data if it cannot be
  // written.
  absl::StatusOr<std::shared_ptr<void>> Lock() const;

  // Ensures that these two commands are running: keeps programs that already run so, ends those with other options or of another
  // build, starts the rest, and waits until the agent is connected. Reports on standard error. Errors: FailedPrecondition with
  // the last message of a program that ended, DeadlineExceeded with its log.
  absl::Status Start(const std::vector<std::string>& server_command, const std::vector<std::string>& agent_command);
  // FailedPrecondition with the last message of a program that has ended by itself.
  static absl::Status Ended(const BackgroundProgram& program);
  // Trainers save first. Reports on standard error.
  void Stop();

 private:
  absl::Status Await(const BackgroundProgram& program, const std::string& words) const;
  absl::Status StartOne(BackgroundProgram& program, const std::vector<std::string>& command, const std::string& ready);
  void EndOne(BackgroundProgram& program);

  const std::string folder_;
  BackgroundProgram server_, agent_;
};

}  // namespace legoai::cli
