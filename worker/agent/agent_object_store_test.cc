// An agent whose jobs keep their checkpoints in an S3 store (versitygw): each attempt in a place of its own, of which the server
// is told as of a folder, and gangs that share no folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/testing/small_file_system.h"
#include "core/objectstore/testing/versitygw.h"
#include "core/process/child_process.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "proto/rpc.h"
#include "worker/agent/testing/agent_fixture.h"

namespace legoai::agent {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using State = testing::ScriptedServer::State;

constexpr char kUrl[] = "s3://bucket/jobs";

class AgentObjectStoreTest : public testing::AgentTest {
 protected:
  // Before the agent, which gets its environment from this process.
  void SetUp() override {
    auto started = objectstore::Versitygw::Start(::testing::TempDir());
    ASSERT_TRUE(started.ok()) << started.status();
    gateway_ = *std::move(started);
    recipe().mutable_checkpoint()->set_folder(kUrl);
  }
  static std::string Root(int64_t epoch) { return absl::StrCat(kUrl, "/01JOB/epoch-", epoch); }

  std::unique_ptr<objectstore::Versitygw> gateway_;
};

TEST_F(AgentObjectStoreTest, AttemptsSaveApartAndGoOnFromEachOther) {
  recipe().mutable_checkpoint()->set_keep_latest_k(2);
  server_.Change([](State& state) { state.verdict = [](const v1::CommitRequest& request) { return request.step() < 4; }; });
  ASSERT_TRUE(Begin(Attempt(1, 2)));
  ASSERT_TRUE(AwaitEnd(1));
  State state = server_.Get();
  for (const v1::CommitRequest& request : state.commit_requests) EXPECT_EQ(request.directory(), Root(1));
  EXPECT_THAT(*checkpoint::ListCheckpoints(Root(1)), ElementsAre(2)) << "the others were denied";
  EXPECT_TRUE(std::filesystem::is_empty(Checkpoints(1)));

  server_.Change([](State& state) { state.verdict = nullptr; });
  v1::ToAgent again = Attempt(2, 1);
  again.mutable_start()->set_resume_step(2);
  again.mutable_start()->set_resume_directory(Root(1));
  server_.Send(again);
  ASSERT_TRUE(AwaitEnd(2));
  state = server_.Get();
  EXPECT_FALSE(state.Ended(2)->has_error()) << state.Ended(2)->error().message();
  EXPECT_THAT(Steps(state.Metrics(2)), ElementsAre(3, 4, 5, 6));
  EXPECT_EQ(state.commit_requests.back().directory(), Root(2));
  EXPECT_THAT(*checkpoint::ListCheckpoints(Root(2)), ElementsAre(4, 6));
  std::vector<int64_t> told;
  for (const auto& [sequence, fact] : state.telemetry) {
    const v1::DirectoryKept& kept = fact.directory_kept();
    if (kept.directory() == Root(2)) told.assign(kept.steps().begin(), kept.steps().end());
  }
  EXPECT_THAT(told, ElementsAre(4, 6));
  Signal(SIGTERM);
  EXPECT_EQ(AwaitExit(), 0);
  EXPECT_THAT(*checkpoint::ListCheckpoints(Root(1)), IsEmpty()) << "newer ones took their place";
}

TEST_F(AgentObjectStoreTest, JobsSaveWhereTheOperatorAllows) {
  StartAgent({absl::StrCat("--checkpoint_roots=s3://bucket/other,", folder(), "/elsewhere")});
  ASSERT_TRUE(AwaitConnection());
  const auto end = [&](int64_t epoch, const std::string& place) {
    recipe().mutable_checkpoint()->set_folder(place);
    server_.Send(Attempt(epoch, 2));
    EXPECT_TRUE(AwaitEnd(epoch));
    return FromRpcStatus(server_.Get().Ended(epoch)->error());
  };
  const absl::Status refused = end(1, kUrl);
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--checkpoint_roots"));
  ASSERT_TRUE(GetFieldViolation(refused));
  EXPECT_EQ(GetFieldViolation(refused)->field(), "checkpoint.folder");
  EXPECT_EQ(GetFieldViolation(refused)->value(), Root(1));
  EXPECT_THAT(Trainers(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(gateway_->PathOf("jobs")));
  const absl::Status in_folder = end(2, "");
  ASSERT_TRUE(GetFieldViolation(in_folder)) << in_folder;
  EXPECT_EQ(GetFieldViolation(in_folder)->field(), "job.dump_folder");
  EXPECT_EQ(end(3, "s3://bucket/other/jobs"), absl::OkStatus());
  EXPECT_THAT(*checkpoint::ListCheckpoints("s3://bucket/other/jobs/01JOB/epoch-3"), ElementsAre(2, 4, 6));
}

// The first host leaves no note in a folder, which this one does not look for.
TEST_F(AgentObjectStoreTest, AMemberOfAGangNeedsNoSharedFolder) {
  const auto listener = launch::ListenOnLoopback(0);
  ASSERT_TRUE(listener.ok()) << listener.status();
  close(listener->fd);
  const v1::ToAgent attempt = AttemptOfMember(3, listener->port);
  StartAgent({"--gang_folder_wait=1s"});
  ASSERT_TRUE(AwaitConnection());
  server_.Send(attempt);

  launch::TrainRequest first = request_;
  first.nproc = 1;
  first.gang = launch::GangPlace{.hosts = 2, .host = 0, .address = "127.0.0.1", .port = listener->port, .device = "cpu"};
  first.lease = launch::LeasedAttempt{.attempt = 3, .epoch = 3};
  first.recipe.mutable_job()->set_dump_folder(EpochFolder(3));
  first.recipe.mutable_checkpoint()->set_folder(Root(3));
  launch::TrainCallbacks callbacks;
  callbacks.commit = [](int64_t, const std::vector<std::string>&) { return absl::OkStatus(); };
  launch::StopPipe stop;
  const auto outcome = launch::RunTraining(first, callbacks, &stop);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->step, 6);
  EXPECT_THAT(*checkpoint::ListCheckpoints(Root(3)), ElementsAre(2, 4, 6));
  ASSERT_TRUE(server_.Await([](const State& state) {
    const auto logs = state.Logs();
    return std::any_of(logs.begin(), logs.end(),
                       [](const std::string& line) { return line == "the part of workers/tester in attempt 3 has ended"; });
  }));
}

TEST_F(AgentObjectStoreTest, AStoreThatRefusesEndsTheAttemptWithTheReason) {
  objectstore::UseKeys(objectstore::kTestAccess, "another");
  ASSERT_TRUE(Begin(Attempt(1, 2)));
  ASSERT_TRUE(AwaitEnd(1));
  const v1::AttemptEnded ended = *server_.Get().Ended(1);
  EXPECT_EQ(ended.error().code(), static_cast<int>(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(ended.error().message(), HasSubstr("SignatureDoesNotMatch"));
  for (const std::string& line : server_.Get().Logs()) {
    EXPECT_EQ(line.find(objectstore::kTestSecret), std::string::npos);
    EXPECT_EQ(line.find("another"), std::string::npos) << line;
  }
}

// Who runs as another user gets little of the agent's environment, but these it cannot do without.
TEST_F(AgentObjectStoreTest, TrainersOfAnotherUserHaveTheKeys) {
  if (geteuid() != 0) GTEST_SKIP() << "only root has trainers of another user";
  const absl::Status open = checkpoint::OpenToOthers({std::filesystem::current_path(), folder(), request_.trainer});
  if (!open.ok()) GTEST_SKIP() << open;
  StartAgent({"--trainer_user=nobody"});
  ASSERT_TRUE(AwaitConnection());
  server_.Send(Attempt(1, 1));
  ASSERT_TRUE(AwaitEnd(1));
  EXPECT_FALSE(server_.Get().Ended(1)->has_error()) << server_.Get().Ended(1)->error().message();
  EXPECT_THAT(*checkpoint::ListCheckpoints(Root(1)), ElementsAre(2, 4, 6));
}

}  // namespace
}  // namespace legoai::agent
