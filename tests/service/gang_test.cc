// A job over several workers: real agents, each with slots for a part of it, train what one worker would, bit by bit; whichever
// of them is lost, the attempt ends for all, and the job goes on from its last committed checkpoint.
#include <signal.h>

#include <filesystem>

#include "tests/service/service_processes.h"
#include "tests/service/service_test_fixture.h"

namespace legoai::service {
namespace {

using cli::testing::WaitUntil;

constexpr int64_t kSteps = 300, kInterval = 30;

class GangTest : public ServiceTest {
 protected:
  // Stages need layers.
  void PrepareFolder() override {
    std::string config = cli::testing::ReadAll(Path("config.json"));
    const std::string two = "\"num_hidden_layers\": 2";
    config.replace(config.find(two), two.size(), "\"num_hidden_layers\": 6");
    cli::testing::Write(Path("config.json"), config);
  }

  pid_t StartMember(const std::string& name, int64_t slots, const std::vector<std::string>& further = {}) {
    std::vector<std::string> flags = {"--gang_ports=" + std::to_string(FreePort())};
    flags.insert(flags.end(), further.begin(), further.end());
    return StartAgent(name, slots, flags);
  }

  v1::JobSpec Spec(int64_t slots, int64_t stages, int64_t min_slots) {
    auto spec = TinyJob(folder_, slots, kSteps, kInterval);
    EXPECT_TRUE(spec.ok()) << spec.status();
    spec->mutable_resources()->set_min_slots(min_slots);
    spec->mutable_planning()->clear_constraints();
    // All that decides in which order numbers are added.
    for (const std::string& constraint :
         {std::string("training.mixed_precision_param=float32"), std::string("parallelism.tensor_parallel_degree=1"),
          "parallelism.pipeline_parallel_degree=" + std::to_string(stages), std::string("activation_checkpoint.mode=none"),
          std::string("parallelism.pipeline_parallel_schedule=1F1B"),
          std::string("parallelism.pipeline_parallel_microbatch_size=1"),
          "parallelism.data_parallel_shard_degree=" + std::to_string(slots / stages)}) {
      spec->mutable_planning()->add_constraints(constraint);
    }
    spec->mutable_policy()->set_max_restarts(100);
    return *std::move(spec);
  }

  // Of the same recipe on one worker, which is gone afterwards.
  std::map<int64_t, double> OnOneWorker(v1::JobSpec spec) {
    pid_t alone = StartAgent("alone", spec.resources().slots());
    const std::string job = Submit(std::move(spec));
    AwaitSuccess(job);
    EXPECT_EQ(Attempts(job).size(), 1);
    EXPECT_EQ(Attempts(job)[0].placements_size(), 1);
    const auto losses = Losses(job);
    EXPECT_EQ(losses.size(), kSteps);
    Kill(&alone);
    WaitUntil("the end of the worker that was alone", [this] { return !Workers()[0].connected(); });
    return losses;
  }

  // Which worker runs which rank.
  static std::map<int64_t, std::string> Hosts(const v1::Attempt& attempt) {
    std::map<int64_t, std::string> hosts;
    for (const v1::Placement& placement : attempt.placements()) {
      for (int64_t i = 0; i < placement.slots(); ++i) hosts[placement.first_rank() + i] = placement.worker();
    }
    return hosts;
  }

  void ExpectWentOn(const std::string& job, const std::map<int64_t, double>& losses) {
    const auto attempts = Attempts(job);
    ASSERT_GE(attempts.size(), 2);
    EXPECT_GE(attempts.back().resume_step(), kInterval);
    ExpectUndisturbed(job, losses, 0);
    ExpectCheckpointsAsListed(job);
    ExpectSoundHistory(job);
  }
};

TEST_F(GangTest, ThreeWorkersTrainAPipelineAsOneDoesBitByBit) {
  const v1::JobSpec spec = Spec(3, /*stages=*/3, /*min_slots=*/3);
  const auto losses = OnOneWorker(spec);
  for (const char* name : {"a", "b", "c"}) StartMember(name, 1);
  const std::string job = Submit(spec);
  AwaitSuccess(job);
  const auto attempts = Attempts(job);
  ASSERT_EQ(attempts.size(), 1);
  const std::map<int64_t, std::string> hosts = {{0, "workers/a"}, {1, "workers/b"}, {2, "workers/c"}};
  EXPECT_EQ(Hosts(attempts[0]), hosts);
  EXPECT_EQ(Get(job).worker_count(), 3);
  const auto described = Run({"get", job, "--server", address()});
  EXPECT_NE(described.out.find("a x1 (rank 0), b x1 (rank 1), c x1 (rank 2)"), std::string::npos) << described.out;
  ExpectUndisturbed(job, losses, 0);
  ExpectCheckpointsAsListed(job);
  ExpectSoundHistory(job);
}

TEST_F(GangTest, ShardsTimesStagesOverTwoWorkersSurviveTheLossOfRanksAndOfAnAgent) {
  const v1::JobSpec spec = Spec(4, /*stages=*/2, /*min_slots=*/4);
  const auto losses = OnOneWorker(spec);
  pid_t first = StartMember("a", 2);
  pid_t second = StartMember("b", 2);
  const std::string job = Submit(spec);
  AwaitCommit(job, kInterval);
  // A rank of the second worker.
  Signal(Trainer(3), SIGKILL);
  Await(job, "the second attempt", [](const v1::Job& now) { return now.attempts() >= 2; });
  AwaitCommit(job, 3 * kInterval);
  Kill(&second);
  const pid_t spare = StartMember("c", 2);
  Await(job, "the third attempt", [](const v1::Job& now) { return now.attempts() >= 3 && now.state() == v1::RUNNING; });
  AwaitCommit(job, 5 * kInterval);
  // The one that coordinates.
  Kill(&first);
  StartMember("d", 2);
  AwaitSuccess(job);
  EXPECT_GT(spare, 0);
  const auto attempts = Attempts(job);
  ASSERT_GE(attempts.size(), 4);
  for (const v1::Attempt& attempt : attempts) EXPECT_EQ(attempt.placements_size(), 2) << attempt.name();
  ExpectWentOn(job, losses);
}

TEST_F(GangTest, AWorkerThatIsCutOffIsReplacedAndFencedOff) {
  const v1::JobSpec spec = Spec(2, /*stages=*/2, /*min_slots=*/2);
  const auto losses = OnOneWorker(spec);
  StartMember("a", 1);
  const pid_t stopped = StartMember("b", 1);
  const std::string job = Submit(spec);
  AwaitCommit(job, kInterval);
  Signal(stopped, SIGSTOP);
  StartMember("c", 1);
  AwaitSuccess(job);
  Signal(stopped, SIGCONT);
  const auto attempts = Attempts(job);
  ASSERT_GE(attempts.size(), 2);
  EXPECT_EQ(Hosts(attempts.back()).count(1), 1);
  EXPECT_EQ(Hosts(attempts.back()).at(1), "workers/c");
  WaitUntil("the end of the trainers that were fenced off", [this] { return Trainer(0) == 0 && Trainer(1) == 0; });
  ExpectWentOn(job, losses);
}

TEST_F(GangTest, WhereAWorkerDoesNotComeBackTheJobIsPlannedForThoseThatAreLeft) {
  // The third stage's ranks go; two stages are as good for the data's order.
  v1::JobSpec spec = Spec(3, 3, /*min_slots=*/2);
  spec.mutable_planning()->clear_constraints();  // as many stages, and shards, as it likes
  spec.mutable_planning()->add_constraints("training.mixed_precision_param=float32");
  StartMember("a", 1);
  StartMember("b", 1);
  pid_t third = StartMember("c", 1);
  const std::string job = Submit(spec);
  AwaitCommit(job, kInterval);
  Kill(&third);
  AwaitSuccess(job);
  const auto attempts = Attempts(job);
  ASSERT_GE(attempts.size(), 2);
  EXPECT_EQ(attempts.front().world_size(), 3);
  EXPECT_EQ(attempts.back().world_size(), 2);
  EXPECT_EQ(attempts.back().placements_size(), 2);
  EXPECT_EQ(Losses(job).size(), kSteps);
  ExpectCheckpointsAsListed(job);
  ExpectSoundHistory(job);
}

TEST_F(GangTest, AWorkerThatSeesAnotherFolderSaysSoBeforeItTrains) {
  StartMember("a", 1);
  // By the same path, on a disk of its own.
  const std::string other = Path("other");
  std::filesystem::create_directories(other);
  const std::vector<std::string> agent = AgentCommand(address(), "b", 1, Path("runs"));
  std::string command = "mount --bind '" + other + "' '" + Path("runs") + "' && exec";
  for (const std::string& word : agent) command += " '" + word + "'";
  command += " --gang_folder_wait=2s --gang_ports=" + std::to_string(FreePort());
  agents_.push_back(StartProgram({"/usr/bin/unshare", "--mount", "--map-root-user", "/bin/sh", "-c", command}));
  WaitUntil("the second agent", [this] { return Workers().size() == 2 && Workers()[1].connected(); });
  v1::JobSpec spec = Spec(2, 2, 2);
  spec.mutable_policy()->set_max_restarts(1);  // it may be no more than a full disk of the first
  const std::string job = Submit(spec);
  WaitUntil("the end of the job", [&] { return Get(job).state() == v1::FAILED; });
  const std::string why = Get(job).outcome().error().message();
  EXPECT_NE(why.find("on workers/b is not the folder of workers/a"), std::string::npos) << why;
}

// At its start, and not by a job that is given to it and fails.
TEST_F(GangTest, AGangAddressOfAnotherHostIsAWrongCall) {
  std::vector<std::string> command = AgentCommand(address(), "a", 1, Path("runs"));
  command.push_back("--gang_address=192.0.2.7");  // reserved for documentation
  ExpectError(Wait(StartProgram(command)), 2, {"--gang_address = 192.0.2.7: must be an address of this host"});
}

}  // namespace
}  // namespace legoai::service
