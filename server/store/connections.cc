#include "server/store/connections.h"

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

GroupWriter::GroupWriter(Database& database)
    : database_(database), queue_([this](const Group& group) { RunGroup(group); }) {}

void GroupWriter::RunGroup(const Group& group) {
  if (group.size() > 1 && RunTogether(group)) return;
  for (WriteQueue::Request* request : group) request->status = RunAlone(request->work);
}

// False where nothing of the group is kept. A status means what it says only once all before it is durable.
bool GroupWriter::RunTogether(const Group& group) {
  if (!Begin().ok()) return false;
  for (WriteQueue::Request* request : group) {
    request->status = RunInSavepoint(request->work);
    if (!database_.failure().ok()) {
      Rollback();
      return false;
    }
  }
  return Commit().ok();
}

absl::Status GroupWriter::RunAlone(const Work& work) {
  RETURN_IF_ERROR(Begin());
  SqliteTransaction transaction(database_);
  absl::Status status = work(transaction);
  // An error that `work` passed over is one all the same, where it is the file's.
  if (status.ok()) status = database_.failure();
  if (status.ok()) return Commit();
  Rollback();
  return status;
}

absl::Status GroupWriter::RunInSavepoint(const Work& work) {
  RETURN_IF_ERROR(database_.Run("SAVEPOINT one"));
  SqliteTransaction transaction(database_);
  const absl::Status status = work(transaction);
  // What these return is in failure(), too.
  if (!status.ok()) (void)database_.Run("ROLLBACK TO one");
  (void)database_.Run("RELEASE one");
  return status;
}

absl::Status GroupWriter::Begin() {
  database_.ForgetFailure();
  return database_.Run("BEGIN IMMEDIATE");
}

absl::Status GroupWriter::Commit() {
  const absl::Status status = database_.Run("COMMIT");
  if (!status.ok()) Rollback();
  return status;
}

// Some errors have ended the transaction already.
void GroupWriter::Rollback() {
  if (database_.in_transaction()) (void)database_.Run("ROLLBACK");
}

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
