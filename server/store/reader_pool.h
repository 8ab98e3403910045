// Connections for reading, each used by one thread at a time; a transaction on one sees one state of the database whatever is
// written meanwhile (WAL). Thread-safe.
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

namespace legoai::store {

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
