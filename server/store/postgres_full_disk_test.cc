// A disk that fills below a real PostgreSQL: what was answered is kept, and the store goes on once there is room.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "core/checkpoint/testing/small_file_system.h"
#include "proto/testing/assert_ok.h"
#include "server/store/testing/fault_jobs.h"
#include "server/store/testing/postgres_server.h"

namespace legoai::store {
namespace {

namespace fs = std::filesystem;

// The tables lie on a small file system of their own, as a database's disk is that fills.
TEST(PostgresFullDisk, LosesNothingAndTheStoreGoesOn) {
  const std::string folder = "/tmp/legoai-small-" + std::to_string(getpid());
  fs::create_directories(folder);
  EXPECT_TRUE(checkpoint::PassesInChild([folder] {
    const absl::Status mounted = checkpoint::MountSmallFileSystem(folder, 8 << 20);
    ASSERT_TRUE(mounted.ok()) << mounted;
    std::ofstream(folder + "/other") << std::string(4 << 20, 'x');
    const std::string space = folder + "/space";
    fs::create_directories(space);
    ASSERT_OK_AND_ASSIGN(const auto server, PostgresServer::Start());
    struct stat owner;
    ASSERT_EQ(stat((server->folder() + "/data").c_str(), &owner), 0);
    ASSERT_EQ(chown(space.c_str(), owner.st_uid, owner.st_gid), 0);
    ASSERT_OK_AND_ASSIGN(const std::string made, server->Sql("CREATE TABLESPACE small LOCATION '" + space + "'"));
    const std::string url = server->Url("filled") + "%20-cdefault_tablespace%3Dsmall";
    int64_t durable = 0;
    {
      ASSERT_OK_AND_ASSIGN(const auto store, OpenPostgresStore(url, Short()));
      absl::Status status;
      while (durable < 2000 && (status = Insert(*store, durable, 20'000)).ok()) ++durable;
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      EXPECT_TRUE(absl::StrContains(status.message(), "the database's disk is full")) << status;
      EXPECT_GT(durable, 10);
      EXPECT_EQ(Count(*store), durable);
      // Nothing of a transaction is kept: not the small job before the large one either.
      EXPECT_EQ(store
                    ->Write([&](Transaction& t) {
                      EXPECT_TRUE(t.InsertJob(MakeJob(5000, 10), {}).ok());
                      return t.InsertJob(MakeJob(5001, 3 << 20), {});
                    })
                    .code(),
                absl::StatusCode::kResourceExhausted);
      // Nor where the function passes over it.
      EXPECT_EQ(store
                    ->Write([&](Transaction& t) {
                      for (int64_t i = 0; i < 3; ++i) (void)t.InsertJob(MakeJob(6000 + i, 3 << 20), {});
                      return absl::OkStatus();
                    })
                    .code(),
                absl::StatusCode::kResourceExhausted);
      EXPECT_EQ(Count(*store), durable);
      fs::remove(folder + "/other");
      EXPECT_TRUE(Insert(*store, durable++, 20'000).ok());
      EXPECT_EQ(Count(*store), durable);
    }
    ASSERT_OK_AND_ASSIGN(const auto store, OpenPostgresStore(url, Short()));
    EXPECT_EQ(Count(*store), durable);
  }));
  fs::remove_all(folder);
}

// All of the database lies on a disk that fills: PostgreSQL may end for want of room for its log.
TEST(PostgresFullDisk, ADatabaseThatEndsIsAwayAndLosesNothing) {
  const std::string folder = "/tmp/legoai-small-" + std::to_string(getpid());
  fs::create_directories(folder);
  EXPECT_TRUE(checkpoint::PassesInChild([folder] {
    const absl::Status mounted = checkpoint::MountSmallFileSystem(folder, 160 << 20);
    ASSERT_TRUE(mounted.ok()) << mounted;
    std::ofstream(folder + "/other") << std::string(48 << 20, 'x');
    ASSERT_OK_AND_ASSIGN(const auto server, PostgresServer::Start(folder));
    const std::string url = server->Url("filled");
    int64_t durable = 0;
    ASSERT_OK_AND_ASSIGN(auto store, OpenPostgresStore(url, Short()));
    absl::Status status;
    while (durable < 5000 && (status = Insert(*store, durable, 100'000)).ok()) ++durable;
    EXPECT_TRUE(absl::IsResourceExhausted(status) || absl::IsUnavailable(status)) << status;
    std::cout << durable << " jobs, then " << status << "\n";
    fs::remove(folder + "/other");
    if (!server->Sql("SELECT 1").ok()) {
      server->EndImmediately();
      ASSERT_TRUE(server->StartAgain().ok());
    }
    EXPECT_EQ(Count(*store), durable);
    const absl::Status again = Insert(*store, durable, 100'000);
    EXPECT_TRUE(again.ok()) << again;
    EXPECT_EQ(Count(*store), durable + 1);
    store.reset();
  }));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace legoai::store
