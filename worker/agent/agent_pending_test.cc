// The agent as a process, with real trainers, while the server is away for longer than from one checkpoint to the next.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/manifest.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "proto/rpc.h"
#include "worker/agent/testing/agent_fixture.h"

namespace legoai::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using State = testing::ScriptedServer::State;

// A checkpoint in every second step.
class AgentPendingTest : public testing::AgentTest {
 protected:
  // Begins, and returns when the server is away: it has heard of the first checkpoint and not answered.
  void BeginAndGoAway(int64_t steps, int64_t most_pending) {
    recipe().mutable_training()->set_steps(steps);
    recipe().mutable_checkpoint()->set_max_pending_commits(most_pending);
    server_.Change([](State& state) { state.verdict = [](const v1::CommitRequest&) { return std::nullopt; }; });
    ASSERT_TRUE(Begin(Attempt(1, 2)));
    ASSERT_TRUE(server_.Await([](const State& state) { return !state.commit_requests.empty(); }));
    server_.GoAway();
  }
  void AwaitWaiting() {
    while (!Logged("waits: the server's word on the checkpoint of step 2")) usleep(10'000);
  }
  void ComeBackAndCommit() {
    server_.Change([](State& state) { state.verdict = nullptr; });
    server_.ComeBack();
  }
  // The last step that an attempt has noted in its run directory, with or without a server.
  int64_t NotedStep(int64_t epoch) const {
    const auto metrics = launch::ReadMetrics(EpochFolder(epoch));
    return metrics.ok() && !metrics->empty() ? metrics->back().step() : 0;
  }
  static std::vector<int64_t> StepsAsked(const State& state) {
    std::vector<int64_t> steps;
    for (const auto& request : state.commit_requests) steps.push_back(request.step());
    return steps;
  }
  // How the job's log tells of commits and ends, in order.
  static std::vector<std::string> CommitsAndEnds(const State& state) {
    std::vector<std::string> lines;
    for (const std::string& line : state.Logs()) {
      if (absl::StrContains(line, "is committed") || absl::StrContains(line, "has f")) lines.push_back(line);
    }
    return lines;
  }
  // Of the first epoch.
  std::string Manifest(int64_t step) const { return checkpoint::StepDirectory(Checkpoints(1), step) + "/manifest.pb"; }
};

// All steps are done, and nothing is over before the server has said its word on what was saved.
TEST_F(AgentPendingTest, TrainersGoOnWhileTheServerIsAway) {
  ASSERT_NO_FATAL_FAILURE(BeginAndGoAway(12, 6));
  const size_t asked = server_.Get().commit_requests.size();
  AwaitWaiting();
  EXPECT_EQ(NotedStep(1), 12);
  for (const auto& [rank, pid] : Trainers()) EXPECT_EQ(kill(pid, 0), 0) << "they wait for the verdicts";
  for (int64_t step = 2; step <= 12; step += 2) EXPECT_TRUE(checkpoint::IsPrepared(Checkpoints(1), step)) << step;
  ComeBackAndCommit();
  ASSERT_TRUE(AwaitEnd(1));
  const State state = server_.Get();
  EXPECT_FALSE(state.Ended(1)->has_error()) << state.Ended(1)->error().message();
  EXPECT_EQ(state.Ended(1)->last_step(), 12);
  const std::vector<int64_t> steps = StepsAsked(state);
  EXPECT_THAT(std::vector<int64_t>(steps.begin() + asked, steps.end()), ElementsAre(2, 4, 6, 8, 10, 12));
  EXPECT_THAT(CommitsAndEnds(state), ElementsAre("the checkpoint of step 2 is committed", "the checkpoint of step 4 is committed",
                                                 "the checkpoint of step 6 is committed", "the checkpoint of step 8 is committed",
                                                 "the checkpoint of step 10 is committed",
                                                 "the checkpoint of step 12 is committed", "attempt 1 has finished at step 12"));
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints(1)), ElementsAre(2, 4, 6, 8, 10, 12));
  EXPECT_THAT(Steps(state.Metrics(1)), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
}

TEST_F(AgentPendingTest, AtTheLimitTrainersWaitForTheServer) {
  ASSERT_NO_FATAL_FAILURE(BeginAndGoAway(12, 1));
  AwaitWaiting();
  EXPECT_EQ(NotedStep(1), 4) << "one is pending, and one more is waited for";
  server_.ComeBack();
  // It says so to the server, too.
  ASSERT_TRUE(server_.Await([](const State& state) {
    return std::any_of(state.telemetry.begin(), state.telemetry.end(), [](const auto& entry) {
      return entry.second.progress().waits() == "the server's word on the checkpoint of step 2";
    });
  }));
  EXPECT_EQ(NotedStep(1), 4);
  server_.GoAway();
  ComeBackAndCommit();
  ASSERT_TRUE(AwaitEnd(1));
  EXPECT_FALSE(server_.Get().Ended(1)->has_error()) << server_.Get().Ended(1)->error().message();
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints(1)), ElementsAre(2, 4, 6, 8, 10, 12));
}

// What they have saved by then is whole: it is committed in order before their end is told, and the next attempt goes on from the
// last of it, and has the others too.
TEST_F(AgentPendingTest, WhatIsPendingWhenTrainersDieIsNotLost) {
  ASSERT_NO_FATAL_FAILURE(BeginAndGoAway(1'000'000, 2));
  AwaitWaiting();
  kill(Trainers().at({1, 1}), SIGKILL);
  ASSERT_TRUE(AwaitNoTrainers());
  ComeBackAndCommit();
  ASSERT_TRUE(AwaitEnd(1));
  EXPECT_THAT(server_.Get().Ended(1)->error().message(), HasSubstr("rank 1"));
  const std::vector<std::string> told = CommitsAndEnds(server_.Get());
  ASSERT_EQ(told.size(), 4u);
  EXPECT_THAT(std::vector<std::string>(told.begin(), told.begin() + 3),
              ElementsAre("the checkpoint of step 2 is committed", "the checkpoint of step 4 is committed",
                          "the checkpoint of step 6 is committed"));
  EXPECT_THAT(told[3], HasSubstr("attempt 1 has failed"));
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints(1)), ElementsAre(2, 4, 6));

  // As if the agent had been killed before it could note the last commits on the disk.
  for (const int64_t step : {4, 6}) std::filesystem::rename(Manifest(step), Manifest(step) + ".tmp");
  recipe().mutable_training()->set_steps(8);
  v1::ToAgent next = Attempt(2, 2);
  next.mutable_start()->set_resume_step(6);
  next.mutable_start()->set_resume_directory(Checkpoints(1));
  server_.Send(next);
  ASSERT_TRUE(AwaitEnd(2));
  EXPECT_FALSE(server_.Get().Ended(2)->has_error()) << server_.Get().Ended(2)->error().message();
  EXPECT_THAT(Steps(server_.Get().Metrics(2)), ElementsAre(7, 8));
  for (const int64_t step : {2, 4, 6}) EXPECT_TRUE(std::filesystem::exists(Manifest(step))) << step;
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints(2)), ElementsAre(8));
}

using ::testing::IsEmpty;

// What comes before trainers are started: an attempt that cannot be trained is refused, and preparations that take long can be
// ended.
class PreparationsTest : public testing::AgentTest {};

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
  ASSERT_TRUE(Begin(attempt(1)));
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
