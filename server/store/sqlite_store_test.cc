// The embedded store meets the contract, and makes writes of several threads durable together.
#include "server/store/sqlite_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/store/contract_test.h"

namespace legoai::store {

INSTANTIATE_TEST_SUITE_P(Sqlite, StoreContract,
                         testing::Values(Backend{
                             "sqlite", [](const std::string& folder) { return OpenSqliteStore(folder + "/store.db"); }}),
                         BackendName);

namespace {

namespace fs = std::filesystem;

class SqliteStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(testing::TempDir(), "/sqlite-store-", getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    auto store = OpenSqliteStore(folder_ + "/store.db");
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  void TearDown() override {
    store_.reset();
    fs::remove_all(folder_);
  }
  // Every commit adds at least one page to the log, which is emptied only when it is much longer than in these tests.
  int64_t LogBytes() const { return static_cast<int64_t>(fs::file_size(folder_ + "/store.db-wal")); }
  // Always the same row: one page a commit.
  absl::Status PutWorker(const std::function<void()>& before = [] {}) {
    return store_->Write([&](Transaction& t) {
      before();
      v1::Worker worker;
      worker.set_name("workers/w");
      return t.PutWorker(worker);
    });
  }

  std::string folder_;
  std::unique_ptr<Store> store_;
};

TEST_F(SqliteStoreTest, SaysWhatItIs) {
  EXPECT_EQ(store_->Backend(), "sqlite");
  EXPECT_EQ(store_->SchemaVersion(), 2);
}

TEST_F(SqliteStoreTest, WritesThatWaitAreCommittedTogether) {
  constexpr int kThreads = 8;
  ASSERT_TRUE(PutWorker().ok());
  const int64_t before = LogBytes();
  ASSERT_TRUE(PutWorker().ok());
  const int64_t one = LogBytes() - before;
  ASSERT_GT(one, 0);
  // While the first function runs, the others come. That one comes too late is possible, in every round it is not.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool together = false;
  while (!together && std::chrono::steady_clock::now() < deadline) {
    const int64_t start = LogBytes();
    std::atomic<int> coming = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        ++coming;
        EXPECT_TRUE(PutWorker([&] {
                      while (coming < kThreads) std::this_thread::yield();
                    }).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
    const int64_t written = LogBytes() - start;
    together = written > 0 && written <= one * kThreads / 2;
  }
  EXPECT_TRUE(together);
}

}  // namespace
}  // namespace legoai::store
