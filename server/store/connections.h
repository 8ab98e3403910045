// The connections of the embedded store: one writer and several concurrent readers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/process/mutex.h"
#include "server/store/database.h"
#include "server/store/store.h"
#include "server/store/write_queue.h"

namespace legoai::store {

// Runs write transactions of many threads one at a time on its own thread, and makes waiting ones durable together with one disk
// sync (group commit, write_queue.h).
//
// Each function runs in a savepoint, so that an error undoes only its own changes. If the group cannot be committed as a whole (a
// full disk), each function runs again in its own transaction, so that a large one does not make the small ones fail.
// Thread-safe.
class GroupWriter {
 public:
  using Work = WriteQueue::Work;

  // Takes exclusive use of `database`, which must outlive it.
  explicit GroupWriter(Database& database);
  GroupWriter(const GroupWriter&) = delete;
  GroupWriter& operator=(const GroupWriter&) = delete;

  // Blocks until the work is durable or refused. `work` runs on the writer's thread, once or several times.
  absl::Status Write(const Work& work) { return queue_.Write(work); }

 private:
  using Group = WriteQueue::Group;

  void RunGroup(const Group& group);
  bool RunTogether(const Group& group);
  absl::Status RunAlone(const Work& work);
  absl::Status RunInSavepoint(const Work& work);
  absl::Status Begin();
  absl::Status Commit();
  void Rollback();

  Database& database_;
  WriteQueue queue_;
};

// Read connections, each used by one thread at a time; a transaction sees a consistent snapshot of the database regardless of
// concurrent writes (WAL). Thread-safe.
class ReaderPool {
 public:
  // At most `connections` to `path`, opened on demand; callers wait if none is free. `on_damage`: database.h.
  ReaderPool(std::string path, int connections, Database::OnDamage on_damage)
      : path_(std::move(path)), on_damage_(std::move(on_damage)), unopened_(connections) {}
  ReaderPool(const ReaderPool&) = delete;
  ReaderPool& operator=(const ReaderPool&) = delete;

  absl::Status Read(const std::function<absl::Status(ReadTransaction&)>& work);

 private:
  absl::StatusOr<std::unique_ptr<Database>> Take();
  void GiveBack(std::unique_ptr<Database> database);

  const std::string path_;
  const Database::OnDamage on_damage_;
  Mutex mutex_;
  Condition freed_;
  int unopened_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Database>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace legoai::store
