// A real PostgreSQL for tests: a server of its own in a temporary folder, on a Unix socket alone, as the user postgres where this
// process is root. It ends with the process that started it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai::store {

// Thread-safety: none, but for Url().
class PostgresServer {
 public:
  // Of this process: started by the first call, ended when the process exits. Ends the process with a message where there is
  // none.
  static PostgresServer& OfThisProcess();

  // Makes a database cluster in a new folder, under `under`, and starts the server. `options`: more lines of its postgresql.conf.
  // Errors: FailedPrecondition with what is missing or what PostgreSQL said.
  static absl::StatusOr<std::unique_ptr<PostgresServer>> Start(const std::string& under = "/tmp",
                                                               const std::vector<std::string>& options = {});
  ~PostgresServer();
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;

  // For a store in the schema, which is made if there is none.
  std::string Url(const std::string& schema);
  // The same under another user, with a password, or with another database.
  std::string UrlAs(const std::string& user, const std::string& password, const std::string& database) const;

  // Runs statements as the superuser; the first column of the last row of the last one.
  absl::StatusOr<std::string> Sql(const std::string& sql) const;

  // Without a checkpoint, as after a crash; returns at once.
  void EndImmediately();
  // After EndImmediately(); returns when it answers.
  absl::Status StartAgain();
  // All of its processes but the first, which takes new connections.
  std::vector<pid_t> Backends() const;
  pid_t pid() const { return process_; }
  const std::string& folder() const { return folder_; }

 private:
  PostgresServer(std::string folder, std::vector<std::string> options);
  absl::Status Init();
  std::string LogTail() const;

  const std::string folder_;
  const std::vector<std::string> options_;
  const pid_t owner_;
  pid_t process_ = 0;
};

// The server is away, as after a crash, until End() or the end of this: a test that fails meanwhile leaves it to the next one as
// it was.
class PostgresOutage {
 public:
  // `server` must outlive it.
  explicit PostgresOutage(PostgresServer& server) : server_(server) { server_.EndImmediately(); }
  // Says so where it did not start.
  ~PostgresOutage();
  PostgresOutage(const PostgresOutage&) = delete;
  PostgresOutage& operator=(const PostgresOutage&) = delete;
  // Once; returns when it answers.
  absl::Status End();

 private:
  PostgresServer& server_;
  bool over_ = false;
};

}  // namespace legoai::store
