#include "worker/agent/gang_folder.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <thread>

#include "proto/errors.h"

namespace legoai::agent {
namespace {

class GangFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/gang-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    start_.mutable_lease()->set_job("projects/default/jobs/01J");
    start_.mutable_lease()->set_epoch(3);
    start_.set_attempt(2);
    start_.mutable_placement()->set_worker("workers/b");
    start_.mutable_gang()->set_first_worker("workers/a");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  absl::Status Await(absl::Duration timeout = absl::Milliseconds(200)) {
    return AwaitGangNote(folder_, start_, timeout, [this] { return given_up_; });
  }

  std::string folder_;
  v1::StartAttempt start_;
  bool given_up_ = false;
};

TEST_F(GangFolderTest, WhoeverSeesTheFolderFindsTheNoteOfTheAttempt) {
  ASSERT_TRUE(WriteGangNote(folder_, start_).ok());
  EXPECT_TRUE(Await().ok());
  // It is the first worker's to write, whenever it comes to it.
  std::filesystem::remove_all(folder_);
  std::jthread writer([this] {
    std::filesystem::create_directories(folder_);
    EXPECT_TRUE(WriteGangNote(folder_, start_).ok());
  });
  EXPECT_TRUE(Await(absl::Minutes(1)).ok());
}

TEST_F(GangFolderTest, AnotherFolderIsAnErrorThatNamesBothWorkers) {
  const absl::Status none = Await();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(GetFieldViolation(none)->field(), "--runs");
  EXPECT_NE(none.message().find("on workers/b is not the folder of workers/a"), std::string::npos) << none;
}

TEST_F(GangFolderTest, TheNoteOfAnotherAttemptIsNone) {
  ASSERT_TRUE(WriteGangNote(folder_, start_).ok());
  start_.mutable_lease()->set_epoch(4);
  EXPECT_FALSE(Await().ok());
}

TEST_F(GangFolderTest, NobodyWaitsForWhatIsGivenUp) {
  given_up_ = true;
  EXPECT_EQ(Await(absl::Hours(1)).code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace legoai::agent
