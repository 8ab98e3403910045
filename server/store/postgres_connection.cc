#include "server/store/postgres_connection.h"

#include <poll.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/status.h"

namespace legoai::store {
namespace {

// PostgreSQL's numbers of its types (pg_type.dat).
constexpr Oid kBytea = 17, kInt8 = 20, kText = 25, kInt8Array = 1016;
constexpr int kBinary = 1;
constexpr int64_t kLeastVersion = 150000;
constexpr absl::Duration kLook = absl::Milliseconds(100);     // whether the process is told to end
constexpr absl::Duration kLastTry = absl::Milliseconds(500);  // once it is: for a database that is there

std::string BigEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes; i-- > 0;) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

std::string Milliseconds(absl::Duration duration) { return absl::StrCat(absl::ToInt64Milliseconds(duration)); }

// What the session needs, and what is known of the database: statements find indexes whatever is known of the tables' sizes,
// which is nothing at first, and plans are made once. A commit is on the disk when it is answered, however the database is set.
constexpr PostgresStatement kSetUp = {
    "set_up",
    "SELECT set_config('statement_timeout', $1, false), set_config('lock_timeout', $2, false),"
    " set_config('idle_in_transaction_session_timeout', '60s', false), set_config('enable_seqscan', 'off', false),"
    " set_config('enable_bitmapscan', 'off', false), set_config('enable_sort', 'off', false),"
    " set_config('plan_cache_mode', 'force_generic_plan', false), set_config('jit', 'off', false),"
    " set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),"
    " set_config('tcp_keepalives_count', '3', false),"
    " set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'"
    "   ELSE current_setting('synchronous_commit') END, false)"};
constexpr PostgresStatement kAbout = {
    "about",
    "SELECT current_setting('server_version_num')::bigint, current_setting('server_encoding'), current_setting('fsync'),"
    " current_setting('full_page_writes'), current_setting('server_version')"};

// Of "FATAL:  28P01: password ...", whose first word is in the database's language.
struct StartError {
  std::string sqlstate, message;
};
bool IsSqlstate(const std::string& code) {
  return std::all_of(code.begin(), code.end(), [](unsigned char c) { return std::isdigit(c) != 0 || std::isupper(c) != 0; });
}
StartError ParseStartError(const std::string& text) {
  for (size_t i = 0; i + 7 < text.size(); ++i) {
    const std::string code = text.substr(i + 2, 5);
    const bool is_code = text[i] == ' ' && text[i + 1] == ' ' && text[i + 7] == ':' &&
                         IsSqlstate(code);
    if (is_code) return {code, text.substr(std::min(text.size(), i + 9))};
  }
  return {"", text};
}

}  // namespace

void PostgresValues::Add(int64_t value) {
  types_.push_back(kInt8), bytes_.push_back(BigEndian(static_cast<uint64_t>(value), 8)), null_.push_back(false);
}

void PostgresValues::Add(std::string_view text) {
  types_.push_back(kText), bytes_.emplace_back(text), null_.push_back(false);
}

void PostgresValues::Add(PostgresBytes value) {
  types_.push_back(kBytea), bytes_.emplace_back(value.bytes), null_.push_back(false);
}

void PostgresValues::Add(const google::protobuf::MessageLite& message) {
  types_.push_back(kBytea), bytes_.push_back(message.SerializeAsString()), null_.push_back(false);
}

void PostgresValues::Add(const std::optional<int64_t>& value) {
  Add(value.value_or(0));
  null_.back() = !value.has_value();
}

// One dimension, no nulls, numbered from 1.
void PostgresValues::Add(const std::vector<int64_t>& values) {
  std::string bytes = BigEndian(values.empty() ? 0 : 1, 4) + BigEndian(0, 4) + BigEndian(kInt8, 4);
  if (!values.empty()) bytes += BigEndian(values.size(), 4) + BigEndian(1, 4);
  for (const int64_t value : values) bytes += BigEndian(8, 4) + BigEndian(static_cast<uint64_t>(value), 8);
  types_.push_back(kInt8Array), bytes_.push_back(std::move(bytes)), null_.push_back(false);
}

size_t PostgresValues::size_bytes() const {
  size_t bytes = 0;
  for (const std::string& value : bytes_) bytes += value.size();
  return bytes;
}

int64_t PostgresRows::Int(int64_t row, int column) const {
  uint64_t value = 0;
  for (const char byte : Text(row, column)) value = value << 8 | static_cast<unsigned char>(byte);
  return static_cast<int64_t>(value);
}

std::string_view PostgresRows::Text(int64_t row, int column) const {
  const int at = static_cast<int>(row);
  return {PQgetvalue(result_.get(), at, column), static_cast<size_t>(PQgetlength(result_.get(), at, column))};
}

int64_t PostgresRows::changed() const {
  int64_t rows = 0;
  return absl::SimpleAtoi(PQcmdTuples(result_.get()), &rows) ? rows : 0;
}

absl::StatusOr<std::unique_ptr<PostgresConnection>> PostgresConnection::Open(const PostgresTarget& target,
                                                                             const PostgresTimes& times,
                                                                             const OnRoundTrip& on_round_trip,
                                                                             const OnDamage& on_damage, absl::Time until,
                                                                             const Ends& ends) {
  while (true) {
    auto opened = OpenOnce(target, times, on_round_trip, on_damage, ends);
    if (opened.ok() || !absl::IsUnavailable(opened.status()) || absl::Now() >= until || (ends && ends())) return opened;
    absl::SleepFor(kBetweenTries);
  }
}

absl::StatusOr<std::unique_ptr<PostgresConnection>> PostgresConnection::OpenOnce(const PostgresTarget& target,
                                                                                 const PostgresTimes& times,
                                                                                 const OnRoundTrip& on_round_trip,
                                                                                 const OnDamage& on_damage, const Ends& ends) {
  std::map<std::string, std::string> keywords = {{"application_name", "legoai-server"},
                                                 {"keepalives_idle", "10"},
                                                 {"keepalives_interval", "5"},
                                                 {"keepalives_count", "3"},
                                                 {"target_session_attrs", "read-write"},
                                                 {"tcp_user_timeout", Milliseconds(times.silence)}};
  for (const auto& [keyword, value] : target.keywords) keywords[keyword] = value;
  keywords["client_encoding"] = "UTF8";
  std::vector<const char*> names, values;
  for (const auto& [keyword, value] : keywords) names.push_back(keyword.c_str()), values.push_back(value.c_str());
  names.push_back(nullptr), values.push_back(nullptr);
  PGconn* const started = PQconnectStartParams(names.data(), values.data(), /*expand_dbname=*/0);
  if (started == nullptr) return absl::ResourceExhaustedError(absl::StrCat("store ", target.text, ": no memory to open it"));
  std::unique_ptr<PostgresConnection> connection(new PostgresConnection(target, times, on_round_trip, on_damage, started));
  RETURN_IF_ERROR(connection->Connect(ends));
  RETURN_IF_ERROR(connection->SetUp());
  return connection;
}

absl::Status PostgresConnection::Connect(const Ends& ends) {
  PQsetErrorVerbosity(connection_, PQERRORS_VERBOSE);  // with SQLSTATE, which libpq gives in no other way here
  PQsetNoticeProcessor(connection_, [](void*, const char*) {}, nullptr);
  const auto hosts = target_.keywords.find("host");
  const int64_t several = hosts == target_.keywords.end() ? 1 : 1 + std::count(hosts->second.begin(), hosts->second.end(), ',');
  const absl::Time begun = absl::Now();
  absl::Time until = begun + several * times_.connect;
  PostgresPollingStatusType state = PQstatus(connection_) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
  while (state == PGRES_POLLING_READING || state == PGRES_POLLING_WRITING) {
    const short events = state == PGRES_POLLING_READING ? POLLIN : POLLOUT;
    bool ready = AwaitSocket(events, std::min(until, absl::Now() + kLook));
    while (!ready && absl::Now() < until) {
      if (ends && ends()) until = std::min(until, absl::Now() + kLastTry);
      ready = AwaitSocket(events, std::min(until, absl::Now() + kLook));
    }
    if (!ready) {
      // Less than it had, where this program was told to end.
      const std::string limit = absl::FormatDuration(absl::Trunc(until - begun, absl::Milliseconds(100)));
      return PostgresError(target_, "", absl::StrCat("it did not answer within ", limit));
    }
    state = PQconnectPoll(connection_);
  }
  if (state == PGRES_POLLING_OK) return absl::OkStatus();
  const StartError error = ParseStartError(PQerrorMessage(connection_));
  return ErrorOf(error.sqlstate, error.message);
}

absl::Status PostgresConnection::SetUp() {
  PQsetErrorVerbosity(connection_, PQERRORS_DEFAULT);
  PQsetnonblocking(connection_, 1);
  PQenterPipelineMode(connection_);
  Answers answers = RoundTrip({{&kSetUp, PostgresValues(Milliseconds(times_.statement), Milliseconds(times_.lock))},
                               {&kAbout, PostgresValues()}});
  if (!answers.status.ok()) return answers.status;
  const PostgresRows& about = answers.rows[1];
  if (about.Int(0, 0) < kLeastVersion) {
    return PostgresFieldError(
        target_, absl::StrCat("it is PostgreSQL ", std::string(about.Text(0, 4)), ": version 15 or newer is needed"),
        absl::StatusCode::kFailedPrecondition);
  }
  if (about.Text(0, 1) != "UTF8") {
    return PostgresFieldError(
        target_,
        absl::StrCat("its encoding is ", std::string(about.Text(0, 1)), ": createdb --encoding=UTF8 --template=template0"),
        absl::StatusCode::kFailedPrecondition);
  }
  for (const int column : {2, 3}) {
    if (about.Text(0, column) != "off") continue;
    absl::StrAppend(&doubts_, doubts_.empty() ? "" : ", ", column == 2 ? "fsync" : "full_page_writes", " = off");
  }
  return absl::OkStatus();
}

PostgresConnection::Answers PostgresConnection::RoundTrip(const std::vector<Query>& queries) {
  if (on_round_trip_) on_round_trip_();
  Send(queries);
  return Collect();
}

void PostgresConnection::Post(const std::vector<Query>& queries) {
  Send(queries);
  ++posted_;
  if (!lost() && PQflush(connection_) < 0) LoseByLibrary();
}

void PostgresConnection::Send(const std::vector<Query>& queries) {
  for (const Query& query : queries) {
    if (lost()) return;
    SendOne(query);
  }
  if (lost()) return;
  if (PQpipelineSync(connection_) != 1) return LoseByLibrary();
  expected_.push_back({Expected::kSync, nullptr});
}

void PostgresConnection::SendOne(const Query& query) {
  const PostgresValues& values = query.values;
  const int count = static_cast<int>(values.bytes_.size());
  if (prepared_.emplace(query.statement, false).second) {
    const Oid* const types = values.types_.data();
    if (PQsendPrepare(connection_, query.statement->name, query.statement->text, count, types) != 1) return LoseByLibrary();
    expected_.push_back({Expected::kPrepared, query.statement});
  }
  std::vector<const char*> bytes;
  std::vector<int> lengths, formats(static_cast<size_t>(count), kBinary);
  for (int i = 0; i < count; ++i) {
    bytes.push_back(values.null_[i] ? nullptr : values.bytes_[i].data());
    lengths.push_back(static_cast<int>(values.bytes_[i].size()));
  }
  const int sent = PQsendQueryPrepared(connection_, query.statement->name, count, bytes.data(), lengths.data(), formats.data(),
                                       kBinary);
  if (sent != 1) return LoseByLibrary();
  expected_.push_back({Expected::kAnswer, query.statement});
}

PostgresConnection::Answers PostgresConnection::Collect() {
  Answers answers;
  while (!lost() && !expected_.empty()) {
    const Item item = expected_.front();
    PGresult* const result = NextResult();
    if (result == nullptr && !lost()) LoseByLibrary();
    if (lost()) {
      PQclear(result);
      break;
    }
    expected_.pop_front();
    if (item.what != Expected::kSync) {
      Take(item, result, &answers);
      PQclear(NextResult());  // the end of this statement's results
    } else {
      PQclear(result);
      if (posted_ > 0) --posted_, answers = Answers();
    }
  }
  if (lost()) answers.status = lost_, answers.sqlstate.clear();
  return answers;
}

// Owns the result.
void PostgresConnection::Take(const Item& item, PGresult* result, Answers* answers) {
  PostgresRows rows(result);
  const ExecStatusType status = PQresultStatus(result);
  const bool good = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
  if (item.what == Expected::kPrepared) {
    good ? void(prepared_[item.statement] = true) : void(prepared_.erase(item.statement));
  }
  if (!good && answers->status.ok()) {
    const char* const state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char* const message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    answers->sqlstate = state == nullptr ? "" : state;
    answers->status = ErrorOf(answers->sqlstate, message == nullptr ? PQresultErrorMessage(result) : message);
  }
  if (good && answers->status.ok() && item.what == Expected::kAnswer) answers->rows.push_back(std::move(rows));
}

// Null: the end of a statement's results, or the connection was lost.
PGresult* PostgresConnection::NextResult() {
  while (!lost()) {
    const int unsent = PQflush(connection_);
    if (unsent < 0) {
      // The database may have said why it ended: what it sent is read first.
      if (PQconsumeInput(connection_) != 1) LoseByLibrary();
    }
    if (PQisBusy(connection_) == 0) break;
    if (!AwaitSocket(static_cast<short>(POLLIN | (unsent > 0 ? POLLOUT : 0)), absl::Now() + times_.silence)) {
      Lose(absl::StrCat("it has not answered for ", absl::FormatDuration(times_.silence)));
    } else if (PQconsumeInput(connection_) != 1) {
      LoseByLibrary();
    }
  }
  if (lost()) return nullptr;
  PGresult* const result = PQgetResult(connection_);
  if (PQstatus(connection_) == CONNECTION_BAD) LoseByLibrary();
  return result;
}

bool PostgresConnection::AwaitSocket(short events, absl::Time until) {
  while (true) {
    pollfd descriptor = {PQsocket(connection_), events, 0};
    const int64_t left = std::max<int64_t>(0, absl::ToInt64Milliseconds(until - absl::Now()));
    const int ready = poll(&descriptor, 1, static_cast<int>(std::min<int64_t>(left, 1'000'000'000)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

void PostgresConnection::Lose(const std::string& why) {
  if (lost_.ok()) lost_ = PostgresError(target_, "", why);
}

void PostgresConnection::LoseByLibrary() { Lose(PQerrorMessage(connection_)); }

// All errors that the database tells pass here.
absl::Status PostgresConnection::ErrorOf(const std::string& sqlstate, const std::string& message) const {
  absl::Status error = PostgresError(target_, sqlstate, message);
  if (absl::IsDataLoss(error) && on_damage_) on_damage_(error);
  return error;
}

absl::Status PostgresConnection::RunScript(const std::string& sql) {
  Collect();  // what was posted
  RETURN_IF_ERROR(lost_);
  PQexitPipelineMode(connection_);
  PQsetnonblocking(connection_, 0);
  PGresult* const result = PQexec(connection_, sql.c_str());
  const ExecStatusType status = PQresultStatus(result);
  absl::Status error;
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
    const char* const state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    error = ErrorOf(state == nullptr ? "" : state, PQresultErrorMessage(result));
  }
  PQclear(result);
  PQsetnonblocking(connection_, 1);
  PQenterPipelineMode(connection_);
  if (PQstatus(connection_) == CONNECTION_BAD) LoseByLibrary();
  return error;
}

}  // namespace legoai::store
