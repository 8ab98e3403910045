// The agent as a process, with real trainers, against a scripted server.
#include <sched.h>

#include <algorithm>
#include <fstream>

#include "absl/time/clock.h"
#include "core/checkpoint/manifest.h"
#include "core/flight/flight_analysis.h"
#include "core/flight/flight_files.h"
#include "core/process/build_version.h"
#include "worker/agent/testing/agent_test_names.h"
#include "worker/launch/testing/rank_stopper.h"

namespace legoai::agent {
namespace {

using RealTrainersTest = testing::AgentTest;

TEST_F(RealTrainersTest, AWholeAttempt) {
  recipe().mutable_checkpoint()->set_last_save_in_hf(true);
  ASSERT_TRUE(Begin(Attempt(3, 2)));
  ASSERT_TRUE(AwaitEnd(3));
  const size_t heartbeats = server_.Get().heartbeats.size();
  ASSERT_TRUE(server_.Await([&](const State& state) { return state.heartbeats.size() > heartbeats + 1; }));
  const State state = server_.Get();

  const v1::Worker& worker = state.hellos[0].worker();
  EXPECT_EQ(worker.name(), "workers/tester");
  EXPECT_EQ(worker.slots(), 2);
  EXPECT_EQ(worker.build_version(), launch::BuildVersion());
  EXPECT_EQ(worker.instance().size(), 26u);
  EXPECT_EQ(worker.runs(), std::filesystem::absolute(folder()).lexically_normal().string() + "/runs");
  EXPECT_EQ(worker.device().kind(), v1::CPU);
  EXPECT_THAT(state.hellos[0].leases(), IsEmpty());

  const v1::AttemptEnded ended = *state.Ended(3);
  EXPECT_FALSE(ended.has_error()) << ended.error().message();
  EXPECT_FALSE(ended.stopped());
  EXPECT_EQ(ended.last_step(), 6);
  EXPECT_EQ(ended.hf_directory(), EpochFolder(3) + "/hf");
  EXPECT_TRUE(std::filesystem::exists(ended.hf_directory() + "/config.json"));
  EXPECT_THAT(Steps(state.Metrics(3)), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(state.Metrics(3)[0].attempt(), 3);
  std::map<std::string, int> facts;
  int64_t expected = 0;
  for (const auto& [sequence, fact] : state.telemetry) {
    EXPECT_EQ(sequence, ++expected) << "without gaps";
    EXPECT_EQ(fact.lease().job(), "projects/default/jobs/01JOB");
    EXPECT_EQ(fact.lease().epoch(), 3);
    if (fact.has_started()) {
      EXPECT_NEAR(fact.started().unigram_entropy(), 1.0986, 1e-3) << "three letters, equally often";
    }
    if (fact.has_progress()) ++facts[fact.progress().phase()];
  }
  EXPECT_GT(facts["train"], 0);
  EXPECT_GT(facts["export"], 0);
  ASSERT_EQ(state.commit_requests.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(state.commit_requests[i].step(), 2 * i + 2);
    EXPECT_EQ(state.commit_requests[i].directory(), Checkpoints(3));
    EXPECT_EQ(state.commit_requests[i].digest().size(), 64u);
  }
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints(3)), ElementsAre(2, 4, 6));
  EXPECT_THAT(state.heartbeats.back().leases(), IsEmpty()) << "how it ended is known";
  for (size_t i = 0; i < state.heartbeats.size(); ++i) EXPECT_EQ(state.heartbeats[i].sequence(), static_cast<int64_t>(i + 1));
}

TEST_F(RealTrainersTest, ADeniedCheckpointIsRemovedAndTheTrainingGoesOn) {
  server_.Change([](State& state) { state.verdict = [](const v1::CommitRequest& request) { return request.step() != 4; }; });
  ASSERT_TRUE(Begin(Attempt(1, 2)));
  ASSERT_TRUE(AwaitEnd(1));
  EXPECT_EQ(server_.Get().Ended(1)->last_step(), 6);
  EXPECT_THAT(server_.Get().Logs(), Contains(HasSubstr("step 4 was denied: ABORTED: the script says no")));
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints(1)), ElementsAre(2, 6));
}

TEST_F(RealTrainersTest, ARankThatWantsMoreMemoryThanItMayTakeFailsAndSaysSo) {
  StartAgent({"--trainer_memory_mb=2000"});
  ASSERT_TRUE(AwaitConnection());
  server_.Send(Attempt(1, 2));
  ASSERT_TRUE(AwaitEnd(1));
  EXPECT_FALSE(server_.Get().Ended(1)->has_error()) << server_.Get().Ended(1)->error().message();
  request_.model.set_intermediate_size(int64_t{1} << 28);  // 8 GiB of each matrix and rank
  server_.Send(Attempt(2, 2, "01BIG"));
  ASSERT_TRUE(AwaitEnd(2));
  const std::string message = server_.Get().Ended(2)->error().message();
  EXPECT_THAT(message, HasSubstr("out of memory: "));
  EXPECT_THAT(message, HasSubstr("it may take 2000 MB for itself (--trainer_memory_mb of its agent)"));
}

// Nothing that happens meanwhile is lost, and nothing is there twice.
TEST_F(RealTrainersTest, TheServerGoesAwayAndComesBack) {
  WaitForEachVerdict();
  server_.Change([](State& state) {
    state.verdict = [](const v1::CommitRequest& request) -> std::optional<bool> {
      return request.step() == 4 ? std::nullopt : std::optional(true);
    };
  });
  ASSERT_TRUE(Begin(Attempt(1, 2)));
  ASSERT_TRUE(server_.Await([](const State& state) { return state.commit_requests.size() == 2; }));
  server_.GoAway();
  for (const auto& [rank, pid] : Trainers()) EXPECT_EQ(kill(pid, 0), 0) << "trainers go on";
  server_.Change([](State& state) { state.verdict = nullptr; });
  server_.ComeBack();
  ASSERT_TRUE(AwaitEnd(1));
  const State state = server_.Get();
  EXPECT_FALSE(state.Ended(1)->has_error()) << state.Ended(1)->error().message();
  EXPECT_THAT(Steps(state.Metrics(1)), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(state.telemetry.rbegin()->first, static_cast<int64_t>(state.telemetry.size())) << "no gaps";
  ASSERT_EQ(state.commit_requests.size(), 4u);
  EXPECT_EQ(state.commit_requests[2].id(), state.commit_requests[1].id()) << "asked again";
  EXPECT_EQ(state.commit_requests[2].step(), 4);
  ASSERT_EQ(state.hellos.size(), 2u);
  EXPECT_EQ(state.hellos[0].worker().instance(), state.hellos[1].worker().instance());
  ASSERT_EQ(state.hellos[1].leases_size(), 1);
  EXPECT_EQ(state.hellos[1].leases(0).epoch(), 1);
}

// A lease stays the agent's until the server knows how it ended.
TEST_F(RealTrainersTest, WhatIsNotAcknowledgedIsSentAgain) {
  server_.Change([](State& state) { state.acknowledges = false; });
  ASSERT_TRUE(Begin(Attempt(1, 2)));
  ASSERT_TRUE(AwaitEnd(1));
  const State before = server_.Get();
  const int64_t facts = before.telemetry.rbegin()->first;
  EXPECT_EQ(before.facts_heard, facts);
  ASSERT_TRUE(server_.Await([&](const State& state) { return state.heartbeats.size() > before.heartbeats.size() + 1; }));
  EXPECT_EQ(server_.Get().heartbeats.back().leases_size(), 1);
  server_.GoAway();
  server_.ComeBack();
  ASSERT_TRUE(server_.Await([&](const State& state) { return state.facts_heard == 2 * facts; }));
  EXPECT_EQ(server_.Get().hellos.back().last_telemetry(), facts);
  EXPECT_EQ(server_.Get().hellos.back().leases_size(), 1);
  v1::ToAgent ack;
  ack.mutable_telemetry_ack()->set_sequence(facts);
  server_.Send(ack);
  ASSERT_TRUE(server_.Await([&](const State& state) { return state.heartbeats.back().leases_size() == 0; }));
  EXPECT_EQ(server_.Get().contradictions, 0) << "the same facts";
}

// The answer that was lost may have been "yes", and another attempt may be reading what is there.
TEST_F(RealTrainersTest, ACheckpointThatIsDeniedWhenAskedAgainStaysOnTheDisk) {
  server_.Change([](State& state) { state.verdict = [](const v1::CommitRequest&) { return std::nullopt; }; });
  ASSERT_TRUE(Begin(Attempt(1, 2)));
  ASSERT_TRUE(server_.Await([](const State& state) { return state.commit_requests.size() == 3; })) << "2, 4 and 6";
  server_.GoAway();
  server_.Change([](State& state) { state.verdict = [](const v1::CommitRequest&) { return false; }; });
  server_.ComeBack();
  ASSERT_TRUE(AwaitEnd(1));
  EXPECT_EQ(server_.Get().Ended(1)->error().code(), static_cast<int>(absl::StatusCode::kAborted));
  EXPECT_THAT(server_.Get().Ended(1)->error().message(), HasSubstr("step 2 was denied when it was asked for again"));
  EXPECT_TRUE(AwaitNoTrainers());
  for (const int64_t step : {2, 4, 6}) EXPECT_TRUE(checkpoint::IsPrepared(Checkpoints(1), step)) << step;

  // It had been committed: the next attempt goes on from it.
  server_.Change([](State& state) { state.verdict = nullptr; });
  v1::ToAgent next = Attempt(2, 2);
  next.mutable_start()->set_resume_step(2);
  next.mutable_start()->set_resume_directory(Checkpoints(1));
  server_.Send(next);
  ASSERT_TRUE(AwaitEnd(2));
  EXPECT_FALSE(server_.Get().Ended(2)->has_error()) << server_.Get().Ended(2)->error().message();
  EXPECT_THAT(Steps(server_.Get().Metrics(2)), ElementsAre(3, 4, 5, 6));
}

TEST_F(RealTrainersTest, TrainersOfARevokedLeaseAreKilled) {
  recipe().mutable_training()->set_steps(1'000'000);
  ASSERT_TRUE(Begin(Attempt(1, 2)));
  ASSERT_TRUE(AwaitStep(3));
  server_.Change([](State& state) { state.revoked = {LeaseOf(1)}; });
  EXPECT_TRUE(AwaitNoTrainers());
  ASSERT_TRUE(server_.Await([](const State& state) { return state.heartbeats.back().leases_size() == 0; }));
  EXPECT_TRUE(Logged("the trainers are killed: the lease is not this worker's any more"));
  // Its slots are free again, and nothing of it stands in the way of the next epoch.
  recipe().mutable_training()->set_steps(6);
  server_.Send(Attempt(2, 2));
  ASSERT_TRUE(AwaitEnd(2));
  EXPECT_FALSE(server_.Get().Ended(2)->has_error()) << server_.Get().Ended(2)->error().message();
  EXPECT_FALSE(server_.Get().Ended(1)) << "nobody waits for its end";
}

TEST_F(RealTrainersTest, ANewerEpochTakesTheJobOver) {
  const int64_t steps = recipe().training().steps();
  recipe().mutable_training()->set_steps(1'000'000);
  ASSERT_TRUE(Begin(Attempt(5, 2)));
  ASSERT_TRUE(AwaitStep(1));
  server_.Send(Attempt(5, 2));
  server_.Send(Attempt(4, 2));
  recipe().mutable_training()->set_steps(steps);
  server_.Send(Attempt(6, 2));
  ASSERT_TRUE(AwaitEnd(6));
  EXPECT_TRUE(Logged("the trainers are killed: epoch 6 of the job begins"));
  EXPECT_TRUE(Logged("is told to start what it has under epoch 5"));
  EXPECT_FALSE(server_.Get().Ended(6)->has_error()) << server_.Get().Ended(6)->error().message();
  EXPECT_THAT(server_.Get().Metrics(4), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(EpochFolder(4)));
}

// Each on a core of its own, where there are two.
TEST_F(RealTrainersTest, TwoLeasesSideBySide) {
  WaitForEachVerdict();
  server_.Change([](State& state) { state.verdict = [](const v1::CommitRequest&) { return std::nullopt; }; });
  recipe().mutable_training()->set_local_batch_size(4);
  ASSERT_TRUE(Begin(Attempt(1, 1, "01A")));
  server_.Send(Attempt(2, 1, "01B"));
  ASSERT_TRUE(server_.Await([](const State& state) { return state.commit_requests.size() == 2; })) << "both wait for the verdict";
  const auto trainers = Trainers();
  ASSERT_EQ(trainers.size(), 2u);
  std::vector<cpu_set_t> sets;
  for (const auto& [rank, pid] : trainers) {
    ASSERT_EQ(sched_getaffinity(pid, sizeof(cpu_set_t), &sets.emplace_back()), 0);
    EXPECT_EQ(CPU_COUNT(&sets.back()), 1);
  }
  cpu_set_t own;
  sched_getaffinity(0, sizeof(own), &own);
  if (CPU_COUNT(&own) > 1) {
    EXPECT_FALSE(CPU_EQUAL(&sets[0], &sets[1]));
  }
  ASSERT_TRUE(server_.Await([](const State& state) { return state.heartbeats.back().leases_size() == 2; }));
  server_.GoAway();  // the questions are put again
  server_.Change([](State& state) { state.verdict = nullptr; });
  server_.ComeBack();
  ASSERT_TRUE(AwaitEnd(1) && AwaitEnd(2));
  EXPECT_EQ(server_.Get().Ended(1)->last_step(), 6);
  EXPECT_EQ(server_.Get().Ended(2)->last_step(), 6);
}

TEST_F(RealTrainersTest, AskedToEndItSavesAndSaysGoodbye) {
  recipe().mutable_training()->set_steps(1'000'000);
  recipe().mutable_checkpoint()->set_interval(1'000'000);
  ASSERT_TRUE(Begin(Attempt(1, 2)));
  ASSERT_TRUE(AwaitStep(2));
  Signal(SIGTERM);
  EXPECT_EQ(AwaitExit(), 0);
  const State state = server_.Get();
  ASSERT_TRUE(state.Ended(1));
  EXPECT_TRUE(state.Ended(1)->stopped());
  EXPECT_EQ(state.goodbyes, 1);
  ASSERT_EQ(state.commit_requests.size(), 1u);
  EXPECT_EQ(state.commit_requests[0].step(), state.Ended(1)->last_step());
  EXPECT_TRUE(AwaitNoTrainers());
}

// The server had given it a lease before it knew that the agent was asked to end: it hears so at once, and nothing is started.
TEST_F(RealTrainersTest, WhatItIsToldToStartWhileItEndsIsLeftToOthers) {
  WaitForEachVerdict();
  server_.Change([](State& state) { state.verdict = [](const v1::CommitRequest&) { return std::nullopt; }; });
  ASSERT_TRUE(Begin(Attempt(1, 1)));
  ASSERT_TRUE(server_.Await([](const State& state) { return state.commit_requests.size() == 1; }));
  Signal(SIGTERM);
  while (!Logged("is asked to end")) usleep(10'000);
  v1::ToAgent late = Attempt(7, 1, "01LATE");
  late.mutable_start()->set_resume_step(4);
  server_.Send(late);
  ASSERT_TRUE(AwaitEnd(7));
  const v1::AttemptEnded ended = *server_.Get().Ended(7);
  EXPECT_TRUE(ended.stopped());
  EXPECT_FALSE(ended.has_error());
  EXPECT_EQ(ended.last_step(), 4);
  EXPECT_EQ(server_.Get().telemetry.rbegin()->second.lease().job(), "projects/default/jobs/01LATE");
  EXPECT_FALSE(std::filesystem::exists(EpochFolder(7, "01LATE")));
  Signal(SIGTERM);
  EXPECT_EQ(AwaitExit(), 0);
}

// Someone must be able to end it even when the server, whose verdict trainers wait for, is gone.
TEST_F(RealTrainersTest, ASecondSignalKills) {
  WaitForEachVerdict();
  server_.Change([](State& state) { state.verdict = [](const v1::CommitRequest&) { return std::nullopt; }; });
  ASSERT_TRUE(Begin(Attempt(1, 2)));
  ASSERT_TRUE(server_.Await([](const State& state) { return state.commit_requests.size() == 1; }));
  server_.GoAway();
  Signal(SIGTERM);
  while (!Logged("is asked to end")) usleep(10'000);
  for (const auto& [rank, pid] : Trainers()) EXPECT_EQ(kill(pid, 0), 0) << "they wait for the verdict";
  Signal(SIGTERM);
  EXPECT_EQ(AwaitExit(), 0);
  EXPECT_TRUE(AwaitNoTrainers());
}

TEST_F(RealTrainersTest, KilledItTakesItsTrainersAlong) {
  recipe().mutable_training()->set_steps(1'000'000);
  ASSERT_TRUE(Begin(Attempt(1, 2)));
  ASSERT_TRUE(AwaitStep(1));
  Signal(SIGKILL);
  EXPECT_EQ(AwaitExit(), -SIGKILL);
  EXPECT_TRUE(AwaitNoTrainers());
}

// Stopped, taken for lost, and going on: it hears that its lease is void before a checkpoint of it can count.
TEST_F(RealTrainersTest, AStoppedAgentThatGoesOnCommitsNothing) {
  server_.Change([](State& state) { state.verdict = [](const v1::CommitRequest& request) { return std::nullopt; }; });
  ASSERT_TRUE(Begin(Attempt(1, 2)));
  ASSERT_TRUE(server_.Await([](const State& state) { return state.commit_requests.size() == 3; })) << "2, 4 and 6";
  Signal(SIGSTOP);
  server_.GoAway();
  server_.Change([](State& state) {
    state.verdict = [](const v1::CommitRequest&) { return std::optional(false); };
    state.revoked = {LeaseOf(1)};
  });
  server_.ComeBack();
  Signal(SIGCONT);
  EXPECT_TRUE(AwaitNoTrainers());
  ASSERT_TRUE(
      server_.Await([](const State& state) { return state.hellos.size() == 2 && state.heartbeats.back().leases_size() == 0; }));
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints(1)), IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(Checkpoints(1) + "/step-2")) << "the new epoch may be reading it";
}

TEST_F(RealTrainersTest, ATrainerThatDiesIsReportedWithAllFlightRecords) {
  recipe().mutable_training()->set_steps(1'000'000);
  ASSERT_TRUE(Begin(Attempt(1, 2)));
  ASSERT_TRUE(AwaitStep(2));
  kill(Trainers().at({1, 1}), SIGKILL);
  ASSERT_TRUE(AwaitEnd(1));
  const State state = server_.Get();
  EXPECT_EQ(state.Ended(1)->error().code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_THAT(state.Ended(1)->error().message(), HasSubstr("rank 1"));
  EXPECT_GE(state.Ended(1)->last_step(), 2);
  std::vector<int64_t> ranks;
  for (const auto& [sequence, fact] : state.telemetry) {
    if (fact.has_flight_dump()) ranks.push_back(fact.flight_dump().rank());
  }
  EXPECT_THAT(ranks, ElementsAre(0, 1));
  const v1::FlightDump dump = std::find_if(state.telemetry.begin(), state.telemetry.end(), [](const auto& entry) {
                                return entry.second.flight_dump().rank() == 1;
                              })->second.flight_dump();
  EXPECT_EQ(dump.reason(), state.Ended(1)->error().message());
  EXPECT_EQ(dump.condition().fault(), "failed");
  EXPECT_EQ(dump.condition().text(), "the process was killed by signal 9 (Killed)");
  EXPECT_TRUE(AwaitNoTrainers());
}

// Stopped inside of a collective, where the dumps alone cannot tell who of the two holds it up, or before one.
TEST_F(RealTrainersTest, AStoppedRankIsNamedWithItsCollective) {
  recipe().mutable_training()->set_steps(1'000'000);
  recipe().mutable_checkpoint()->set_interval(1'000'000);
  recipe().mutable_comm()->set_train_timeout_seconds(10);
  StartAgent();
  ASSERT_TRUE(AwaitConnection());
  for (const int64_t epoch : {1, 2}) {
    server_.Send(Attempt(epoch, 2));
    ASSERT_TRUE(AwaitStep(3, epoch));
    const launch::testing::RankStopper stopper(EpochFolder(epoch), {Trainers().at({epoch, 0}), Trainers().at({epoch, 1})});
    std::optional<v1::FlightEntry> inside;
    if (epoch == 1) {
      ASSERT_TRUE(inside = stopper.StopInside());
    } else {
      ASSERT_TRUE(stopper.StopOutside());
    }
    ASSERT_TRUE(AwaitEnd(epoch));
    std::vector<v1::FlightDump> dumps;
    const State state = server_.Get();
    for (const auto& [sequence, fact] : state.telemetry) {
      if (fact.has_flight_dump() && fact.lease().epoch() == epoch) dumps.push_back(fact.flight_dump());
    }
    EXPECT_THAT(state.Ended(epoch)->error().message(), HasSubstr("rank 1 "));
    const v1::FlightAnalysis analysis = comm::AnalyzeFlight(dumps, 2);
    EXPECT_EQ(analysis.verdict(), "collective_state_mismatch");
    EXPECT_THAT(analysis.culprits(), ElementsAre(1)) << analysis.DebugString();
    EXPECT_THAT(analysis.text(), HasSubstr("the process is stopped (SIGSTOP)"));
    ASSERT_GT(analysis.findings_size(), 0);
    const v1::FlightFinding& finding = analysis.findings(0);
    EXPECT_THAT(finding.culprits(), ElementsAre(1));
    if (inside) {
      EXPECT_EQ(finding.process_group(), inside->process_group());
      EXPECT_EQ(finding.sequence(), inside->collective_seq_id());
      EXPECT_EQ(finding.profiling_name(), inside->profiling_name());
      EXPECT_THAT(finding.text(), HasSubstr("rank 1 has entered all_reduce"));
    } else {
      EXPECT_THAT(finding.missing_ranks(), ElementsAre(1)) << finding.text();
    }
    // `lego fr` of the run directory reads the same.
    const auto read = comm::ReadFlight({EpochFolder(epoch)});
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(comm::AnalyzeFlight(*read, 2).text(), analysis.text());
  }
}

// A rank that cannot answer is heard all the same.
TEST_F(RealTrainersTest, FlightRecordsOfStoppedRanksAreCollected) {
  recipe().mutable_training()->set_steps(1'000'000);
  ASSERT_TRUE(Begin(Attempt(1, 2)));
  ASSERT_TRUE(AwaitStep(2));
  for (const auto& [rank, pid] : Trainers()) kill(pid, SIGSTOP);
  v1::ToAgent collect;
  *collect.mutable_collect_flight()->mutable_lease() = LeaseOf(1);
  collect.mutable_collect_flight()->set_reason("no progress");
  server_.Send(collect);
  std::map<int64_t, v1::FlightDump> dumps;
  ASSERT_TRUE(server_.Await([&](const State& state) {
    for (const auto& [sequence, fact] : state.telemetry) {
      if (fact.has_flight_dump()) dumps[fact.flight_dump().rank()] = fact.flight_dump();
    }
    return dumps.size() == 2;
  }));
  EXPECT_EQ(dumps[1].world_size(), 2);
  EXPECT_EQ(dumps[1].reason(), "no progress");
  EXPECT_GT(dumps[1].entries_size(), 0);
  server_.Change([](State& state) { state.revoked = {LeaseOf(1)}; });
  EXPECT_TRUE(AwaitNoTrainers()) << "stopped processes are killed like others";
}

TEST_F(RealTrainersTest, ARefusalOfTheServerEndsTheAgent) {
  for (const auto code : {grpc::StatusCode::FAILED_PRECONDITION, grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::ABORTED}) {
    server_.Change([&](State& state) { state.refusal = {code, absl::StrCat("this server is build 0.0.9 (", code, ")")}; });
    StartAgent();
    EXPECT_EQ(AwaitExit(), 1);
    EXPECT_TRUE(Logged(absl::StrCat("refuses this agent: this server is build 0.0.9 (", code, ")")));
  }
  EXPECT_EQ(server_.Get().hellos.size(), 3u) << "no second try";
}

TEST_F(RealTrainersTest, OtherRefusalsAndNoServerAreTriedAgain) {
  server_.Change([](State& state) { state.refusal = {grpc::StatusCode::ALREADY_EXISTS, "tester is connected from elsewhere"}; });
  StartAgent();
  ASSERT_TRUE(server_.Await([](const State& state) { return state.hellos.size() >= 2; }));
  server_.GoAway();
  server_.Change([](State& state) { state.refusal = grpc::Status::OK; });
  server_.ComeBack();
  ASSERT_TRUE(AwaitConnection());
  EXPECT_TRUE(Logged("tester is connected from elsewhere"));
  v1::ToAgent drain;
  drain.mutable_drain();
  server_.Send(drain);
  Signal(SIGINT);
  EXPECT_EQ(AwaitExit(), 0);
  EXPECT_TRUE(Logged("drains: nothing new comes"));
  EXPECT_EQ(server_.Get().goodbyes, 1);
}

TEST_F(RealTrainersTest, BadCallsAreRefused) {
  std::ofstream(folder() + "/file") << "not a folder";
  const std::pair<const char*, const char*> bad[] = {{"--slots=-1", "--slots = -1"},
                                                     {"--slots=0", "--slots = 0: must be 1 to 4096; leave it out"},
                                                     {"--slots=1000000", "--slots = 1000000"},
                                                     {"--name=bad/name", "--name = bad/name"},
                                                     {"--pool=a/b", "--pool = a/b"},
                                                     {"--server=nowhere", "--server = nowhere"},
                                                     {"--runs=", "--runs"},
                                                     {"--device_file=/none", "--device_file"},
                                                     {"--device=tpu", "--device = tpu: must be auto, cpu or cuda"},
                                                     {"--telemetry_mb=0", "--telemetry_mb"},
                                                     {"stray", "stray"}};
  for (const auto& [argument, message] : bad) {
    StartAgent({argument});
    EXPECT_EQ(AwaitExit(), 2) << argument;
    EXPECT_TRUE(Logged(message)) << argument;
  }
  StartAgent({"--runs=" + folder() + "/file/runs"});
  EXPECT_EQ(AwaitExit(), 2);
  EXPECT_THAT(server_.Get().hellos, IsEmpty());
}

}  // namespace
}  // namespace legoai::agent
