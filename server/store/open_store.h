// The store that a user names, whichever back end it has.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/store/postgres_store.h"
#include "server/store/sqlite_store.h"
#include "server/store/store.h"

namespace legoai::store {

// `url`: sqlite:PATH or postgresql://... (postgres_target.h). Errors: those of OpenSqliteStore and OpenPostgresStore; FieldError
// of `store` for another form.
absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& url, const SqliteOptions& sqlite = {},
                                                 const PostgresOptions& postgres = {});

// The path of sqlite:PATH; nothing for another form.
std::optional<std::string> SqlitePath(const std::string& url);

// As it may be shown to people and in logs: without passwords. Errors: as above.
absl::StatusOr<std::string> StoreText(const std::string& url);

}  // namespace legoai::store
