#include "server/store/postgres_readers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/status.h"
#include "server/store/postgres_session.h"
#include "server/store/postgres_statements.h"
#include "server/store/postgres_transaction.h"

namespace legoai::store {

PostgresReaders::PostgresReaders(PostgresTarget target, PostgresTimes times, int connections, absl::Duration patience,
                                 PostgresConnection::OnRoundTrip on_round_trip, PostgresConnection::Ends ends,
                                 std::shared_ptr<DamageLatch> damage)
    : target_(std::move(target)),
      times_(times),
      patience_(patience),
      on_round_trip_(std::move(on_round_trip)),
      ends_(std::move(ends)),
      damage_(std::move(damage)),
      unopened_(connections) {}

absl::Status PostgresReaders::Read(const std::function<absl::Status(ReadTransaction&)>& work) {
  const absl::Time until = absl::Now() + patience_;
  ASSIGN_OR_RETURN(auto connection, Take(until));
  if (connection == nullptr) {
    absl::StatusOr<std::unique_ptr<PostgresConnection>> opened = Open(until);
    if (!opened.ok()) {
      GiveBack(nullptr);
      return opened.status();
    }
    connection = *std::move(opened);
  }
  const absl::Status status = ReadOn(connection, work);
  if (connection->lost()) connection.reset();
  GiveBack(std::move(connection));
  return status;
}

absl::Status PostgresReaders::ReadOn(std::unique_ptr<PostgresConnection>& connection,
                                     const std::function<absl::Status(ReadTransaction&)>& work) {
  PostgresSession session(connection, PostgresSession::Mode::kAssume, [this] { return Open(absl::Now() + patience_); });
  session.Queue(postgres::kBeginRead);
  PostgresTransaction transaction(session, *damage_);
  absl::Status status = work(transaction);
  if (session.begun() && !session.lost()) connection->Post({{&postgres::kEndRead, PostgresValues()}});
  // An error that `work` passed over is one all the same, where it is the database's.
  return status.ok() ? session.failure() : status;
}

absl::StatusOr<std::unique_ptr<PostgresConnection>> PostgresReaders::Open(absl::Time until) {
  const auto on_damage = [damage = damage_](const absl::Status& met) { damage->Set(met); };
  return PostgresConnection::Open(target_, times_, on_round_trip_, on_damage, until, ends_);
}

absl::StatusOr<std::unique_ptr<PostgresConnection>> PostgresReaders::Take(absl::Time until) {
  MutexLock lock(mutex_);
  while (idle_.empty() && unopened_ == 0) {
    if (!freed_.WaitUntil(lock, absl::ToChronoTime(until)) && idle_.empty() && unopened_ == 0) {
      return PostgresFieldError(target_, "all connections are in use, and the database does not answer them: try again",
                                absl::StatusCode::kUnavailable);
    }
  }
  if (idle_.empty()) {
    --unopened_;
    return nullptr;
  }
  std::unique_ptr<PostgresConnection> connection = std::move(idle_.back());
  idle_.pop_back();
  return connection;
}

// Null: one more may be opened.
void PostgresReaders::GiveBack(std::unique_ptr<PostgresConnection> connection) {
  const MutexLock lock(mutex_);
  if (connection == nullptr) {
    ++unopened_;
  } else {
    idle_.push_back(std::move(connection));
  }
  freed_.NotifyOne();
}

}  // namespace legoai::store
