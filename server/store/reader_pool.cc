#include "server/store/reader_pool.h"

#include <utility>

#include "proto/status.h"
#include "server/store/sqlite_transaction.h"

namespace legoai::store {
namespace {

absl::Status ReadOnce(Database& database, const std::function<absl::Status(ReadTransaction&)>& work) {
  database.ForgetFailure();
  RETURN_IF_ERROR(database.Run("BEGIN"));
  SqliteTransaction transaction(database);
  absl::Status status = work(transaction);
  if (database.in_transaction()) (void)database.Run("COMMIT");
  // An error that `work` passed over is one all the same, where it is the file's.
  return status.ok() ? database.failure() : status;
}

}  // namespace

absl::Status ReaderPool::Read(const std::function<absl::Status(ReadTransaction&)>& work) {
  absl::StatusOr<std::unique_ptr<Database>> database = Take();
  if (!database.ok()) return database.status();
  absl::Status status = ReadOnce(**database, work);
  GiveBack(*std::move(database));
  return status;
}

absl::StatusOr<std::unique_ptr<Database>> ReaderPool::Take() {
  {
    MutexLock lock(mutex_);
    while (!(!idle_.empty() || unopened_ > 0)) freed_.Wait(lock);
    if (!idle_.empty()) {
      std::unique_ptr<Database> database = std::move(idle_.back());
      idle_.pop_back();
      return database;
    }
    --unopened_;
  }
  absl::StatusOr<std::unique_ptr<Database>> opened = Database::Open(path_, Database::Use::kRead, on_damage_);
  if (!opened.ok()) GiveBack(nullptr);
  return opened;
}

// Null: one more may be opened.
void ReaderPool::GiveBack(std::unique_ptr<Database> database) {
  const MutexLock lock(mutex_);
  if (database == nullptr) {
    ++unopened_;
  } else {
    idle_.push_back(std::move(database));
  }
  freed_.NotifyOne();
}

}  // namespace legoai::store
