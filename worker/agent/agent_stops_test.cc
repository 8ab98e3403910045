// Trainers that are asked to stop, with a checkpoint or without one, by an agent that is a process, against a scripted server.
#include "worker/agent/testing/agent_test_names.h"

namespace legoai::agent {
namespace {

using StopsTest = testing::AgentTest;

// All ranks stop at one step, whatever runs it, and that step is saved.
TEST_F(StopsTest, EveryKindOfTrainingStopsWithACheckpoint) {
  recipe().mutable_training()->set_steps(1'000'000);
  recipe().mutable_checkpoint()->set_interval(1'000'000);
  StartAgent();
  ASSERT_TRUE(AwaitConnection());
  const v1::Recipe eager = recipe();
  v1::Recipe graph = eager, pipeline = eager;
  graph.mutable_compile()->set_enable(true);
  pipeline.mutable_parallelism()->set_pipeline_parallel_degree(2);
  pipeline.mutable_parallelism()->set_data_parallel_shard_degree(1);
  pipeline.mutable_training()->set_local_batch_size(4);
  int64_t epoch = 0;
  for (const v1::Recipe& each : {eager, graph, pipeline}) {
    recipe() = each;
    const std::string job = absl::StrCat("01KIND", ++epoch);
    server_.Send(Attempt(epoch, 2, job));
    ASSERT_TRUE(AwaitStep(2, epoch));
    server_.Send(StopOf(epoch, job, /*save=*/true, /*grace_seconds=*/60));
    ASSERT_TRUE(AwaitEnd(epoch));
    const v1::AttemptEnded ended = *server_.Get().Ended(epoch);
    EXPECT_TRUE(ended.stopped()) << ended.ShortDebugString();
    EXPECT_FALSE(ended.has_error());
    EXPECT_EQ(server_.Get().commit_requests.back().step(), ended.last_step());
    EXPECT_THAT(*checkpoint::ListCheckpoints(launch::CheckpointsPath(EpochFolder(epoch, job))), ElementsAre(ended.last_step()));
  }
}

// The server does not say that the checkpoint counts, and the time is over; or a rank hangs. Nobody is to blame.
TEST_F(StopsTest, TrainersThatDoNotSaveInTimeAreStoppedWithout) {
  recipe().mutable_training()->set_steps(1'000'000);
  recipe().mutable_checkpoint()->set_interval(1'000'000);
  server_.Change([](State& state) { state.verdict = [](const v1::CommitRequest&) { return std::nullopt; }; });
  ASSERT_TRUE(Begin(Attempt(1, 2)));
  ASSERT_TRUE(AwaitStep(2));
  server_.Send(StopOf(1, "01JOB", /*save=*/true, /*grace_seconds=*/3));
  ASSERT_TRUE(AwaitEnd(1));
  EXPECT_EQ(server_.Get().commit_requests.size(), 1u);
  EXPECT_TRUE(server_.Get().Ended(1)->stopped());
  EXPECT_FALSE(server_.Get().Ended(1)->has_error()) << server_.Get().Ended(1)->error().message();
  EXPECT_THAT(server_.Get().Logs(), Contains(HasSubstr("has not saved in the time that it had")));

  server_.Send(Attempt(2, 2));
  ASSERT_TRUE(AwaitStep(2, 2));
  kill(Trainers().at({2, 1}), SIGSTOP);
  server_.Send(StopOf(2, "01JOB", /*save=*/true, /*grace_seconds=*/1));
  ASSERT_TRUE(AwaitEnd(2));
  EXPECT_TRUE(server_.Get().Ended(2)->stopped());
  EXPECT_FALSE(server_.Get().Ended(2)->has_error()) << server_.Get().Ended(2)->error().message();
  EXPECT_GE(server_.Get().Ended(2)->last_step(), 2);
  EXPECT_TRUE(AwaitNoTrainers());
}

// They wait for the verdict beyond the time that was given first.
TEST_F(StopsTest, ASecondStopThatSavesGivesMoreTime) {
  recipe().mutable_training()->set_steps(1'000'000);
  recipe().mutable_checkpoint()->set_interval(1'000'000);
  WaitForEachVerdict();
  server_.Change([](State& state) { state.verdict = [](const v1::CommitRequest&) { return std::nullopt; }; });
  ASSERT_TRUE(Begin(Attempt(1, 2)));
  ASSERT_TRUE(AwaitStep(2));
  server_.Send(StopOf(1, "01JOB", /*save=*/true, /*grace_seconds=*/5));
  server_.Send(StopOf(1, "01JOB", /*save=*/true, /*grace_seconds=*/600));
  ASSERT_TRUE(server_.Await([](const State& state) { return state.commit_requests.size() == 1; }));
  absl::SleepFor(absl::Seconds(6));
  EXPECT_FALSE(server_.Get().Ended(1));
  EXPECT_THAT(server_.Get().Logs(), Not(Contains(HasSubstr("has not saved in the time that it had"))));
  server_.Send(StopOf(1, "01JOB", /*save=*/true, /*grace_seconds=*/1));
  ASSERT_TRUE(AwaitEnd(1));
  EXPECT_THAT(server_.Get().Logs(), Contains(HasSubstr("has not saved in the time that it had"))) << "and less";
}

TEST_F(StopsTest, ASecondStopWithoutSavingTakesOver) {
  recipe().mutable_training()->set_steps(1'000'000);
  recipe().mutable_checkpoint()->set_interval(1'000'000);
  server_.Change([](State& state) { state.verdict = [](const v1::CommitRequest&) { return std::nullopt; }; });
  ASSERT_TRUE(Begin(Attempt(1, 2)));
  ASSERT_TRUE(AwaitStep(2));
  server_.Send(StopOf(1, "01JOB", /*save=*/true, /*grace_seconds=*/0));
  ASSERT_TRUE(server_.Await([](const State& state) { return state.commit_requests.size() == 1; }));
  for (const auto& [rank, pid] : Trainers()) EXPECT_EQ(kill(pid, 0), 0) << "they wait for the verdict";
  server_.Send(StopOf(1, "01JOB", /*save=*/false, /*grace_seconds=*/0));
  server_.Send(StopOf(1, "01JOB", /*save=*/true, /*grace_seconds=*/600));  // too late
  ASSERT_TRUE(AwaitEnd(1));
  EXPECT_TRUE(server_.Get().Ended(1)->stopped());
  EXPECT_FALSE(server_.Get().Ended(1)->has_error()) << server_.Get().Ended(1)->error().message();
}

// In another layout, too: the loss goes on where it was.
TEST_F(StopsTest, StopsWithACheckpointAndGoesOnElsewhere) {
  recipe().mutable_training()->set_steps(40);
  recipe().mutable_checkpoint()->set_interval(10);
  WaitForEachVerdict();
  recipe().mutable_checkpoint()->set_keep_latest_k(1);
  server_.Change([](State& state) {
    state.verdict = [](const v1::CommitRequest& request) {
      return request.lease().epoch() == 2 && request.step() == 10 ? std::nullopt : std::optional(true);
    };
  });
  ASSERT_TRUE(Begin(Attempt(1, 2, "01WHOLE")));
  ASSERT_TRUE(AwaitEnd(1));
  server_.Send(Attempt(2, 2));
  // It hears that it shall stop while it waits for a verdict.
  ASSERT_TRUE(server_.Await([](const State& state) {
    return state.commit_requests.back().lease().epoch() == 2 && state.commit_requests.back().step() == 10;
  }));
  v1::ToAgent stop, verdict;
  *stop.mutable_stop()->mutable_lease() = LeaseOf(2);
  stop.mutable_stop()->set_save(true);
  stop.mutable_stop()->set_reason("preempted");
  server_.Send(stop);
  verdict.mutable_commit()->set_id(server_.Get().commit_requests.back().id());
  verdict.mutable_commit()->set_commit(true);
  server_.Send(verdict);
  ASSERT_TRUE(AwaitEnd(2));
  const v1::AttemptEnded ended = *server_.Get().Ended(2);
  EXPECT_TRUE(ended.stopped());
  EXPECT_EQ(ended.last_step(), 11);
  EXPECT_FALSE(ended.has_error()) << ended.error().message();
  EXPECT_EQ(server_.Get().commit_requests.back().step(), ended.last_step());

  v1::ToAgent next = Attempt(3, 1);
  next.mutable_start()->mutable_recipe()->mutable_training()->set_local_batch_size(4);
  next.mutable_start()->set_resume_step(ended.last_step());
  next.mutable_start()->set_resume_directory(Checkpoints(2));
  server_.Send(next);
  ASSERT_TRUE(AwaitEnd(3));
  const State state = server_.Get();
  EXPECT_FALSE(state.Ended(3)->has_error()) << state.Ended(3)->error().message();
  std::map<int64_t, double> losses;
  for (const int64_t epoch : {2, 3}) {
    for (const auto& entry : state.Metrics(epoch)) EXPECT_TRUE(losses.emplace(entry.step(), entry.loss()).second) << entry.step();
  }
  ASSERT_EQ(losses.size(), 40u);
  for (const auto& entry : state.Metrics(1)) EXPECT_NEAR(losses.at(entry.step()), entry.loss(), 1e-4) << entry.step();
  // Its own checkpoint has taken the place of the earlier epoch's.
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints(3)), ElementsAre(40));
  ASSERT_TRUE(server_.Await([](const State& state) { return state.heartbeats.back().leases_size() == 0; }));
  EXPECT_FALSE(std::filesystem::exists(Checkpoints(2)));
}

}  // namespace
}  // namespace legoai::agent
