#include "server/store/testing/test_store.h"

#include <cstdlib>
#include <map>

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
  static Mutex mutex;
  static auto* const schemas = new std::map<std::string, std::string>;
  const MutexLock lock(mutex);
  const auto [found, added] = schemas->try_emplace(folder, absl::StrCat("test_", schemas->size() + 1));
  return PostgresServer::OfThisProcess().Url(found->second);
}

}  // namespace legoai::store
