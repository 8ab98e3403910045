// What comes before trainers are started: an attempt that cannot be trained is refused, and preparations that take long can be
// ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "proto/errors.h"
#include "proto/rpc.h"
#include "worker/agent/testing/agent_fixture.h"

namespace legoai::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using State = testing::ScriptedServer::State;

class PreparationsTest : public testing::AgentTest {
 protected:
  PreparationsTest() : AgentTest("worker/train/legoai-trainer") {}
};

TEST_F(PreparationsTest, WhatCannotBeTrainedIsRefusedByField) {
  StartAgent();
  ASSERT_TRUE(AwaitConnection());
  const auto field_of = [&](v1::ToAgent attempt) {
    server_.Send(attempt);
    EXPECT_TRUE(AwaitEnd(attempt.start().lease().epoch()));
    const auto ended = server_.Get().Ended(attempt.start().lease().epoch());
    const auto violation = GetFieldViolation(FromRpcStatus(ended->error()));
    return violation ? violation->field() : "none: " + ended->error().message();
  };
  v1::ToAgent attempt = Attempt(1, 2);
  attempt.mutable_start()->mutable_dataset()->set_sha256(std::string(64, '0'));
  EXPECT_EQ(field_of(attempt), "dataset.sha256");
  attempt = Attempt(2, 2);
  attempt.mutable_start()->mutable_dataset()->set_uri(folder() + "/none.txt");
  EXPECT_EQ(field_of(attempt), "training.dataset_path");
  attempt = Attempt(3, 4);
  EXPECT_EQ(field_of(attempt), "placement.slots") << "it has two";
  attempt = Attempt(4, 2);
  attempt.mutable_start()->mutable_placement()->set_first_rank(2);
  EXPECT_EQ(field_of(attempt), "placement");
  attempt = Attempt(5, 2, "..");
  EXPECT_EQ(field_of(attempt), "lease.job");
  attempt = Attempt(6, 2);
  attempt.mutable_start()->mutable_recipe()->mutable_parallelism()->set_tensor_parallel_degree(3);
  EXPECT_EQ(field_of(attempt), "parallelism");
  attempt = Attempt(7, 2);
  attempt.mutable_start()->set_resume_step(4);
  attempt.mutable_start()->set_resume_directory(folder() + "/nowhere");
  EXPECT_EQ(field_of(attempt), folder() + "/nowhere/step-4");
  EXPECT_THAT(server_.Get().Ended(7)->error().message(), HasSubstr("is not there, nor is anything else of the job"));
  EXPECT_THAT(Trainers(), IsEmpty());
}

// Paths in a job are whoever's wish who may submit one; the operator says where they may lead. The last --data_roots counts.
TEST_F(PreparationsTest, OnlyWhatTheOperatorAllowsIsRead) {
  namespace fs = std::filesystem;
  const std::string allowed = folder() + "/allowed", outside = folder() + "/text.txt", inside = allowed + "/text.txt";
  fs::create_directories(allowed);
  fs::copy(outside, inside);
  fs::create_symlink("../text.txt", allowed + "/link.txt");
  StartAgent({"--data_roots=" + folder() + "/later," + allowed});
  ASSERT_TRUE(AwaitConnection());
  int64_t epoch = 0;
  // Of a job with this text, tokenizer and weights: the field that is refused, or empty, then it was trained.
  const auto refused = [&](const std::string& text, const std::string& tokenizer, const std::string& weights) {
    v1::ToAgent attempt = Attempt(++epoch, 1);
    attempt.mutable_start()->mutable_dataset()->set_uri(text);
    attempt.mutable_start()->mutable_recipe()->mutable_model()->set_tokenizer_path(tokenizer);
    attempt.mutable_start()->mutable_recipe()->mutable_model()->set_initial_load_path(weights);
    server_.Send(attempt);
    EXPECT_TRUE(AwaitEnd(epoch));
    const auto ended = server_.Get().Ended(epoch);
    if (!ended->has_error()) return std::string();
    const absl::Status status = FromRpcStatus(ended->error());
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_THAT(status.message(), HasSubstr("--data_roots"));
    const auto violation = GetFieldViolation(status);
    return violation ? violation->field() : status.ToString();
  };
  EXPECT_EQ(refused(outside, "byte", ""), "training.dataset_path");
  EXPECT_EQ(refused("file:///etc/passwd", "byte", ""), "training.dataset_path");
  EXPECT_EQ(refused(allowed + "/link.txt", "byte", ""), "training.dataset_path");
  EXPECT_EQ(refused(inside, "/etc/passwd", ""), "model.tokenizer_path");
  EXPECT_EQ(refused(inside, "byte", folder() + "/weights"), "model.initial_load_path");
  EXPECT_THAT(Trainers(), IsEmpty());
  EXPECT_EQ(refused(inside, "byte", ""), "");
  EXPECT_TRUE(Logged("jobs may read from"));
}

// A text that takes hours to read: whoever asks for an end does not wait for that.
TEST_F(PreparationsTest, CanBeStopped) {
  const std::string endless = folder() + "/endless.txt";
  std::ofstream(endless) << "a";
  std::filesystem::resize_file(endless, uintmax_t{1} << 40);
  const auto attempt = [&](int64_t epoch) {
    v1::ToAgent message = Attempt(epoch, 2);
    message.mutable_start()->mutable_dataset()->Clear();
    message.mutable_start()->mutable_dataset()->set_uri(endless);
    return message;
  };
  const auto begun = [&](int64_t epoch) {
    return server_.Await([&](const State& state) {
      if (state.heartbeats.empty()) return false;
      const auto& leases = state.heartbeats.back().leases();
      return std::any_of(leases.begin(), leases.end(), [&](const auto& lease) { return lease.epoch() == epoch; });
    });
  };
  StartAgent();
  ASSERT_TRUE(AwaitConnection());
  server_.Send(attempt(1));
  ASSERT_TRUE(begun(1));
  v1::ToAgent stop;
  *stop.mutable_stop()->mutable_lease() = LeaseOf(1);
  stop.mutable_stop()->set_reason("cancelled");
  server_.Send(stop);
  ASSERT_TRUE(AwaitEnd(1));
  EXPECT_TRUE(server_.Get().Ended(1)->stopped());
  server_.Send(attempt(2));
  ASSERT_TRUE(begun(2));
  server_.Change([](State& state) { state.revoked = {LeaseOf(2)}; });
  ASSERT_TRUE(server_.Await([](const State& state) { return state.heartbeats.back().leases_size() == 0; }));
  server_.Send(attempt(3));  // which has both slots to itself
  ASSERT_TRUE(begun(3));
  Signal(SIGTERM);
  EXPECT_EQ(AwaitExit(), 0);
  EXPECT_TRUE(server_.Get().Ended(3)->stopped());
  EXPECT_EQ(server_.Get().goodbyes, 1);
  for (const auto& [sequence, fact] : server_.Get().telemetry) EXPECT_FALSE(fact.has_started()) << "of " << fact.lease().epoch();
  EXPECT_THAT(Trainers(), IsEmpty());
}

}  // namespace
}  // namespace legoai::agent
