#include "server/rpc/readable_data.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "core/process/data_roots.h"
#include "proto/errors.h"
#include "server/rpc/testing/test_service.h"

namespace legoai::server {
namespace {

namespace fs = std::filesystem;

class ReadableData : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / "readable";
    fs::create_directories(folder_ / "inside");
    std::ofstream(folder_ / "inside/text.txt") << "text";
    std::ofstream(folder_ / "outside.txt") << "text";
    std::error_code there;
    fs::create_symlink(folder_ / "inside", folder_ / "link", there);
  }
  v1::JobSpec Job(const std::string& text) const {
    v1::JobSpec spec;
    spec.mutable_resources()->set_pool("default");
    spec.mutable_recipe()->mutable_training()->set_dataset_path((folder_ / text).string());
    spec.mutable_recipe()->mutable_model()->set_tokenizer_path("byte");
    return spec;
  }
  v1::Worker Worker(const std::string& root) const {
    v1::Worker worker;
    worker.set_pool("default");
    worker.set_host("here");
    worker.set_connected(true);
    (*worker.mutable_labels())[launch::kDataRootsLabel] = "/none," + (folder_ / root).string();
    return worker;
  }

  static absl::Status Check(const v1::JobSpec& job, std::vector<v1::Worker> workers, const std::string& host) {
    testing::ScriptedFleet fleet;
    fleet.SetWorkers(std::move(workers));
    return CheckReadable(job, fleet, host);
  }

  fs::path folder_;
};

TEST_F(ReadableData, IsRefusedWhereNoWorkerMayReadIt) {
  const absl::Status status = Check(Job("outside.txt"), {Worker("inside"), Worker("inside")}, "here");
  ASSERT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(GetFieldViolation(status)->field(), "spec.recipe.training.dataset_path");
  EXPECT_NE(status.message().find("--data_roots"), std::string::npos) << status;
  for (const char* text : {"inside/text.txt", "link/text.txt"})
    EXPECT_TRUE(Check(Job(text), {Worker("inside")}, "here").ok());
  EXPECT_TRUE(Check(Job("inside/text.txt"), {Worker("link")}, "here").ok()) << "links are followed on both sides";
  EXPECT_TRUE(Check(Job("outside.txt"), {Worker("inside"), Worker("")}, "here").ok()) << "one may";
}

TEST_F(ReadableData, WhatIsNotKnownIsNotRefused) {
  const v1::JobSpec job = Job("outside.txt");
  EXPECT_TRUE(Check(job, {}, "here").ok()) << "there are no workers";
  EXPECT_TRUE(Check(job, {Worker("inside")}, "there").ok()) << "another host has other links";
  EXPECT_TRUE(Check(job, {Worker("inside")}, "").ok());
  v1::Worker silent = Worker("inside"), away = Worker("inside"), other = Worker("inside");
  silent.clear_labels();
  EXPECT_TRUE(Check(job, {silent}, "here").ok());
  EXPECT_TRUE(Check(job, {Worker("inside"), silent}, "here").ok());
  away.set_connected(false);
  other.set_pool("other");
  EXPECT_TRUE(Check(job, {away, other}, "here").ok());
  EXPECT_FALSE(Check(job, {away, Worker("inside")}, "here").ok());
}

}  // namespace
}  // namespace legoai::server
