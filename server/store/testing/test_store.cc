#include "server/store/testing/test_store.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "core/process/mutex.h"
#include "server/store/testing/postgres_server.h"

namespace legoai::store {

bool TestStoreIsPostgres() {
  const char* const asked = std::getenv("LEGOAI_TEST_STORE");
  return asked != nullptr && std::string(asked) == "postgresql";
}

std::string TestStoreUrl(const std::string& folder) {
  if (!TestStoreIsPostgres()) return absl::StrCat("sqlite:", folder, "/legoai.db");
  // It goes with the folder: where that was removed, the next store is an empty one.
  static Mutex mutex;
  static int schemas = 0;
  const MutexLock lock(mutex);
  std::filesystem::create_directories(folder);
  const std::string file = folder + "/postgresql-schema";
  std::string schema;
  std::ifstream(file) >> schema;
  if (schema.empty()) {
    schema = absl::StrCat("test_", ++schemas);
    std::ofstream(file) << schema;
  }
  return PostgresServer::OfThisProcess().Url(schema);
}

}  // namespace legoai::store
