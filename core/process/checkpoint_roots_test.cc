#include "core/process/checkpoint_roots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "proto/errors.h"

namespace legoai::launch {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class CheckpointRootsTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_ + "/runs");
    fs::create_directories(folder_ + "/other");
    recipe_.mutable_checkpoint()->set_enable_checkpoint(true);
  }

  // The field that is refused, of a job with this checkpoint.folder; empty: it may keep its checkpoints there.
  std::string Refused(const std::string& place, const std::vector<std::string>& roots) {
    recipe_.mutable_checkpoint()->set_folder(place);
    const auto parsed = ParseCheckpointRoots(roots);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    const absl::Status status = CheckCheckpointRoots(recipe_, folder_ + "/runs/job/epoch-1", *parsed);
    if (status.ok()) return "";
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--checkpoint_roots="));
    return GetFieldViolation(status)->field();
  }

  const std::string folder_ = testing::TempDir() + "/checkpoint_roots_test";
  v1::Recipe recipe_;
};

constexpr char kFolder[] = "checkpoint.folder", kRuns[] = "job.dump_folder";

TEST_F(CheckpointRootsTest, WithoutAnyAllPlacesWillDo) {
  EXPECT_EQ(Refused("", {}), "");
  EXPECT_EQ(Refused("s3://bucket/runs/job/epoch-1", {}), "");
}

TEST_F(CheckpointRootsTest, AStoreIsHeldByItsBeginning) {
  const std::string url = "s3://bucket/runs/job/epoch-1";
  for (const char* root : {"s3://bucket", "s3://bucket/", "s3://bucket/runs", "s3://bucket/runs/", "s3://bucket/runs/job"})
    EXPECT_EQ(Refused(url, {"s3://another/x", root}), "") << root;
  EXPECT_EQ(Refused(url, {url}), "");
  for (const char* root : {"s3://bucke", "s3://bucket/run", "s3://bucket/runs/jo", "s3://bucket2",
                           "s3://bucket/runs/job/epoch-10", "s3://bucket/runs/job/epoch-1/step-1"})
    EXPECT_EQ(Refused(url, {root}), kFolder) << root;
  EXPECT_EQ(Refused(url, {folder_ + "/runs"}), kFolder) << "folders hold no URLs";
  EXPECT_EQ(Refused(url, {"/"}), kFolder);
}

TEST_F(CheckpointRootsTest, FoldersAreFollowed) {
  EXPECT_EQ(Refused("", {folder_ + "/runs"}), "");
  EXPECT_EQ(Refused("", {"s3://bucket/runs", folder_ + "/other/../runs"}), "");
  EXPECT_EQ(Refused("", {folder_ + "/other", "s3://bucket"}), kRuns);
  fs::create_directory_symlink(folder_ + "/other", folder_ + "/runs/job");
  EXPECT_EQ(Refused("", {folder_ + "/runs"}), kRuns) << "a link leads out";
  EXPECT_EQ(Refused("", {folder_ + "/other"}), "");
}

TEST_F(CheckpointRootsTest, WhoKeepsNoCheckpointsKeepsThemNowhere) {
  recipe_.mutable_checkpoint()->set_enable_checkpoint(false);
  EXPECT_EQ(Refused("", {"s3://bucket"}), "");
}

TEST_F(CheckpointRootsTest, RootsAreFoldersOrPlacesInAStore) {
  std::ofstream(folder_ + "/file") << "x";
  for (const std::string& bad : {std::string(), folder_ + "/file", std::string("gs://bucket/a"), std::string("s3://Bucket"),
                                 std::string("s3://"), std::string("s3://bucket//a"), std::string("s3://bucket/../a")}) {
    const auto fault = GetFieldViolation(ParseCheckpointRoots({"s3://bucket", bad}).status());
    ASSERT_TRUE(fault) << bad;
    EXPECT_EQ(fault->field(), "--checkpoint_roots") << bad;
  }
  EXPECT_THAT(*ParseCheckpointRoots({"s3://bucket/a/", "/x/../y"}), ElementsAre("s3://bucket/a", "/y"));
}

}  // namespace
}  // namespace legoai::launch
