// The embedded store meets the contract.
#include "server/store/sqlite_store.h"

#include <gtest/gtest.h>

#include "server/store/contract_test.h"

namespace legoai::store {

INSTANTIATE_TEST_SUITE_P(Sqlite, StoreContract,
                         testing::Values(Backend{
                             "sqlite", [](const std::string& folder) { return OpenSqliteStore(folder + "/store.db"); }}),
                         BackendName);

TEST(SqliteStore, SaysWhatItIs) {
  const auto store = OpenSqliteStore(testing::TempDir() + "/what.db");
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->Backend(), "sqlite");
  EXPECT_EQ((*store)->SchemaVersion(), 1);
}

}  // namespace legoai::store
