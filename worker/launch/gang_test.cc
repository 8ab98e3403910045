// Hosts of one gang, each with a RunTraining of its own on a thread: processes and connections are real, the trainers train
// nothing (test_trainer.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/directory.h"
#include "core/objectstore/testing/scripted_store.h"
#include "core/process/build_version.h"
#include "core/process/child_process.h"
#include "core/process/mutex.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "worker/launch/gang_address.h"
#include "worker/launch/testing/tiny_run.h"

namespace legoai::launch {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RunTrainingTest;

class GangTest : public RunTrainingTest {
 protected:
  static constexpr int64_t kHosts = 3;

  GangTest() {
    const auto listener = ListenOnLoopback(0);
    port_ = listener->port;
    close(listener->fd);
    for (int64_t host = 0; host < kHosts; ++host) {
      Host& one = hosts_.emplace_back();
      one.request = request_;
      one.request.gang = GangPlace{.hosts = kHosts, .host = host, .address = "127.0.0.1", .port = port_, .device = "cpu"};
      one.callbacks.log = [&one](const std::string&, const std::string& text) { one.logs.push_back(text); };
      one.callbacks.started = [this](int64_t rank, int64_t pid) {
        const MutexLock lock(mutex_);
        pids_[rank] = static_cast<pid_t>(pid);
        ++starts_;
      };
    }
  }

  struct Host {
    TrainRequest request;
    TrainCallbacks callbacks;
    StopPipe stop;
    std::vector<std::string> logs;
    absl::StatusOr<TrainOutcome> outcome = absl::UnknownError("has not run");
  };

  void UseTrainerOnAll(const std::string& arguments) {
    UseTrainer(arguments);
    for (Host& host : hosts_) host.request.trainer = request_.trainer;
  }

  // Until all calls have ended; nobody is left.
  void RunAll() {
    std::vector<std::thread> threads;
    for (Host& host : hosts_)
      threads.emplace_back([&host] { host.outcome = RunTraining(host.request, host.callbacks, &host.stop); });
    for (std::thread& thread : threads) thread.join();
    for (const auto& [rank, pid] : Started()) EXPECT_EQ(kill(pid, 0), -1) << "rank " << rank;
  }
  std::map<int64_t, pid_t> Started() {
    const MutexLock lock(mutex_);
    return pids_;
  }
  std::vector<std::string> Errors() const {
    std::vector<std::string> errors;
    for (const Host& host : hosts_) errors.push_back(std::string(host.outcome.status().message()));
    return errors;
  }

  int64_t port_ = 0;
  std::deque<Host> hosts_;
  Mutex mutex_;
  std::map<int64_t, pid_t> pids_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int64_t> starts_{0};
};

TEST_F(GangTest, AllFinishAndACheckpointCountsOnceAllRanksOfAllHostsHaveIt) {
  std::vector<std::string> commits;
  hosts_[0].callbacks.commit = [&](int64_t step, const std::vector<std::string>& digests) {
    commits.push_back(absl::StrCat(step, ": ", digests.size(), " ", digests.back()));
    return absl::OkStatus();
  };
  RunAll();
  for (const Host& host : hosts_) {
    ASSERT_TRUE(host.outcome.ok()) << host.outcome.status();
    EXPECT_EQ(host.outcome->cause, v1::Exit::FINISHED);
    EXPECT_EQ(host.outcome->step, 5);
    EXPECT_EQ(host.outcome->attempt, 1);
    EXPECT_EQ(host.outcome->run_directory, path());
  }
  EXPECT_THAT(commits, ElementsAre("2: 6 digest-5"));
  EXPECT_THAT(hosts_[0].outcome->peak_memory_bytes, ElementsAre(1000, 1001, 1002, 1003, 1004, 1005));
  EXPECT_EQ(ReadMetrics(path())->size(), 5u) << "one row of all ranks for each step";
  EXPECT_EQ((*ReadRun(path()))->attempts(0).world_size(), 6);
}

TEST_F(GangTest, ARankThatDiesIsNamedWithItsHostOnAllHosts) {
  UseTrainerOnAll("--act=die --culprit=3 --steps=1000000");
  RunAll();
  EXPECT_THAT(Errors(), Each(HasSubstr("rank 3 of host 1 at 127.0.0.1 (train, step 2): the process was killed by signal 9")));
  for (const Host& host : hosts_) EXPECT_EQ(host.outcome.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ((*ReadRun(path()))->attempts(0).outcome(), "failed");
  EXPECT_THAT((*ReadRun(path()))->attempts(0).error(), HasSubstr("rank 3 of host 1"));
}

TEST_F(GangTest, AFailureKeepsItsFieldOnAllHosts) {
  UseTrainerOnAll("--act=fail --culprit=5 --steps=1000000");
  RunAll();
  for (const Host& host : hosts_) {
    ASSERT_TRUE(GetFieldViolation(host.outcome.status()).has_value()) << host.outcome.status();
    EXPECT_EQ(GetFieldViolation(host.outcome.status())->field(), "training.lr");
    EXPECT_THAT(host.outcome.status().message(), HasSubstr("rank 5 of host 2"));
  }
}

// The last rank reads it, on the last host; all hosts start their ranks once more.
TEST_F(GangTest, ADamagedCheckpointThatAnotherHostFindsIsPutAsideAndAllGoOnFromTheOneBefore) {
  request_ = hosts_[0].request;
  for (const int64_t step : {2, 4}) MakeCheckpoint(step, std::string(BuildVersion()));
  testing::FlipBit(CheckpointsPath(path()) + "/step-4/rank-00000.bin");
  RunAll();
  for (const Host& host : hosts_) ASSERT_TRUE(host.outcome.ok()) << host.outcome.status();
  EXPECT_EQ(hosts_[0].outcome->resumed_from, 2);
  EXPECT_THAT(*checkpoint::ListPutAside(CheckpointsPath(path())), ElementsAre("step-4.damaged"));
  EXPECT_EQ(starts_, 12);
}

TEST_F(GangTest, AStopOnOneHostStopsAll) {
  UseTrainerOnAll("--steps=1000000");
  hosts_[2].callbacks.progress = [this](const v1::Progress& progress) {
    if (progress.step() == 4) hosts_[2].stop.Request(/*save=*/true);
  };
  RunAll();
  for (const Host& host : hosts_) {
    ASSERT_TRUE(host.outcome.ok()) << host.outcome.status();
    EXPECT_EQ(host.outcome->cause, v1::Exit::STOPPED);
    EXPECT_GE(host.outcome->step, 4);
  }
}

TEST_F(GangTest, AHostWithAnotherRecipeIsRefusedByNameBeforeAnythingStarts) {
  hosts_.pop_back();
  for (Host& host : hosts_) host.request.gang->hosts = 2;
  hosts_[1].request.recipe.mutable_training()->set_seed(99);
  RunAll();
  EXPECT_THAT(Errors(), Each(AllOf(HasSubstr("training.seed = 99: on host 1 at 127.0.0.1, and "), HasSubstr("same recipe"))));
  EXPECT_TRUE(Started().empty());
  EXPECT_FALSE(*ReadRun(path())) << "no attempt has begun";
}

TEST_F(GangTest, HostsThatDoNotComeAreNamed) {
  for (Host& host : hosts_) host.request.recipe.mutable_comm()->set_init_timeout_seconds(2);
  hosts_.pop_back();
  RunAll();
  EXPECT_THAT(Errors(), Each(HasSubstr("host 2 of 3 did not join at 127.0.0.1")));
}

// As `lego train --fresh --max-restarts` calls it: what a host says when it joins is what its call said.
TEST_F(GangTest, OnlyTheFirstHostKnowsWhetherItHasBegunAnewAndItDoesSoOnce) {
  request_ = hosts_[0].request;
  MakeCheckpoint(2, std::string(BuildVersion()));
  for (Host& host : hosts_) host.request.fresh = true;
  int64_t begun_anew = 0;
  hosts_[0].callbacks.begun_anew = [&] { ++begun_anew; };
  TrainRequest alone = hosts_[0].request;
  alone.recipe.mutable_comm()->set_init_timeout_seconds(1);
  EXPECT_THAT(RunTraining(alone, hosts_[0].callbacks, nullptr).status().message(), HasSubstr("hosts 1, 2 of 3 did not join"));
  EXPECT_EQ(begun_anew, 0) << "it still has to";
  EXPECT_THAT(*checkpoint::ListCheckpoints(CheckpointsPath(path())), ElementsAre(2));
  RunAll();
  for (const Host& host : hosts_) ASSERT_TRUE(host.outcome.ok()) << host.outcome.status();
  EXPECT_EQ(hosts_[0].outcome->resumed_from, std::nullopt);
  EXPECT_EQ(begun_anew, 1);
  MakeCheckpoint(4, std::string(BuildVersion()));  // as if a host had been lost then
  hosts_[0].request.begun_anew = true;
  RunAll();
  for (const Host& host : hosts_) ASSERT_TRUE(host.outcome.ok()) << host.outcome.status();
  EXPECT_EQ(hosts_[0].outcome->resumed_from, 4);
  EXPECT_EQ(begun_anew, 1);
}

TEST_F(GangTest, TheFirstHostThatIsNotThereIsNamed) {
  for (Host& host : hosts_) host.request.recipe.mutable_comm()->set_init_timeout_seconds(1);
  hosts_.pop_front();
  RunAll();
  EXPECT_THAT(Errors(), Each(HasSubstr(absl::StrCat("host 0 at 127.0.0.1:", port_, " did not answer within 1 s"))));
}

// As host 1 twice: the second one hears it, and the others go on waiting for host 2.
TEST_F(GangTest, ASecondHostOfOneNumberIsRefusedAlone) {
  hosts_[0].request.recipe.mutable_comm()->set_init_timeout_seconds(5);
  for (Host& host : hosts_) host.request.recipe = hosts_[0].request.recipe;
  hosts_[2].request.gang->host = 1;
  RunAll();
  EXPECT_THAT(Errors()[0], HasSubstr("host 2 of 3 did not join"));
  const std::vector<std::string> others = {Errors()[1], Errors()[2]};
  EXPECT_THAT(others, ::testing::UnorderedElementsAre(HasSubstr("host 2 of 3 did not join"),
                                                      HasSubstr("--node-rank = 1: is that of host 1 at 127.0.0.1 already")));
}

TEST_F(GangTest, WhoeverSpeaksAnotherLanguageIsNoHost) {
  // Before the others come: the first host says where it waits.
  bool came = false;
  hosts_[0].callbacks.progress = [&](const v1::Progress& progress) {
    if (progress.waits().empty() || std::exchange(came, true)) return;
    const auto fd = ConnectTo("127.0.0.1", port_, absl::Seconds(5));
    ASSERT_TRUE(fd.ok()) << fd.status();
    const char text[] = "GET / HTTP/1.1\r\n\r\n";
    send(*fd, text, sizeof(text), MSG_NOSIGNAL);
    close(*fd);
  };
  RunAll();
  EXPECT_TRUE(came);
  for (const Host& host : hosts_) EXPECT_TRUE(host.outcome.ok()) << host.outcome.status();
}

// A gang that uses the port of another by mistake: it hears so, and the other goes on waiting.
TEST_F(GangTest, AHostOfAnotherRunIsRefusedAlone) {
  TrainRequest stranger = hosts_[2].request;
  stranger.recipe.mutable_job()->set_dump_folder(path() + "-of-another");
  stranger.recipe.mutable_training()->set_seed(99);
  absl::Status refused;
  bool came = false;
  // Before host 2 joins.
  hosts_[2].callbacks.progress = [&](const v1::Progress& progress) {
    if (progress.waits().empty() || std::exchange(came, true)) return;
    refused = RunTraining(stranger, TrainCallbacks(), nullptr).status();
  };
  std::vector<std::string> waits;
  hosts_[0].callbacks.progress = [&](const v1::Progress& progress) { waits.push_back(progress.waits()); };
  RunAll();
  const std::string text = "job.dump_folder = " + path() + "-of-another: on host 2 at 127.0.0.1, and " + path() + " on host 0";
  EXPECT_THAT(refused.message(), HasSubstr(text));
  EXPECT_THAT(waits, ::testing::Contains(HasSubstr("; refused as of another run: " + text)));
  for (const Host& host : hosts_) EXPECT_TRUE(host.outcome.ok()) << host.outcome.status();
}

// More than are kept, before the hosts come; one has much to say, and one something else.
TEST_F(GangTest, ThoseWhoKnockAndDoNotSayWhoTheyAreKeepNoHostOut) {
  std::vector<int> strangers;
  std::promise<void> all_knocked;
  const std::shared_future<void> knocked = all_knocked.get_future().share();
  for (const int host : {1, 2}) hosts_[host].callbacks.progress = [knocked](const v1::Progress&) { knocked.wait(); };
  hosts_[0].callbacks.progress = [&](const v1::Progress& progress) {
    if (progress.waits().empty() || !strangers.empty()) return;
    for (int i = 0; i < 40; ++i) {
      const auto fd = ConnectTo("127.0.0.1", port_, absl::Seconds(5));
      EXPECT_TRUE(fd.ok()) << fd.status();
      strangers.push_back(fd.value_or(-1));
    }
    const char much[] = {0, 0, 0, 4}, alive[] = {2, 0, 0, 0, 0x3a, 0}, part[] = {9};
    send(strangers[39], much, sizeof(much), MSG_NOSIGNAL);
    send(strangers[38], alive, sizeof(alive), MSG_NOSIGNAL);
    send(strangers[37], part, sizeof(part), MSG_NOSIGNAL);
    all_knocked.set_value();
  };
  RunAll();
  for (const Host& host : hosts_) EXPECT_TRUE(host.outcome.ok()) << host.outcome.status();
  EXPECT_EQ(strangers.size(), 40u);
  char byte;
  for (const int fd : strangers) {
    EXPECT_LE(recv(fd, &byte, 1, 0), 0) << "nothing is said to it, and it is not kept";
    close(fd);
  }
}

TEST_F(GangTest, AStopBeforeAllHaveJoinedStopsThoseThatHave) {
  hosts_.pop_back();
  hosts_[0].callbacks.progress = [this](const v1::Progress& progress) {
    if (progress.waits().rfind("host 2 of 3", 0) == 0) hosts_[0].stop.Request(/*save=*/true);
  };
  RunAll();
  for (const Host& host : hosts_) {
    ASSERT_TRUE(host.outcome.ok()) << host.outcome.status();
    EXPECT_EQ(host.outcome->cause, v1::Exit::STOPPED);
    EXPECT_EQ(host.outcome->attempt, 0);
  }
}

// It has listened, and was stopped before it heard who came.
TEST_F(GangTest, TheFirstHostThatFallsSilentBeforeTheBeginningIsNamed) {
  std::string address;
  const auto listener = ListenOn("127.0.0.1", port_, &address);
  ASSERT_TRUE(listener.ok()) << listener.status();
  hosts_.pop_front();
  RunAll();
  EXPECT_THAT(Errors(), Each(AllOf(HasSubstr("host 0 at 127.0.0.1"), HasSubstr("which coordinates, was not heard of for 15 s"))));
  close(listener->fd);
}

TEST_F(GangTest, AnAddressThatIsNotTheFirstHostsIsAFieldError) {
  hosts_.resize(1);
  hosts_[0].request.gang->address = "192.0.2.7";  // reserved for documentation
  RunAll();
  EXPECT_EQ(GetFieldViolation(hosts_[0].outcome.status())->field(), "--master-addr");
  EXPECT_THAT(Errors()[0], HasSubstr("is no address of this host, which is the first"));
  hosts_[0].request.gang->address = "no.such.host.invalid";
  RunAll();
  EXPECT_THAT(Errors()[0], HasSubstr("--master-addr = no.such.host.invalid: is no address or name of a host"));
  hosts_[0].request.gang->address = "127.1";  // as a name in /etc/hosts
  RunAll();
  EXPECT_THAT(Errors()[0], HasSubstr("--master-addr = 127.1: stands for 127.0.0.1 on this host"));
}

// As the first host does; the others would wait for this one, and give it up.
TEST_F(GangTest, AHostWaitsForRoomInTheObjectStoreBeforeItJoins) {
  objectstore::ScriptedStore store({objectstore::Refusal(507, "InsufficientStorage", "")});
  Host& host = hosts_[1];
  host.request.recipe.mutable_checkpoint()->set_enable_checkpoint(true);
  host.request.recipe.mutable_checkpoint()->set_folder("s3://bucket/run");
  std::vector<std::string> waits;
  host.callbacks.progress = [&](const v1::Progress& progress) {
    waits.push_back(progress.waits());
    host.stop.Request(/*save=*/true);
  };
  const auto outcome = RunTraining(host.request, host.callbacks, &host.stop);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->cause, v1::Exit::STOPPED);
  ASSERT_EQ(waits.size(), 1u) << "it has not joined";
  EXPECT_THAT(waits[0], HasSubstr("the object store is full: checkpoint.folder = s3://bucket"));
}

TEST(GangAddress, ARankListensOnTheWayToTheOthersOrOnTheInterfaceThatIsGiven) {
  unsetenv(kGlooInterface);
  EXPECT_EQ(*ListenAddress("127.0.0.1", 29500), "127.0.0.1");
  setenv(kGlooInterface, "lo", 1);
  EXPECT_EQ(*ListenAddress("192.0.2.7", 29500), "127.0.0.1");
  setenv(kGlooInterface, "eth77", 1);
  const absl::Status refused = ListenAddress("127.0.0.1", 29500).status();
  EXPECT_THAT(refused.message(), HasSubstr("--interface = eth77: is no network interface of this host that is up"));
  unsetenv(kGlooInterface);
}

}  // namespace
}  // namespace legoai::launch
