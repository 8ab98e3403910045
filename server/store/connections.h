// The connections of the embedded store: one that writes, and several that read beside it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/process/mutex.h"
#include "server/store/database.h"
#include "server/store/store.h"

namespace legoai::store {

// Runs write transactions of many threads one after the other on a thread of its own, and makes those that wait together durable
// with one sync of the disk (group commit): while a group is being committed the next one gathers.
//
// Each function runs in a savepoint, so that an error undoes only what it did itself. If the group as a whole cannot be committed
// (a full disk), each function runs again in a transaction of its own, so that a large one does not take the small ones with it.
// Thread-safe.
class GroupWriter {
 public:
  using Work = std::function<absl::Status(Transaction&)>;

  // `database` is its own from now on, and must outlive it.
  explicit GroupWriter(Database& database);
  // Ends after what is under way; nobody may be in Write().
  ~GroupWriter();
  GroupWriter(const GroupWriter&) = delete;
  GroupWriter& operator=(const GroupWriter&) = delete;

  // Blocks until the work is durable or refused. `work` runs on the writer's thread, once or more.
  absl::Status Write(const Work& work);

 private:
  // On the stack of the thread that waits for it.
  struct Request {
    explicit Request(const Work& its_work) : work(its_work) {}
    const Work& work;
    absl::Status status;
    bool done = false;  // guarded by the writer's mutex_
    Condition answered;
  };
  using Group = std::vector<Request*>;

  void Loop();
  void RunGroup(const Group& group);
  bool RunTogether(const Group& group);
  absl::Status RunAlone(const Work& work);
  absl::Status RunInSavepoint(const Work& work);
  absl::Status Begin();
  absl::Status Commit();
  void Rollback();

  Database& database_;
  Mutex mutex_;
  Condition wake_;
  Group waiting_ ABSL_GUARDED_BY(mutex_);
  bool end_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Connections for reading, each used by one thread at a time; a transaction on one sees one state of the database whatever is
// written meanwhile (WAL). Thread-safe.
class ReaderPool {
 public:
  // `connections` to `path` at most, opened when they are first needed; who finds none free waits. `on_damage`: database.h.
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
