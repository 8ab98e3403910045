// The service of one machine and one user: legoai-server and one legoai-agent in the background, whose store, logs and records
// lie in one folder. Linux. Not thread-safe; of several processes on one folder, one at a time holds the lock.
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

// A program that `lego` starts and that goes on without it. It is known by a file that says its number and the time at which it
// started, since numbers are used again. Not thread-safe; calls of several processes that start or end programs of one folder
// must be kept apart by a lock of theirs.
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

class LocalService {
 public:
  // Where it lies if nobody says: legoai in the user's folder for data. Errors: FieldError of --data where that is not known.
  static absl::StatusOr<std::string> DefaultFolder();

  // `folder` need not be there.
  explicit LocalService(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const BackgroundProgram& server() const { return server_; }
  const BackgroundProgram& agent() const { return agent_; }
  bool AnyRuns() const { return server_.Running() || agent_.Running(); }
  bool BothRun() const { return server_.Running() && agent_.Running(); }

  // Until what it gives is destroyed, others wait. Makes the folder. Errors: FieldError of --data where it cannot be written.
  absl::StatusOr<std::shared_ptr<void>> Lock() const;

  // Makes these two commands run: leaves what runs so, ends what runs otherwise or is of another build, starts the rest, and
  // waits until the agent is connected. Says on standard error what it does. Errors: FailedPrecondition with the last words of
  // the one that ended, DeadlineExceeded with its log.
  absl::Status Start(const std::vector<std::string>& server_command, const std::vector<std::string>& agent_command);
  // FailedPrecondition with the last words of one that has ended by itself.
  static absl::Status Ended(const BackgroundProgram& program);
  // Trainers save before; says on standard error what it does.
  void Stop();

 private:
  absl::Status Await(const BackgroundProgram& program, const std::string& words) const;
  absl::Status StartOne(BackgroundProgram& program, const std::vector<std::string>& command, const std::string& ready);
  void EndOne(BackgroundProgram& program);

  const std::string folder_;
  BackgroundProgram server_, agent_;
};

}  // namespace legoai::cli
