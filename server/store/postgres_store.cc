#include "server/store/postgres_store.h"

#include <unistd.h>

#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "server/store/guarded_store.h"
#include "server/store/postgres_readers.h"
#include "server/store/postgres_schema.h"
#include "server/store/postgres_writer.h"

namespace legoai::store {
namespace {

std::string ThisProcess() {
  char host[HOST_NAME_MAX + 1] = "";
  gethostname(host, HOST_NAME_MAX);
  return absl::StrCat("process ", getpid(), " on ", host);
}

PostgresWriterOptions WriterOptions(const PostgresOptions& options) {
  return {.times = options.times,
          .patience = options.patience,
          .other_server = options.other_server,
          .holder = ThisProcess(),
          .address = options.address,
          .on_round_trip = options.on_round_trip,
          .on_trouble = options.on_trouble,
          .on_superseded = options.on_superseded,
          .ends = options.ends};
}

class PostgresStore final : public GuardedStore {
 public:
  PostgresStore(const PostgresTarget& target, const PostgresOptions& options, const std::shared_ptr<DamageLatch>& damage)
      : GuardedStore(damage),
        readers_(target, options.times, options.readers, options.patience, options.on_round_trip, options.ends, damage),
        writer_(target, WriterOptions(options), damage) {}

  absl::Status Begin() { return writer_.Begin(); }
  const std::string& doubts() const { return writer_.doubts(); }
  int64_t term() const { return writer_.term(); }

  std::string Backend() const override { return "postgresql"; }
  int64_t SchemaVersion() const override { return PostgresSchemaVersion(); }

 private:
  absl::Status WriteOnce(const WriteWork& work) override { return writer_.Write(work); }
  absl::Status ReadOnce(const ReadWork& work) override { return readers_.Read(work); }

  PostgresReaders readers_;
  PostgresWriter writer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenPostgresStore(const std::string& url, const PostgresOptions& options) {
  ASSIGN_OR_RETURN(const PostgresTarget target, ParsePostgresTarget(url));
  const auto damage = std::make_shared<DamageLatch>(options.on_damage);
  auto store = std::make_unique<PostgresStore>(target, options, damage);
  RETURN_IF_ERROR(store->Begin());
  if (options.on_leads) options.on_leads(store->term());
  if (!store->doubts().empty() && options.on_trouble) {
    options.on_trouble(
        absl::StrCat("the database has ", store->doubts(), ": what was told to be kept may be lost with its machine"));
  }
  return store;
}

}  // namespace legoai::store
