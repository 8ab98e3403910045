#include "server/store/group_writer.h"

#include <utility>

#include "proto/status.h"
#include "server/store/sqlite_transaction.h"

namespace legoai::store {

GroupWriter::GroupWriter(Database& database) : database_(database), thread_([this] { Loop(); }) {}

GroupWriter::~GroupWriter() {
  {
    const MutexLock lock(mutex_);
    end_ = true;
    wake_.NotifyOne();
  }
  thread_.join();
}

absl::Status GroupWriter::Write(const Work& work) {
  Request request(work);
  MutexLock lock(mutex_);
  waiting_.push_back(&request);
  wake_.NotifyOne();
  while (!request.done) request.answered.Wait(lock);
  return std::move(request.status);
}

void GroupWriter::Loop() {
  MutexLock lock(mutex_);
  while (true) {
    while (!end_ && waiting_.empty()) wake_.Wait(lock);
    if (waiting_.empty()) return;
    const Group group = std::exchange(waiting_, {});
    lock.Unlock();
    RunGroup(group);
    lock.Lock();
    // Under the lock: once it is free the requests are gone.
    for (Request* request : group) {
      request->done = true;
      request->answered.NotifyOne();
    }
  }
}

void GroupWriter::RunGroup(const Group& group) {
  if (group.size() > 1 && RunTogether(group)) return;
  for (Request* request : group) request->status = RunAlone(request->work);
}

// False where nothing of the group is kept. A status means what it says only once all before it is durable.
bool GroupWriter::RunTogether(const Group& group) {
  if (!Begin().ok()) return false;
  for (Request* request : group) {
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

}  // namespace legoai::store
