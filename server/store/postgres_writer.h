// The one writer of a store on PostgreSQL: its connection, its leadership, and what becomes of a commit whose answer is lost.
//
// Write transactions of many threads run one at a time on one connection, and those that wait are committed together
// (write_queue.h). Every transaction counts the leader's row on (postgres_statements.h, kLead): its row lock keeps transactions
// of an earlier connection of this server apart from those of the next one, its term keeps another server's apart, and its
// sequence says whether a commit took place. So nothing is applied twice, and nothing that was answered is lost.
//
// A connection that is lost before COMMIT was sent has kept nothing: the functions run again on the next one, for as long as
// `patience`. After COMMIT was sent they are not answered before the database says what became of it, however long it is away;
// unless the process is told to end.
//
// Who leads is the row's term, held by an advisory lock of the writer's connection; a server that takes over
// (postgres_follower.h) takes the lock and counts the term on, which ends all writes of the one before it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/guarded_store.h"
#include "server/store/postgres_session.h"
#include "server/store/write_queue.h"

namespace legoai::store {

struct PostgresWriterOptions {
  PostgresTimes times;
  absl::Duration patience;     // that a write waits for a database that is away
  absl::Duration other_server; // that Begin() waits for another server to end; zero: it does not wait at all
  std::string holder;          // of the leadership, for people: host and process
  std::string address;         // where other servers and agents reach it; empty: unknown
  std::function<void()> on_round_trip;                   // may be null
  std::function<void(const std::string&)> on_trouble;    // a lost connection, why there is none, that there is one; may be null
  std::function<void(const absl::Status&)> on_superseded;  // postgres_store.h; may be null
  std::function<bool()> ends;                              // postgres_store.h; may be null
};

// Thread-safe, but for Begin().
class PostgresWriter {
 public:
  // `damage` is set by rows that cannot be read, and by damage that PostgreSQL reports.
  PostgresWriter(PostgresTarget target, PostgresWriterOptions options, std::shared_ptr<DamageLatch> damage);

  // Once, before anything else: connects, takes the leadership, prepares the schema. Errors: those of PostgresConnection::Open
  // and PreparePostgresSchema; where another server leads FailedPrecondition, or, without waiting, Unavailable.
  absl::Status Begin();
  absl::Status Write(const WriteQueue::Work& work) { return queue_.Write(work); }
  const std::string& doubts() const { return doubts_; }  // of the connection of Begin()
  int64_t term() const { return term_; }                 // since Begin(); it stays the same

 private:
  using Mode = PostgresSession::Mode;
  enum class Outcome { kDone, kFailed, kLost, kInDoubt };

  void Run(const WriteQueue::Group& group, Mode mode);
  Outcome Attempt(const WriteQueue::Group& group, Mode mode);
  void RunAll(const WriteQueue::Group& group, PostgresSession& session);
  Outcome Finish(const WriteQueue::Group& group, PostgresSession& session);
  absl::StatusOr<std::unique_ptr<PostgresConnection>> Open(absl::Time until) const;
  absl::Status Connect(absl::Time until, int64_t* sequence);
  absl::Status ConnectOnce(int64_t* sequence);
  absl::Status TakeLock(PostgresConnection& connection, absl::Duration wait);
  absl::Status TryLock(PostgresConnection& connection) const;
  absl::Status OtherServer(PostgresConnection& connection);
  void Tell(const std::string& what) const;
  void TellWhyNot(const std::string& why);
  absl::Status Superseded(const absl::Status& why);

  const PostgresTarget target_;
  const PostgresWriterOptions options_;
  const std::shared_ptr<DamageLatch> damage_;
  int64_t term_ = 0;  // of Begin()
  // Below: of the queue's thread, once Begin() has returned.
  std::unique_ptr<PostgresConnection> connection_;
  int64_t sequence_ = 0;     // of the last commit that is known of
  int64_t last_backend_ = 0; // of the connection that was lost
  bool over_ = false;        // another server leads, or the database is not the one that was written to
  bool given_up_ = false;    // what became of the last commit was not found out before the process had to end
  absl::Status failure_;     // of the last attempt
  std::map<std::string, absl::Time> told_;  // why there is no connection, and when people were told so last
  bool assumed_wrongly_ = false;
  std::string doubts_;
  WriteQueue queue_;
};

}  // namespace legoai::store
