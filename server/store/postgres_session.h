// One transaction on a connection to PostgreSQL, in as few round trips as its answers allow.
//
// Changes wait until something is asked, or the end, and then travel together with it. Meanwhile they count as done (kAssume).
// Where the database then says that one was refused, the whole transaction is undone and its function runs again, waiting for
// every single answer (kAwait). So what a function is told is right whenever it is kept.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/postgres_connection.h"

namespace legoai::store {

// Thread-safety: that of the connection.
class PostgresSession {
 public:
  enum class Mode { kAssume, kAwait };
  enum class Expect {
    kAnything,
    kRow,     // a change that is refused changes no row
    kLeader,  // no row: the leader is another one
  };
  // Gives another connection in the place of one that was lost.
  using Reconnect = std::function<absl::StatusOr<std::unique_ptr<PostgresConnection>>()>;

  // Owns nothing. `reconnect`, for transactions that only read, may be null: with it what is asked first is asked again on
  // another connection where the one at hand turns out to be lost.
  PostgresSession(std::unique_ptr<PostgresConnection>& connection, Mode mode, Reconnect reconnect = nullptr)
      : connection_(connection), mode_(mode), reconnect_(std::move(reconnect)) {}

  void Queue(const PostgresStatement& statement, PostgresValues values = PostgresValues(), Expect expect = Expect::kAnything);

  // A change; where it changes no row `refused` says why. Its errors may come with a later call.
  absl::Status Change(const PostgresStatement& statement, PostgresValues values, const std::function<absl::Status()>& refused);
  // A change that may change nothing.
  absl::Status Change(const PostgresStatement& statement, PostgresValues values);
  absl::StatusOr<PostgresRows> Ask(const PostgresStatement& statement, PostgresValues values);
  // Several in one round trip.
  absl::StatusOr<std::vector<PostgresRows>> Ask(std::vector<PostgresConnection::Query> questions);

  // Sends what waits.
  absl::Status Flush();

  // The first error that is one of the whole transaction: it must be rolled back.
  const absl::Status& failure() const { return failure_; }
  void Fail(const absl::Status& failure);
  // The failure is that a change was taken for done and was refused.
  bool assumed_wrongly() const { return assumed_wrongly_; }
  // The failure is that another server leads.
  bool superseded() const { return superseded_; }
  bool awaits() const { return mode_ == Mode::kAwait; }
  bool lost() const { return connection_ == nullptr || connection_->lost(); }
  // Something was sent.
  bool begun() const { return begun_; }
  const PostgresTarget& target() const { return connection_->target(); }

 private:
  PostgresConnection::Answers Send();
  absl::Status ChangeExpecting(const PostgresStatement& statement, PostgresValues values, Expect expect);

  std::unique_ptr<PostgresConnection>& connection_;
  const Mode mode_;
  const Reconnect reconnect_;
  std::vector<PostgresConnection::Query> waiting_;
  std::vector<Expect> expected_;
  size_t waiting_bytes_ = 0;
  int64_t last_changed_ = 0;
  bool begun_ = false, answered_ = false, assumed_wrongly_ = false, superseded_ = false;
  absl::Status failure_;
};

}  // namespace legoai::store
