// One connection to PostgreSQL: statements prepared once, values and results in binary, any number of statements in one round
// trip (libpq's pipeline mode), no wait without an end.
//
// Thread-safety: belongs to one thread at a time.
#pragma once

#include <google/protobuf/message_lite.h>
#include <postgresql/libpq-fe.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/postgres_target.h"

namespace legoai::store {

// One of postgres_statements.h: never freed.
struct PostgresStatement {
  const char* name;
  const char* text;  // one statement with $1, $2 ... for values
};

// A value of type bytea, and one of type text.
struct PostgresBytes {
  std::string_view bytes;
};

// The values of a statement, as PostgreSQL's binary format has them.
class PostgresValues {
 public:
  template <class... Values>
  explicit PostgresValues(const Values&... values) {
    (Add(values), ...);
  }

  size_t size_bytes() const;

 private:
  friend class PostgresConnection;
  void Add(int64_t value);
  void Add(std::string_view text);
  void Add(const std::string& text) { Add(std::string_view(text)); }
  void Add(const char* text) { Add(std::string_view(text)); }
  void Add(PostgresBytes value);
  void Add(const google::protobuf::MessageLite& message);
  void Add(const std::optional<int64_t>& value);
  void Add(const std::vector<int64_t>& values);

  std::vector<Oid> types_;
  std::vector<std::string> bytes_;
  std::vector<bool> null_;
};

// The rows that a statement gave.
class PostgresRows {
 public:
  explicit PostgresRows(PGresult* result) : result_(result, PQclear) {}

  int64_t size() const { return PQntuples(result_.get()); }
  // Columns are numbered from 0.
  int64_t Int(int64_t row, int column) const;
  std::string_view Text(int64_t row, int column) const;  // lives as long as the rows
  bool IsNull(int64_t row, int column) const { return PQgetisnull(result_.get(), static_cast<int>(row), column) != 0; }
  int64_t changed() const;  // rows that it inserted, changed, removed or gave
  std::string_view tag() const { return PQcmdStatus(result_.get()); }

 private:
  std::unique_ptr<PGresult, void (*)(PGresult*)> result_;
};

struct PostgresTimes {
  absl::Duration connect = absl::Seconds(5);     // of each host
  absl::Duration lock = absl::Seconds(5);        // that a statement waits for a lock
  absl::Duration statement = absl::Seconds(15);  // that a statement takes
  // Without a byte of an answer: the connection counts as lost. Longer than `statement`, which the database itself keeps to.
  absl::Duration silence = absl::Seconds(20);
};

class PostgresConnection {
 public:
  struct Query {
    const PostgresStatement* statement;
    PostgresValues values;
  };
  // Of the statements up to the first one that failed; those behind it did not run.
  struct Answers {
    std::vector<PostgresRows> rows;
    absl::Status status;
    std::string sqlstate;  // of the error; empty: none, or the connection was lost
  };
  using OnRoundTrip = std::function<void()>;
  using OnDamage = std::function<void(const absl::Status&)>;
  using Ends = std::function<bool()>;

  static constexpr absl::Duration kBetweenTries = absl::Milliseconds(100);

  // Blocks. `on_round_trip` is called whenever this waits for an answer, `on_damage` with each error that is DataLoss, opening
  // included; both may be null. Where it is Unavailable it is tried again until `until`, or until `ends` says that the process is
  // told to end, which is asked while it waits, too. Errors: PostgresError(), Unavailable where another try may succeed;
  // FailedPrecondition for an old PostgreSQL or a database that is not UTF-8.
  static absl::StatusOr<std::unique_ptr<PostgresConnection>> Open(const PostgresTarget& target, const PostgresTimes& times,
                                                                  const OnRoundTrip& on_round_trip,
                                                                  const OnDamage& on_damage = nullptr,
                                                                  absl::Time until = absl::InfinitePast(),
                                                                  const Ends& ends = nullptr);
  ~PostgresConnection() { PQfinish(connection_); }
  PostgresConnection(const PostgresConnection&) = delete;
  PostgresConnection& operator=(const PostgresConnection&) = delete;

  // Sends all and waits for the answers once.
  Answers RoundTrip(const std::vector<Query>& queries);
  // Sends without waiting; nobody hears of errors.
  void Post(const std::vector<Query>& queries);
  // Any number of statements without values and results; waits for as long as it takes.
  absl::Status RunScript(const std::string& sql);

  // From then on everything is answered with the reason, Unavailable; nothing else brings it back.
  bool lost() const { return !lost_.ok(); }
  const PostgresTarget& target() const { return target_; }
  int64_t backend_pid() const { return PQbackendPID(connection_); }
  // Warnings about the database's settings; empty: none.
  const std::string& doubts() const { return doubts_; }

 private:
  enum class Expected { kPrepared, kAnswer, kSync };
  struct Item {
    Expected what;
    const PostgresStatement* statement;
  };

  PostgresConnection(const PostgresTarget& target, const PostgresTimes& times, OnRoundTrip on_round_trip, OnDamage on_damage,
                     PGconn* connection)
      : target_(target),
        times_(times),
        on_round_trip_(std::move(on_round_trip)),
        on_damage_(std::move(on_damage)),
        connection_(connection) {}
  static absl::StatusOr<std::unique_ptr<PostgresConnection>> OpenOnce(const PostgresTarget& target, const PostgresTimes& times,
                                                                      const OnRoundTrip& on_round_trip,
                                                                      const OnDamage& on_damage, const Ends& ends);
  absl::Status Connect(const Ends& ends);
  absl::Status SetUp();
  void Send(const std::vector<Query>& queries);
  void SendOne(const Query& query);
  Answers Collect();
  void Take(const Item& item, PGresult* result, Answers* answers);
  PGresult* NextResult();
  bool AwaitSocket(short events, absl::Time until);
  void Lose(const std::string& why);
  void LoseByLibrary();
  absl::Status ErrorOf(const std::string& sqlstate, const std::string& message) const;

  const PostgresTarget target_;
  const PostgresTimes times_;
  const OnRoundTrip on_round_trip_;  // may be null
  const OnDamage on_damage_;         // may be null
  PGconn* const connection_;
  std::map<const PostgresStatement*, bool> prepared_;  // false: on its way
  std::deque<Item> expected_;
  int64_t posted_ = 0;  // syncs whose answers nobody wants
  absl::Status lost_;
  std::string doubts_;
};

}  // namespace legoai::store
