#include "server/store/sqlite_store.h"

#include <utility>

#include "server/store/database.h"
#include "server/store/file_lock.h"
#include "server/store/group_writer.h"
#include "server/store/reader_pool.h"
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

class SqliteStore final : public Store {
 public:
  SqliteStore(FileLock lock, std::unique_ptr<Database> database)
      : lock_(std::move(lock)), database_(std::move(database)), writer_(*database_), readers_(database_->path(), kReaders) {}

  absl::Status Write(const std::function<absl::Status(Transaction&)>& work) override {
    if (inside == this) return Nested();
    const GroupWriter::Work guarded = [&](Transaction& transaction) {
      const Inside here(this);
      return work(transaction);
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
  const std::unique_ptr<Database> database_;
  GroupWriter writer_;
  ReaderPool readers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path) {
  absl::StatusOr<FileLock> lock = FileLock::Take(path);
  if (!lock.ok()) return lock.status();
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(path, Database::Use::kWrite);
  if (!database.ok()) return database.status();
  if (absl::Status status = PrepareSchema(**database); !status.ok()) return status;
  return std::make_unique<SqliteStore>(*std::move(lock), *std::move(database));
}

}  // namespace legoai::store
