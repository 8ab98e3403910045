#include "server/store/sqlite_store.h"

#include <utility>

#include "proto/status.h"
#include "server/store/connections.h"
#include "server/store/database.h"
#include "server/store/file_lock.h"
#include "server/store/guarded_store.h"
#include "server/store/repair.h"
#include "server/store/schema.h"

namespace legoai::store {
namespace {

constexpr int kReaders = 4;

class SqliteStore final : public GuardedStore {
 public:
  SqliteStore(FileLock lock, std::shared_ptr<DamageLatch> damage, std::unique_ptr<Database> database)
      : GuardedStore(damage),
        lock_(std::move(lock)),
        database_(std::move(database)),
        writer_(*database_),
        readers_(database_->path(), kReaders, [damage](const absl::Status& error) { damage->Set(error); }) {}

  std::string Backend() const override { return "sqlite"; }
  int64_t SchemaVersion() const override { return store::SchemaVersion(); }

 private:
  absl::Status WriteOnce(const WriteWork& work) override { return writer_.Write(work); }
  absl::Status ReadOnce(const ReadWork& work) override { return readers_.Read(work); }

  // In this order: the lock is given back last, and the writer's connection, closed after all others, empties the log.
  const FileLock lock_;
  const std::unique_ptr<Database> database_;
  GroupWriter writer_;
  ReaderPool readers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path, const SqliteOptions& options) {
  ASSIGN_OR_RETURN(FileLock lock, FileLock::Take(path));
  ASSIGN_OR_RETURN(const bool finished, CheckIntegrity(path, options.check_budget));
  if (lock.made() && !HasContent(path)) {
    return DamageError(path, "it is empty or gone, though a store was made there; to begin a new one, remove it and its .lock");
  }
  if (!finished && options.on_unfinished_check) options.on_unfinished_check();
  const auto damage = std::make_shared<DamageLatch>(options.on_damage);
  absl::StatusOr<std::unique_ptr<Database>> database =
      Database::Open(path, Database::Use::kWrite, [damage](const absl::Status& what) { damage->Set(what); });
  if (!database.ok()) return database.status();
  RETURN_IF_ERROR(PrepareSchema(**database));
  lock.NoteMade();
  return std::make_unique<SqliteStore>(std::move(lock), damage, *std::move(database));
}

}  // namespace legoai::store
