// Workers, by name.
#include "server/store/sqlite_transaction.h"

namespace legoai::store {

absl::Status SqliteTransaction::PutWorker(const v1::Worker& worker) {
  return database_.Run("INSERT OR REPLACE INTO workers (name, value) VALUES (?1, ?2)", worker.name(), worker);
}

absl::Status SqliteTransaction::DeleteWorker(const std::string& name) {
  return database_.Run("DELETE FROM workers WHERE name = ?1", name);
}

absl::StatusOr<std::vector<v1::Worker>> SqliteTransaction::ListWorkers() {
  return AllMessages<v1::Worker>(database_.Query("SELECT value FROM workers ORDER BY name"));
}

absl::StatusOr<std::optional<v1::Worker>> SqliteTransaction::GetWorker(const std::string& name) {
  return FirstMessage<v1::Worker>(database_.Query("SELECT value FROM workers WHERE name = ?1", name));
}

}  // namespace legoai::store
