// The service of one machine and one user: legoai-server and one legoai-agent in the background, whose store, logs and records
// lie in one folder. Linux. Not thread-safe; of several processes on one folder, one at a time holds the lock.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/cli/background_program.h"

namespace legoai::cli {

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
