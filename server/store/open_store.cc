#include "server/store/open_store.h"

#include "absl/strings/match.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/store/postgres_target.h"

namespace legoai::store {
namespace {

bool IsPostgres(const std::string& url) { return absl::StartsWith(url, "postgresql:") || absl::StartsWith(url, "postgres:"); }

// It is not shown: it may be an address with a password, but for a slip at its beginning.
absl::Status NoStore() { return FieldError("store", "", "must be sqlite:PATH or postgresql://USER@HOST:PORT/DATABASE"); }

}  // namespace

std::optional<std::string> SqlitePath(const std::string& url) {
  constexpr char kSqlite[] = "sqlite:";
  if (!absl::StartsWith(url, kSqlite) || url == kSqlite) return std::nullopt;
  return url.substr(sizeof(kSqlite) - 1);
}

absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& url, const SqliteOptions& sqlite,
                                                 const PostgresOptions& postgres) {
  if (const auto path = SqlitePath(url)) return OpenSqliteStore(*path, sqlite);
  if (IsPostgres(url)) return OpenPostgresStore(url, postgres);
  return NoStore();
}

absl::StatusOr<std::string> StoreText(const std::string& url) {
  if (SqlitePath(url)) return url;
  if (!IsPostgres(url)) return NoStore();
  ASSIGN_OR_RETURN(const PostgresTarget target, ParsePostgresTarget(url));
  return target.text;
}

}  // namespace legoai::store
