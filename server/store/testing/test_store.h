// Where the stores of tests are that do not care which back end they have.
#pragma once

#include <string>

namespace legoai::store {

// Of a test's own `folder`: a SQLite file in it; with LEGOAI_TEST_STORE=postgresql in the environment a schema of this process's
// PostgreSQL (postgres_server.h), the same one for the same folder. As OpenStore() and legoai-server's --store take it.
std::string TestStoreUrl(const std::string& folder);

bool TestStoreIsPostgres();

}  // namespace legoai::store
