#include "server/store/postgres_target.h"

#include <postgresql/libpq-fe.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::store {
namespace {

using absl::StatusCode;

// An entry of a class of SQLSTATEs stands behind those of it that are told apart.
struct Meaning {
  const char* prefix;
  StatusCode code;
  const char* remedy;
};
constexpr Meaning kMeanings[] = {
    {"53100", StatusCode::kResourceExhausted,
     "the database's disk is full: nothing of this was kept; free space there and try again"},
    {"53200", StatusCode::kResourceExhausted, "the database has no memory left: give its machine more, or its settings less"},
    {"53300", StatusCode::kUnavailable, "it has no connection left: raise its max_connections; this server needs six"},
    {"53", StatusCode::kResourceExhausted, "the database is short of something: see its own log"},
    {"54", StatusCode::kResourceExhausted, "it is more than PostgreSQL takes"},
    {"40", StatusCode::kAborted, "another transaction changed the same rows"},
    {"55P03", StatusCode::kUnavailable,
     "another session locks what this needs: end what works on these tables beside the server"},
    {"57014", StatusCode::kUnavailable, "it took longer than a statement may: see what loads the database"},
    {"57", StatusCode::kUnavailable, "the database ends, starts or was told to drop the connection: it is tried again"},
    {"58", StatusCode::kUnavailable, "the database's machine failed: check its disk and its log"},
    {"08", StatusCode::kUnavailable, "the connection failed: check that the database runs and can be reached"},
    {"25006", StatusCode::kUnavailable, "it takes no changes, as a standby does: name the primary"},
    {"28", StatusCode::kPermissionDenied,
     "the database refuses the user: check its pg_hba.conf, the user, and the password in PGPASSWORD or the password file"},
    {"42501", StatusCode::kPermissionDenied, "the user has no right to it: make the user the owner of database and schema"},
    {"3D000", StatusCode::kNotFound, "there is no such database: createdb --encoding=UTF8"},
    {"22021", StatusCode::kInvalidArgument, "a text has bytes that no text has"},
    {"XX001", StatusCode::kDataLoss, "PostgreSQL met damaged data, and nothing is written any more: restore a backup"},
    {"XX002", StatusCode::kDataLoss,
     "PostgreSQL met a damaged index, and nothing is written any more: REINDEX, or restore a backup"},
};

// libpq ends lines, and says more in those that follow.
std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

absl::StatusOr<PostgresTarget> ParsePostgresTarget(const std::string& url) {
  constexpr char kForm[] = "must be postgresql://USER@HOST:PORT/DATABASE, with %XX for special characters in its parts";
  // libpq's own error would repeat what was written.
  const std::unique_ptr<PQconninfoOption, void (*)(PQconninfoOption*)> options(PQconninfoParse(url.c_str(), nullptr),
                                                                               PQconninfoFree);
  if (options == nullptr || !(absl::StartsWith(url, "postgresql://") || absl::StartsWith(url, "postgres://")))
    return FieldError("store", "", kForm);
  PostgresTarget target;
  std::map<std::string, std::string> known;
  for (const PQconninfoOption* option = options.get(); option->keyword != nullptr; ++option) {
    if (option->val != nullptr) target.keywords[option->keyword] = option->val;
    const char* const outside = option->envvar == nullptr ? nullptr : std::getenv(option->envvar);
    const char* const value = option->val != nullptr ? option->val : outside;
    if (value != nullptr) known[option->keyword] = value;
  }
  target.text = "postgresql:";
  for (const char* shown : {"service", "host", "hostaddr", "port", "dbname", "user"}) {
    if (known.contains(shown)) absl::StrAppend(&target.text, " ", shown, "=", known[shown]);
  }
  RETURN_IF_ERROR(CheckPrintable("store", target.text));
  return target;
}

absl::Status PostgresFieldError(const PostgresTarget& target, const std::string& remedy, StatusCode code) {
  return FieldError("store", target.text, remedy, code);
}

absl::Status PostgresError(const PostgresTarget& target, const std::string& sqlstate, const std::string& message) {
  const std::string said = absl::StrCat(FirstLine(message), sqlstate.empty() ? "" : absl::StrCat(" (SQLSTATE ", sqlstate, ")"));
  // Without a code it is libpq that speaks: nobody answered.
  if (sqlstate.empty()) {
    return PostgresFieldError(target, absl::StrCat(said, ": check that the database runs and can be reached"),
                              StatusCode::kUnavailable);
  }
  for (const Meaning& meaning : kMeanings) {
    if (absl::StartsWith(sqlstate, meaning.prefix))
      return PostgresFieldError(target, absl::StrCat(said, ": ", meaning.remedy), meaning.code);
  }
  return absl::InternalError(absl::StrCat("store ", target.text, ": ", said));
}

}  // namespace legoai::store
