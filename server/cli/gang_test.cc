// `lego train` on three hosts, FSDP over 2 ranks of a pipeline of 3 stages: the same losses as on one host, bit by bit, also if
// a host is killed, stopped, or loses a rank, and all are called once more. The hosts are processes of this one, each with its
// own call, that reach each other by TCP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/process/child_process.h"
#include "server/cli/testing/lego_process.h"

namespace legoai::cli::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kHosts = 3, kRanks = 6;

class GangTest : public LegoTest {
 protected:
  void SetUp() override {
    LegoTest::SetUp();
    std::string config = ReadAll(Path("config.json"));
    const std::string layers = "\"num_hidden_layers\": ";
    config.replace(config.find(layers), layers.size() + 1, layers + "6");
    Write(Path("config.json"), config);
    const auto listener = launch::ListenOnLoopback(0);
    port_ = std::to_string(listener->port);
    close(listener->fd);
  }

  std::vector<std::string> Words(const std::string& run, int steps) const {
    return {"train",
            Path("recipe.toml"),
            "--output=json",
            "--job.dump_folder=" + Path(run),
            "--training.steps=" + std::to_string(steps),
            "--training.local_batch_size=4",
            "--training.global_batch_size=8",
            "--training.mixed_precision_param=float32",
            "--parallelism.pipeline_parallel_degree=3",
            "--parallelism.data_parallel_shard_degree=2",
            "--checkpoint.interval=4",
            "--comm.train_timeout_seconds=40"};
  }
  pid_t StartHost(int host, std::vector<std::string> words) const {
    for (const std::string& word : std::vector<std::string>{"--nnodes=3", "--node-rank=" + std::to_string(host),
                                                            "--master-addr=127.0.0.1", "--master-port=" + port_})
      words.push_back(word);
    return Start(std::move(words));
  }
  std::vector<pid_t> StartHosts(const std::string& run, int steps) const {
    std::vector<pid_t> hosts;
    for (int host = 0; host < kHosts; ++host) hosts.push_back(StartHost(host, Words(run, steps)));
    return hosts;
  }
  std::vector<Result> WaitAll(const std::vector<pid_t>& hosts) const {
    std::vector<Result> results;
    for (const pid_t host : hosts) results.push_back(Wait(host));
    return results;
  }

  // Of the training that counted in the end: by step, what was reported with all its digits.
  std::map<int, std::string> Curve(const std::string& run) const {
    std::map<int, std::string> curve;
    std::istringstream lines(ReadAll(Path(run) + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json row = Json::parse(line);
      curve[row["step"]] = row["loss"].dump() + " " + row["grad_norm"].dump();
    }
    return curve;
  }
  int LastStep(const std::string& run) const {
    const auto curve = Curve(run);
    return curve.empty() ? 0 : curve.rbegin()->first;
  }
  // What one host alone computes with the same ranks.
  std::map<int, std::string> Undisturbed(int steps) const {
    std::vector<std::string> words = Words("alone", steps);
    words.push_back("--nproc=6");
    const Result alone = Run(std::move(words));
    EXPECT_EQ(alone.code, 0) << alone.err;
    return Curve("alone");
  }

  static constexpr int kSteps = 40;
  void AwaitStep(pid_t first) const {
    WaitUntil("step 6", [&] { return LastStep("run") >= 6 || launch::ProcessState(first) == 'Z'; });
  }
  // Three hosts that are somewhere between two checkpoints.
  std::vector<pid_t> Begin() const {
    const std::vector<pid_t> hosts = StartHosts("run", kSteps);
    AwaitStep(hosts[0]);
    return hosts;
  }
  // Once more, with nothing in the way.
  void ExpectUndisturbedCurve() const {
    const std::vector<Result> results = WaitAll(StartHosts("run", kSteps));
    for (const Result& result : results) EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_GE(Json::parse(results[0].out)["resumed_from"], 4) << results[0].out;
    EXPECT_EQ(Curve("run"), Undisturbed(kSteps));
  }

  std::string port_;
};

TEST_F(GangTest, ThreeHostsTrainWhatOneDoes) {
  const std::vector<Result> results = WaitAll(StartHosts("run", 6));
  for (const Result& result : results) {
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(Json::parse(result.out)["step"], 6) << result.out;
    EXPECT_EQ(Json::parse(result.out)["run_directory"], Path("run"));
  }
  EXPECT_THAT(results[0].err, HasSubstr("on 6 ranks of 3 hosts"));
  EXPECT_THAT(results[2].err, HasSubstr("begins with ranks 4 to 5 on this host"));
  const auto curve = Curve("run");
  EXPECT_EQ(curve.size(), 6u);
  EXPECT_EQ(curve, Undisturbed(6));
}

TEST_F(GangTest, AHostThatIsKilledEndsAllByNameAndTheSameCallsGoOn) {
  const std::vector<pid_t> hosts = Begin();
  kill(hosts[2], SIGKILL);
  const std::vector<Result> results = WaitAll(hosts);
  EXPECT_EQ(results[2].signal, SIGKILL);
  for (const int host : {0, 1}) {
    EXPECT_EQ(results[host].code, 1);
    EXPECT_THAT(results[host].err, HasSubstr("host 2 at 127.0.0.1 (ranks 4 to 5): is gone")) << host;
  }
  ExpectUndisturbedCurve();
}

TEST_F(GangTest, AHostThatIsStoppedEndsAllByNameAndItselfWhenItGoesOn) {
  const std::vector<pid_t> hosts = Begin();
  std::vector<pid_t> stopped = {hosts[1], Trainer(2), Trainer(3)};
  for (const pid_t pid : stopped) kill(pid, SIGSTOP);
  for (const int host : {0, 2}) {
    const Result result = Wait(hosts[host]);
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr("host 1 at 127.0.0.1 (ranks 2 to 3): was not heard of for 15 s")) << host;
  }
  for (const pid_t pid : stopped) kill(pid, SIGCONT);
  const Result late = Wait(hosts[1]);
  EXPECT_EQ(late.code, 1);
  EXPECT_THAT(late.err, HasSubstr("host 0 at 127.0.0.1:" + port_ + ", which coordinates, is gone"));
  ExpectUndisturbedCurve();
}

// Whoever starts calls, as systemd does, starts the one again that was killed, with the same words; the others wait for it. It
// begins anew once.
TEST_F(GangTest, WithRestartsTheOthersWaitForTheHostThatIsCalledAgain) {
  std::vector<std::string> words = Words("run", kSteps);
  words.push_back("--max-restarts=1");
  words.push_back("--fresh");
  std::vector<pid_t> hosts;
  for (int host = 0; host < kHosts; ++host) hosts.push_back(StartHost(host, words));
  AwaitStep(hosts[0]);
  kill(hosts[1], SIGKILL);
  EXPECT_EQ(Wait(hosts[1]).signal, SIGKILL);
  hosts[1] = StartHost(1, words);
  const std::vector<Result> results = WaitAll(hosts);
  for (const Result& result : results) {
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(Json::parse(result.out)["step"], kSteps);
  }
  for (const int host : {0, 2}) {
    EXPECT_THAT(results[host].err, AllOf(HasSubstr("host 1 at 127.0.0.1 (ranks 2 to 3): is gone"),
                                         HasSubstr("begins once more, 0 restarts left")));
  }
  EXPECT_EQ(Json::parse(results[0].out)["attempt"], 2);
  EXPECT_GE(Json::parse(results[0].out)["resumed_from"], 4);
  EXPECT_EQ(Curve("run"), Undisturbed(kSteps));
}

TEST_F(GangTest, TheFirstHostThatIsKilledEndsAll) {
  const std::vector<pid_t> hosts = Begin();
  kill(hosts[0], SIGKILL);
  const std::vector<Result> results = WaitAll(hosts);
  for (const int host : {1, 2}) {
    EXPECT_EQ(results[host].code, 1);
    EXPECT_THAT(results[host].err, HasSubstr("host 0 at 127.0.0.1:" + port_ + ", which coordinates, is gone"));
  }
  ExpectUndisturbedCurve();
}

// With what it was in, told by the flight records of all hosts.
TEST_F(GangTest, ARankThatIsStoppedIsNamedOnAllHosts) {
  const std::vector<pid_t> hosts = Begin();
  kill(Trainer(5), SIGSTOP);
  const std::vector<Result> results = WaitAll(hosts);
  for (const Result& result : results) {
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr("rank 5 of host 2 at 127.0.0.1 ("), HasSubstr("the process is stopped (SIGSTOP)")));
  }
  for (int rank = 0; rank < kRanks; ++rank)
    EXPECT_TRUE(std::filesystem::exists(folder_ / "run/flight" / ("rank-" + std::to_string(rank) + ".json"))) << rank;
  const Result flight = Run({"fr", Path("run"), "-o", "json"});
  EXPECT_EQ(flight.code, 0) << flight.err;
  EXPECT_THAT(flight.out, HasSubstr("the process is stopped (SIGSTOP)"));
  ExpectUndisturbedCurve();
}

TEST_F(GangTest, AnInterruptOnAnyHostSavesAndStopsAll) {
  const std::vector<pid_t> hosts = Begin();
  kill(hosts[1], SIGINT);
  const std::vector<Result> results = WaitAll(hosts);
  for (const Result& result : results) EXPECT_EQ(result.code, 130) << result.err;
  ExpectUndisturbedCurve();
}

TEST_F(GangTest, HostsThatDoNotAgreeAreRefusedByName) {
  std::vector<std::string> other = Words("run", 6);
  other.push_back("--training.seed=77");
  const std::vector<pid_t> hosts = {StartHost(0, Words("run", 6)), StartHost(1, std::move(other))};
  for (const Result& result : WaitAll(hosts)) {
    EXPECT_EQ(result.code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("training.seed = 77: on host 1 at 127.0.0.1, and "));
  }
}

TEST_F(GangTest, OptionsOfHostsThatDoNotFitAreRefused) {
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"train", Path("recipe.toml")};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  ExpectError(with({"--node-rank=1"}), 2, {"--node-rank = 1: goes with --nnodes"});
  ExpectError(with({"--nnodes=2", "--master-addr=127.0.0.1"}), 2, {"--node-rank", "is needed with --nnodes 2"});
  ExpectError(with({"--nnodes=2", "--node-rank=0"}), 2, {"--master-addr", "is needed"});
  ExpectError(with({"--nnodes=2", "--node-rank=2", "--master-addr=127.0.0.1"}), 2, {"--node-rank"});
  ExpectError(with({"--nnodes=0"}), 2, {"--nnodes"});
  ExpectError(with({"--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", "--interface=eth77"}), 2,
              {"--interface = eth77: is no network interface of this host", "lo"});
  const std::vector<std::string> two = {"--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1"};
  const auto of_two = [&](const std::string& more) {
    std::vector<std::string> words = with(two);
    words.push_back(more);
    return words;
  };
  ExpectError(of_two("--predict"), 2, {"--predict", "goes with one host"});
  ExpectError(of_two("--parallelism.data_parallel_shard_degree=3"), 2, {"--nnodes = 2: does not divide the 3 ranks"});
  Write(Path("job.toml"), "[model]\nname = \"" + Path("config.json") + "\"\n[training]\ndataset_path = \"" + Path("text.txt") +
                              "\"\nglobal_batch_size = 4\nseq_len = 16\nsteps = 2\n");
  ExpectError({"train", Path("job.toml"), two[0], two[1], two[2]}, 2, {"--nnodes = 2: a layout that is left open"});
  const Result alone = Run(with({"--nnodes=1", "--node-rank=0", "--nproc=2", "--dry-run"}));
  EXPECT_EQ(alone.code, 0) << alone.err;
}

}  // namespace
}  // namespace legoai::cli::testing
