#include "server/store/postgres_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/store/postgres_schema.h"
#include "server/store/postgres_statements.h"
#include "server/store/postgres_transaction.h"

namespace legoai::store {
namespace {

using Expect = PostgresSession::Expect;
using Values = PostgresValues;
using namespace postgres;  // the statements

constexpr absl::Duration kBetweenReminders = absl::Minutes(1);
constexpr char kNoLock[] = "55P03";

}  // namespace

PostgresWriter::PostgresWriter(PostgresTarget target, PostgresWriterOptions options, std::shared_ptr<DamageLatch> damage)
    : target_(std::move(target)),
      options_(std::move(options)),
      damage_(std::move(damage)),
      queue_([this](const WriteQueue::Group& group) { Run(group, Mode::kAssume); }) {}

void PostgresWriter::Tell(const std::string& what) const {
  if (options_.on_trouble) options_.on_trouble(what);
}

// Each reason at once and then now and then, also where they take turns.
void PostgresWriter::TellWhyNot(const std::string& why) {
  const absl::Time now = absl::Now();
  if (const auto last = told_.find(why); last != told_.end() && now < last->second + kBetweenReminders) return;
  told_[why] = now;
  Tell(absl::StrCat("there is no connection to the database: ", why));
}

absl::Status PostgresWriter::Superseded(const absl::Status& why) {
  if (!std::exchange(over_, true) && options_.on_superseded) options_.on_superseded(why);
  return why;
}

absl::StatusOr<std::unique_ptr<PostgresConnection>> PostgresWriter::Open(absl::Time until) const {
  const auto on_damage = [damage = damage_](const absl::Status& met) { damage->Set(met); };
  return PostgresConnection::Open(target_, options_.times, options_.on_round_trip, on_damage, until, options_.ends);
}

absl::Status PostgresWriter::Begin() {
  ASSIGN_OR_RETURN(connection_, Open(absl::Now() + options_.patience));
  doubts_ = connection_->doubts();
  const bool waits = options_.other_server > absl::ZeroDuration();
  RETURN_IF_ERROR(waits ? TakeLock(*connection_, options_.other_server) : TryLock(*connection_));
  RETURN_IF_ERROR(PreparePostgresSchema(*connection_));
  const auto leads = connection_->RoundTrip(
      {{&kBecomeLeader, Values(options_.holder, absl::ToUnixMicros(absl::Now()), options_.address)}});
  RETURN_IF_ERROR(leads.status);
  if (leads.rows[0].size() != 1)
    return PostgresFieldError(target_, "its table leader has no row: restore a backup", absl::StatusCode::kDataLoss);
  term_ = leads.rows[0].Int(0, 0);
  sequence_ = leads.rows[0].Int(0, 1);
  return absl::OkStatus();
}

absl::Status PostgresWriter::TryLock(PostgresConnection& connection) const {
  const auto taken = connection.RoundTrip({{&kTryLock, Values()}});
  RETURN_IF_ERROR(taken.status);
  if (taken.rows[0].Int(0, 0) != 0) return absl::OkStatus();
  return PostgresFieldError(target_, "another server leads, or is about to", absl::StatusCode::kUnavailable);
}

// Other sessions may be the remains of this server's or another's, which the database has not noticed to be gone.
absl::Status PostgresWriter::TakeLock(PostgresConnection& connection, absl::Duration wait) {
  const absl::Time until = absl::Now() + wait;
  while (true) {
    const auto taken = connection.RoundTrip({{&kTakeLock, Values()}});
    if (taken.sqlstate != kNoLock) return taken.status;
    if (last_backend_ != 0) RETURN_IF_ERROR(connection.RoundTrip({{&kEndBackend, Values(last_backend_)}}).status);
    if (absl::Now() < until) continue;
    const absl::Status other = OtherServer(connection);
    if (term_ == 0 || over_) return other;
    return PostgresFieldError(target_, "it has not ended an earlier connection of this server yet: it is tried again",
                              absl::StatusCode::kUnavailable);
  }
}

absl::Status PostgresWriter::OtherServer(PostgresConnection& connection) {
  const auto leader = connection.RoundTrip({{&kLeader, Values()}});
  const bool known = leader.status.ok() && leader.rows[0].size() == 1;
  const bool superseded = known && term_ != 0 && leader.rows[0].Int(0, 0) != term_;
  const std::string holder = known ? std::string(leader.rows[0].Text(0, 2)) : "another";
  const absl::Status other =
      PostgresFieldError(target_, absl::StrCat("the server that is ", holder, " uses it: end that server first"),
                         superseded ? absl::StatusCode::kUnavailable : absl::StatusCode::kFailedPrecondition);
  return superseded ? Superseded(other) : other;
}

// The leader's row is read when no transaction of this server's earlier connection can change it any more.
absl::Status PostgresWriter::ConnectOnce(int64_t* sequence) {
  ASSIGN_OR_RETURN(auto connection, Open(absl::InfinitePast()));
  RETURN_IF_ERROR(TakeLock(*connection, absl::ZeroDuration()));
  const auto leader = connection->RoundTrip({{&kLeaderAlone, Values()}});
  RETURN_IF_ERROR(leader.status);
  const bool mine = leader.rows[0].size() == 1 && leader.rows[0].Int(0, 0) == term_;
  if (!mine) return OtherServer(*connection);
  *sequence = leader.rows[0].Int(0, 1);
  connection_ = std::move(connection);
  return absl::OkStatus();
}

absl::Status PostgresWriter::Connect(absl::Time until, int64_t* sequence) {
  if (connection_ != nullptr && !connection_->lost()) {
    *sequence = sequence_;
    return absl::OkStatus();
  }
  if (connection_ != nullptr) {
    last_backend_ = connection_->backend_pid();
    connection_.reset();
    Tell(absl::StrCat("the connection to the database was lost: ", std::string(failure_.message())));
  }
  while (true) {
    const absl::Status status = ConnectOnce(sequence);
    if (status.ok()) {
      told_.clear();
      Tell("there is a connection to the database again");
    }
    if (status.ok() || over_) return status;
    TellWhyNot(std::string(status.message()));
    if (absl::Now() >= until || (options_.ends && options_.ends())) return status;
    absl::SleepFor(PostgresConnection::kBetweenTries);
  }
}

void PostgresWriter::Run(const WriteQueue::Group& group, Mode mode) {
  const auto answer = [&](const absl::Status& status) {
    for (WriteQueue::Request* request : group) request->status = status;
  };
  if (given_up_) {
    return answer(PostgresFieldError(
        target_, "this server ends, and does not know whether its last change was kept: no other is made",
        absl::StatusCode::kUnavailable));
  }
  const absl::Time until = absl::Now() + options_.patience;
  bool in_doubt = false;
  while (true) {
    int64_t there = sequence_;
    const absl::Status connected = Connect(in_doubt ? absl::InfiniteFuture() : until, &there);
    if (!connected.ok()) {
      given_up_ = in_doubt && !over_;
      return answer(in_doubt ? Annotate(connected, "it is not known whether this was kept") : connected);
    }
    const bool committed = in_doubt && there == sequence_ + 1;
    if (committed) return void(sequence_ = there);
    if (there != sequence_) {
      return answer(Superseded(
          PostgresFieldError(target_, "it has changed without this server, as by restoring a backup: start the server again",
                             absl::StatusCode::kUnavailable)));
    }
    const Outcome outcome = Attempt(group, mode);
    in_doubt = outcome == Outcome::kInDoubt;
    if (outcome == Outcome::kDone) return;
    if (outcome == Outcome::kLost && absl::Now() >= until) return answer(failure_);
    if (outcome != Outcome::kFailed) continue;
    if (mode == Mode::kAwait || (group.size() == 1 && !assumed_wrongly_)) return answer(failure_);
    for (WriteQueue::Request* request : group) Run({request}, Mode::kAwait);
    return;
  }
}

PostgresWriter::Outcome PostgresWriter::Attempt(const WriteQueue::Group& group, Mode mode) {
  PostgresSession session(connection_, mode);
  session.Queue(kBegin);
  session.Queue(kLead, Values(term_, sequence_), Expect::kLeader);
  RunAll(group, session);
  const Outcome outcome = Finish(group, session);
  assumed_wrongly_ = session.assumed_wrongly();
  if (outcome == Outcome::kFailed && !session.lost()) connection_->Post({{&kRollback, Values()}});
  return outcome;
}

// Each function in a savepoint, so that an error undoes only its own changes.
void PostgresWriter::RunAll(const WriteQueue::Group& group, PostgresSession& session) {
  PostgresTransaction transaction(session, *damage_);
  for (WriteQueue::Request* request : group) {
    if (group.size() > 1) session.Queue(kSavepoint);
    request->status = request->work(transaction);
    if (!session.failure().ok()) return;
    if (group.size() == 1) return;
    if (!request->status.ok()) session.Queue(kRollbackTo);
    session.Queue(kRelease);
  }
}

// A status means what it says only once all before it is durable.
PostgresWriter::Outcome PostgresWriter::Finish(const WriteQueue::Group& group, PostgresSession& session) {
  failure_ = session.Flush();
  if (session.superseded()) failure_ = Superseded(failure_);
  if (session.lost()) return Outcome::kLost;
  if (!failure_.ok()) return Outcome::kFailed;
  const bool keeps = std::any_of(group.begin(), group.end(), [](const auto* request) { return request->status.ok(); });
  if (!keeps) {
    connection_->Post({{&kRollback, Values()}});
    return Outcome::kDone;
  }
  const auto commit = connection_->RoundTrip({{&kCommit, Values()}});
  failure_ = commit.status;
  if (connection_->lost()) return Outcome::kInDoubt;
  if (commit.status.ok() && commit.rows[0].tag() != "COMMIT") failure_ = absl::AbortedError("the database undid the transaction");
  if (!failure_.ok()) return Outcome::kFailed;
  ++sequence_;
  return Outcome::kDone;
}

}  // namespace legoai::store
