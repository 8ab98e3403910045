#include "server/store/sqlite_store.h"

#include <utility>

#include "core/process/mutex.h"
#include "proto/status.h"
#include "server/store/connections.h"
#include "server/store/database.h"
#include "server/store/file_lock.h"
#include "server/store/repair.h"
#include "server/store/schema.h"

namespace legoai::store {
namespace {

constexpr int kReaders = 4;
constexpr int kTries = 4;  // of a function that answers Aborted

// The store in which this thread runs a function just now. A function that called it again could wait for itself.
thread_local const void* inside = nullptr;

class Inside {
 public:
  explicit Inside(const void* store) : before_(std::exchange(inside, store)) {}
  ~Inside() { inside = before_; }

 private:
  const void* before_;
};

absl::Status Nested() {
  return absl::FailedPreconditionError("a function that runs in a transaction of the store called the store itself");
}

// The first damage that any connection met. Thread-safe.
class DamageLatch {
 public:
  explicit DamageLatch(std::function<void(const absl::Status&)> tell) : tell_(std::move(tell)) {}

  void Set(const absl::Status& damage) {
    {
      const MutexLock lock(mutex_);
      if (!damage_.ok()) return;
      damage_ = damage;
    }
    if (tell_) tell_(damage);
  }
  absl::Status Get() {
    const MutexLock lock(mutex_);
    return damage_;
  }

 private:
  const std::function<void(const absl::Status&)> tell_;
  Mutex mutex_;
  absl::Status damage_ ABSL_GUARDED_BY(mutex_);
};

class SqliteStore final : public Store {
 public:
  SqliteStore(FileLock lock, std::shared_ptr<DamageLatch> damage, std::unique_ptr<Database> database)
      : lock_(std::move(lock)),
        damage_(damage),
        database_(std::move(database)),
        writer_(*database_),
        readers_(database_->path(), kReaders, [damage](const absl::Status& error) { damage->Set(error); }) {}

  absl::Status Write(const std::function<absl::Status(Transaction&)>& work) override {
    if (inside == this) return Nested();
    const GroupWriter::Work guarded = [&](Transaction& transaction) {
      RETURN_IF_ERROR(damage_->Get());
      const Inside here(this);
      absl::Status status = work(transaction);
      // What `work` read may be wrong, and it may have passed over that.
      return status.ok() ? damage_->Get() : status;
    };
    absl::Status status = writer_.Write(guarded);
    for (int tries = 1; tries < kTries && absl::IsAborted(status); ++tries) status = writer_.Write(guarded);
    return status;
  }

  absl::Status Read(const std::function<absl::Status(ReadTransaction&)>& work) override {
    if (inside == this) return Nested();
    const Inside here(this);
    return readers_.Read(work);
  }

  std::string Backend() const override { return "sqlite"; }
  int64_t SchemaVersion() const override { return store::SchemaVersion(); }

 private:
  // In this order: the lock is given back last, and the writer's connection, closed after all others, empties the log.
  const FileLock lock_;
  const std::shared_ptr<DamageLatch> damage_;
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
