// The store on PostgreSQL 15 or newer, for one server process: one connection that writes (postgres_writer.h), a few that read
// (postgres_readers.h). postgres_transaction.h says how many round trips each operation costs.
//
// The database must be UTF-8, and the schema of its search_path LegoAI's own. It needs sessions: a pooler in between must pool by
// session, not by transaction. A commit is on the disk when it is answered, also where the database's synchronous_commit says
// otherwise.
//
// A database that is away costs latency: what was not committed is tried again for as long as `patience`, then Unavailable. A
// commit whose answer is lost is looked up once the database is back, and answered only then: its Write() waits for as long as
// that takes, or until the process is told to end. SIGKILL harms nothing meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/postgres_connection.h"
#include "server/store/store.h"

namespace legoai::store {

struct PostgresOptions {
  PostgresTimes times;
  absl::Duration patience = absl::Seconds(15);
  // That opening waits for another server's connection to end. Zero: it does not wait, and the error is Unavailable then.
  absl::Duration other_server = absl::Seconds(15);
  std::string address = {};                         // where others reach this server; kept beside its term
  int readers = 4;                                  // connections that read; one more writes
  // Called whenever a thread waits for the database's answer. May be null; thread-safe.
  std::function<void()> on_round_trip;
  // What people should know: lost connections and why there is none, settings that make commits less than durable. May be null;
  // thread-safe.
  std::function<void(const std::string&)> on_trouble;
  // Called once, while the store is opened, with the term under which this server leads from then on. May be null.
  std::function<void(int64_t term)> on_leads;
  // Called once, when another server leads, or the database is not the one that this server wrote to (a backup was restored); on
  // any thread, within an operation of the store. From then on every Write() is refused with Unavailable. May be null.
  std::function<void(const absl::Status&)> on_superseded;
  // Called once, when an operation meets damage, opening included: a row that cannot be read, or what PostgreSQL reports
  // (SQLSTATE XX001, XX002); on any thread, within an operation of the store. From then on every Write() is refused with
  // DataLoss. May be null.
  std::function<void(const absl::Status&)> on_damage;
  // True once the process is told to end: nothing waits for a database that is away any more. A Write() whose commit is in doubt
  // is answered with Unavailable, "it is not known whether this was kept"; those that follow are refused. May be null;
  // thread-safe.
  std::function<bool()> ends;
};

// `url`: postgres_target.h. Opens the store, or creates it in an empty schema. Errors (field `store`): FailedPrecondition if
// another server uses it, the schema is newer, or its tables are another program's; PermissionDenied, NotFound, Unavailable,
// InvalidArgument.
absl::StatusOr<std::unique_ptr<Store>> OpenPostgresStore(const std::string& url, const PostgresOptions& options = {});

}  // namespace legoai::store
