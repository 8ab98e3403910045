// The health of a worker's machine: the agent as a process, which checks its machine, and whose GPUs (of a fake NVML) fall ill.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/hardware/testing/fake_gpus.h"
#include "worker/agent/attempt_log.h"
#include "worker/agent/health.h"
#include "worker/agent/machine_checks.h"
#include "worker/agent/slots.h"
#include "worker/agent/testing/agent_fixture.h"

namespace legoai::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using sim::testing::FakeGpus;
using sim::testing::FakeH100;
using State = testing::ScriptedServer::State;

// What the server knows of it: of the hello, and of what the heartbeats have told since.
v1::WorkerHealth HealthOf(const State& state) {
  v1::WorkerHealth health;
  if (!state.hellos.empty()) health = state.hellos.back().worker().health();
  for (const v1::Heartbeat& heartbeat : state.heartbeats) {
    if (heartbeat.has_health()) health = heartbeat.health();
  }
  return health;
}

std::vector<std::string> Checked(const v1::MachineCheck& check) {
  std::vector<std::string> checked;
  for (const v1::CheckResult& result : check.results()) {
    std::string text = v1::CheckKind_Name(result.kind());
    for (const int64_t slot : result.slots()) absl::StrAppend(&text, " ", slot);
    checked.push_back(text + (result.passed() ? "" : " failed"));
  }
  return checked;
}

class HealthTest : public testing::AgentTest {
 protected:
  explicit HealthTest(const std::string& trainer = "worker/train/legoai-trainer") : AgentTest(trainer) {}
  ~HealthTest() override { unsetenv("LEGOAI_TEST_CHECK"); }

  v1::WorkerHealth Await(const std::function<bool(const v1::WorkerHealth&)>& wanted) {
    EXPECT_TRUE(server_.Await([&](const State& state) { return wanted(HealthOf(state)); }));
    return HealthOf(server_.Get());
  }
  v1::MachineCheck AwaitCheck(int64_t number) {
    return Await([&](const v1::WorkerHealth& health) { return !health.checking() && health.check().number() == number; }).check();
  }
  std::set<int64_t> AwaitFaulty(size_t count) {
    std::set<int64_t> faulty;
    Await([&](const v1::WorkerHealth& health) {
      faulty.clear();
      for (const v1::SlotFault& fault : health.slot_faults()) faulty.insert(fault.slot());
      return faulty.size() == count;
    });
    return faulty;
  }
  void AskForCheck() {
    v1::ToAgent message;
    message.mutable_check();
    server_.Send(message);
  }
};

// Real checks of processors, and a job that came meanwhile waits for its slots.
TEST_F(HealthTest, ChecksProcessorsAndDiskBeforeTheFirstLease) {
  StartAgent({"--check=true"});
  ASSERT_TRUE(AwaitConnection());
  EXPECT_TRUE(server_.Get().hellos[0].worker().health().checking());
  server_.Send(Attempt(1, 2));
  const v1::MachineCheck check = AwaitCheck(1);
  EXPECT_THAT(Checked(check), ElementsAre("DISK_CHECK", "DEVICE_CHECK 0", "DEVICE_CHECK 1", "ALL_GATHER_CHECK 0 1"));
  EXPECT_GT(check.results(0).write_bytes_per_second(), 0);
  EXPECT_GT(check.results(1).flops_per_second(), 0);
  EXPECT_GT(check.results(3).received_bytes_per_second(), 0);
  EXPECT_GT(check.seconds(), 0);
  EXPECT_TRUE(Logged("check: all_gather of slots 0 and 1: passed in "));
  EXPECT_TRUE(Logged("has checked the machine in "));
  ASSERT_TRUE(AwaitEnd(1));
  EXPECT_FALSE(server_.Get().Ended(1)->has_error()) << server_.Get().Ended(1)->error().message();
  AskForCheck();
  EXPECT_EQ(AwaitCheck(2).results_size(), 4);
}

TEST_F(HealthTest, ADiskThatFailsIsTheWholeWorkers) {
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {8 << 20, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  StartAgent({"--check=true", "--slots=1", "--check_again=2s"});
  setrlimit(RLIMIT_FSIZE, &before);
  const v1::WorkerHealth health = Await([](const v1::WorkerHealth& now) { return !now.checking() && !now.fault().empty(); });
  EXPECT_THAT(Checked(health.check()), ElementsAre("DISK_CHECK failed", "DEVICE_CHECK 0", "ALL_GATHER_CHECK"));
  EXPECT_EQ(health.check().results(2).text(), "there is one slot to check, and no pair");
  EXPECT_THAT(health.fault(), HasSubstr("the disk of its runs failed the check: "));
  EXPECT_THAT(health.fault(), HasSubstr("/runs/.check-tester"));
  EXPECT_THAT(health.slot_faults(), IsEmpty());
  ASSERT_EQ(prlimit(agent(), RLIMIT_FSIZE, &before, nullptr), 0);
  Await([](const v1::WorkerHealth& now) { return !now.checking() && now.check().number() > 1 && now.fault().empty(); });
}

TEST_F(HealthTest, WithoutACheckNothingIsChecked) {
  StartAgent({"--check=false"});
  ASSERT_TRUE(AwaitConnection());
  EXPECT_FALSE(server_.Get().hellos[0].worker().health().checking());
  EXPECT_FALSE(server_.Get().hellos[0].worker().health().has_check());
  Signal(SIGTERM);
  EXPECT_EQ(AwaitExit(), 0);
  StartAgent({"--check_limit=0s"});
  EXPECT_EQ(AwaitExit(), 2);
  EXPECT_TRUE(Logged("--check_limit = 0: must be 1s to 1h"));
  StartAgent({"--check_again=0s"});
  EXPECT_EQ(AwaitExit(), 2);
  EXPECT_TRUE(Logged("--check_again = 0: must be 1s to 24h"));
}

// On GPUs of which test_trainer says what the check found.
class GpuHealthTest : public HealthTest {
 protected:
  GpuHealthTest() : HealthTest("worker/launch/test_trainer") { recipe().mutable_training()->set_local_batch_size(1); }
};

TEST_F(GpuHealthTest, WhatFailsGetsNothing) {
  const FakeGpus fake({FakeH100("GPU-a"), FakeH100("GPU-b"), FakeH100("GPU-c"), FakeH100("GPU-d")});
  setenv("LEGOAI_TEST_CHECK", "die:GPU-b,pair:0-3,pair:2-3", 1);
  StartAgent({"--device=cuda", "--slots=4", "--check=true"});
  const v1::MachineCheck check = AwaitCheck(1);
  EXPECT_THAT(Checked(check), ElementsAre("DISK_CHECK", "DEVICE_CHECK 0", "DEVICE_CHECK 1 failed", "DEVICE_CHECK 2",
                                          "DEVICE_CHECK 3", "ALL_GATHER_CHECK 2 3 failed", "ALL_GATHER_CHECK 0 3 failed",
                                          "ALL_GATHER_CHECK 0 2"));
  EXPECT_EQ(check.results(2).text(), "its process exited with code 7: it was told to die");
  EXPECT_EQ(check.results(5).text(), "it was told to fail\\nin two lines") << "servers take no control characters";
  EXPECT_THAT(AwaitFaulty(2), ElementsAre(1, 3)) << "3 is to blame for both pairs";
  EXPECT_TRUE(Logged("slot 3 (GPU 3, GPU-d) gets nothing new: all_gather of slots 2 and 3 failed: it was told to fail"));

  server_.Send(Attempt(1, 3, "01A"));  // as of a server that has not heard of it
  ASSERT_TRUE(AwaitEnd(1));
  const auto refused = server_.Get().Ended(1)->error();
  EXPECT_EQ(refused.code(), static_cast<int>(absl::StatusCode::kUnavailable)) << "another worker may have them";
  EXPECT_THAT(refused.message(),
              HasSubstr("of this worker's 4 slots 2 are sound, and 3 are wanted: slot 1 (GPU 1, GPU-b): its device"));
}

TEST_F(GpuHealthTest, AHungDeviceIsNotWaitedForLongerThanTheLimit) {
  const FakeGpus fake({FakeH100("GPU-a"), FakeH100("GPU-b")});
  setenv("LEGOAI_TEST_CHECK", "hang:GPU-b", 1);
  // Time enough for the two processes that answer, also where much else runs.
  StartAgent({"--device=cuda", "--slots=2", "--check=true", "--check_limit=20s"});
  const v1::MachineCheck check = AwaitCheck(1);
  EXPECT_THAT(Checked(check), ElementsAre("DISK_CHECK", "DEVICE_CHECK 0", "DEVICE_CHECK 1 failed", "ALL_GATHER_CHECK"));
  EXPECT_THAT(check.results(2).text(), HasSubstr("it did not end within 20"));
  EXPECT_THAT(AwaitFaulty(1), ElementsAre(1));
  EXPECT_EQ(check.results(3).text(), "of 2 GPUs 1 passed, and there is no pair");
  Signal(SIGTERM);
  EXPECT_EQ(AwaitExit(), 0);
}

TEST_F(GpuHealthTest, GpusThatFallIllGetNothingUntilTheyAreTakenBack) {
  FakeGpus fake({FakeH100("GPU-a") + ",ecc=0,remap_pending=0", FakeH100("GPU-b") + ",ecc=0,remap_pending=0", FakeH100("GPU-c")});
  StartAgent({"--device=cuda", "--slots=3"});
  ASSERT_TRUE(AwaitConnection());
  fake.Change("GPU-c", "xid=31");
  ASSERT_TRUE(server_.Await(
      [&](const State&) { return Logged("slot 2: its driver told of Xid 31, which programs cause themselves"); }));
  fake.Change("GPU-a", "reasons=64");
  ASSERT_TRUE(server_.Await([](const State& state) {
    return !state.heartbeats.empty() && state.heartbeats.back().use().gpus_size() == 3 &&
           state.heartbeats.back().use().gpus(0).slowdowns_size() == 1;
  })) << "it is told";
  EXPECT_THAT(HealthOf(server_.Get()).slot_faults(), IsEmpty()) << "and both train on";

  fake.Change("GPU-b", "ecc=1");
  fake.Change("GPU-c", "xid=79");
  EXPECT_THAT(AwaitFaulty(2), ElementsAre(1, 2));
  const v1::WorkerHealth health = HealthOf(server_.Get());
  EXPECT_EQ(health.slot_faults(0).cause(), v1::GPU_MEMORY);
  EXPECT_THAT(health.slot_faults(0).reason(), HasSubstr("1 ECC error of its memory could not be corrected"));
  EXPECT_EQ(health.slot_faults(1).cause(), v1::GPU_XID);
  EXPECT_THAT(health.slot_faults(1).reason(), HasSubstr("Xid 79"));
  EXPECT_THAT(health.slot_faults(1).reason(), HasSubstr("`lego workers tester --check`"));
  EXPECT_GT(health.slot_faults(1).time_us(), 0);

  AskForCheck();
  AwaitCheck(1);
  EXPECT_THAT(AwaitFaulty(0), IsEmpty()) << "an operator has taken them back";
  fake.Change("GPU-b", "ecc=2");
  fake.Change("GPU-c", "error=nvmlDeviceGetMemoryInfo:15");
  EXPECT_THAT(AwaitFaulty(2), ElementsAre(1, 2)) << "one more, and one that is gone";
  AskForCheck();
  AwaitCheck(2);
  EXPECT_THAT(AwaitFaulty(1), ElementsAre(2)) << "a check brings no lost GPU back";
  fake.Change("GPU-a", "remap_pending=1");
  EXPECT_THAT(AwaitFaulty(2), ElementsAre(0, 2));
}

TEST_F(GpuHealthTest, XidsOfOtherCardsAreNoticedAfterOneIsLost) {
  FakeGpus fake({FakeH100("GPU-a"), FakeH100("GPU-b")});
  StartAgent({"--device=cuda", "--slots=2"});
  ASSERT_TRUE(AwaitConnection());
  fake.Change("GPU-a", "error=nvmlDeviceGetMemoryInfo:15,error=nvmlEventSetWait_v2:15");
  EXPECT_THAT(AwaitFaulty(1), ElementsAre(0));
  fake.Change("GPU-b", "xid=79");
  EXPECT_THAT(AwaitFaulty(2), ElementsAre(0, 1));
}

// Rows that wait for a reset are the card's own word: a check that passes does not free the slot, for however short.
TEST_F(GpuHealthTest, ACheckTakesNoCardsOwnWordBack) {
  FakeGpus fake({FakeH100("GPU-a") + ",remap_pending=1", FakeH100("GPU-b")});
  StartAgent({"--device=cuda", "--slots=2"});
  ASSERT_TRUE(AwaitConnection());
  EXPECT_THAT(AwaitFaulty(1), ElementsAre(0));
  const size_t before = server_.Get().heartbeats.size();
  AskForCheck();
  AwaitCheck(1);
  const auto heartbeats = server_.Get().heartbeats;
  for (size_t i = before; i < heartbeats.size(); ++i) {
    if (heartbeats[i].has_health()) {
      EXPECT_EQ(heartbeats[i].health().slot_faults_size(), 1);
    }
  }
}

TEST(FaultsOfPairs, AreOfThoseThatRanksToldOfWhereOneHangs) {
  v1::MachineCheck check;
  const auto add = [&](int64_t a, int64_t b, double seconds, bool passed) {
    v1::CheckResult& result = *check.add_results();
    result.set_kind(v1::ALL_GATHER_CHECK);
    result.add_slots(a), result.add_slots(b);
    result.set_seconds(seconds);
    result.set_passed(passed);
    if (!passed) result.set_text(seconds > 0 ? "timed out" : "it did not end within 120 s");
  };
  // 3 hangs in its first pair: its partner 2 is late for 1, and 1 for 0, until all are ended.
  add(2, 3, 24, false);
  add(0, 1, 0.1, true);
  add(1, 2, 0, false);
  add(0, 3, 24, false);
  add(0, 2, 0, false);
  add(1, 3, 24, false);
  const auto faults = FaultsOf(check);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_THAT(faults.at(3), HasSubstr("timed out"));
  // Where nobody told of any, the one that all wait for.
  for (v1::CheckResult& result : *check.mutable_results()) {
    if (!result.passed() && result.slots(1) == 3) result.set_seconds(0);
  }
  EXPECT_FALSE(FaultsOf(check).empty());
}

TEST_F(GpuHealthTest, ADriverThatTellsOfNoXidsIsSaidOnce) {
  FakeGpus fake({FakeH100("GPU-a") + ",ecc=0,error=nvmlDeviceRegisterEvents:3", FakeH100("GPU-b")});
  StartAgent({"--device=cuda", "--slots=2"});
  ASSERT_TRUE(AwaitConnection());
  fake.Change("GPU-b", "error=nvmlDeviceGetMemoryInfo:15");
  EXPECT_THAT(AwaitFaulty(1), ElementsAre(1));
  fake.Change("GPU-a", "ecc=1");
  EXPECT_THAT(AwaitFaulty(2), ElementsAre(0, 1)) << "which was read after the cards had been opened anew without the lost one";
  EXPECT_TRUE(Logged("Xids of the GPUs are not noticed: nvmlDeviceRegisterEvents says: error 3 of the fake"));
  const auto lines = Lines();
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const auto& line) { return absl::StrContains(line.dump(), "Xids of the GPUs are not noticed"); }),
            1);
}

// The faults of one slot, without an agent.
class SlotHealthTest : public ::testing::Test {
 protected:
  // An operator's check that began then, and whose disk has failed.
  void Check(int64_t begin_us, bool device_passed) {
    v1::MachineCheck check;
    check.set_start_time_us(begin_us);
    check.add_results()->set_kind(v1::DISK_CHECK);
    if (device_passed) {
      v1::CheckResult& device = *check.add_results();
      device.set_kind(v1::DEVICE_CHECK);
      device.set_passed(true);
      device.add_slots(0);
    }
    health_.EndCheck({0}, /*takes_back=*/true, std::move(check));
  }
  int64_t NoticedUs() const { return health_.Get().slot_faults(0).time_us(); }
  int Faults() const { return health_.Get().slot_faults_size(); }

  const JsonLog log_{STDERR_FILENO};
  Slots slots_{1, {0}, {"GPU-a"}};
  Health health_{v1::Worker(), slots_, log_, [] {}};
};

TEST_F(SlotHealthTest, ACheckTakesBackNoXidThatCameWhileItRan) {
  health_.Set(0, v1::GPU_XID, "Xid 79");
  const int64_t begin = NoticedUs() + 1;
  for (const char* again : {"Xid 79", "Xid 48"}) {
    while (absl::ToUnixMicros(absl::Now()) < begin) absl::SleepFor(absl::Microseconds(1));
    health_.Set(0, v1::GPU_XID, again);
    Check(begin, /*device_passed=*/true);
    EXPECT_EQ(Faults(), 1) << again;
    EXPECT_EQ(slots_.free(), 0) << again;
  }
  Check(NoticedUs() + 1, /*device_passed=*/true);
  EXPECT_EQ(Faults(), 0);
  EXPECT_EQ(slots_.free(), 1);
}

// As where the folder for the disk's check cannot be made.
TEST_F(SlotHealthTest, ACheckThatDidNotComeToADeviceTakesNothingBack) {
  health_.Set(0, v1::GPU_XID, "Xid 79");
  health_.Set(0, v1::CHECK_FAILED, "its device failed the check");
  Check(NoticedUs() + 1, /*device_passed=*/false);
  EXPECT_EQ(Faults(), 2);
  Check(NoticedUs() + 1, /*device_passed=*/true);
  EXPECT_EQ(Faults(), 0);
}

// Trainers that live through it go on; those that fail do so by it, and the job goes on elsewhere.
TEST_F(GpuHealthTest, AnAttemptOnAFaultySlotGoesOnOrEndsWithThatCause) {
  FakeGpus fake({FakeH100("GPU-a"), FakeH100("GPU-b")});
  server_.Change([](State& state) { state.verdict = [](const v1::CommitRequest&) { return std::nullopt; }; });
  StartAgent({"--device=cuda", "--slots=2"});
  ASSERT_TRUE(AwaitConnection());
  server_.Send(Attempt(1, 1, "01A"));
  server_.Send(Attempt(2, 1, "01B"));
  ASSERT_TRUE(server_.Await([](const State& state) { return state.commit_requests.size() == 2; })) << "both wait for a verdict";
  fake.Change("GPU-a", "xid=79");
  fake.Change("GPU-b", "xid=79");
  EXPECT_THAT(AwaitFaulty(2), ElementsAre(0, 1));
  const auto trainers = Trainers();
  kill(trainers.at({1, 0}), SIGKILL);
  ASSERT_TRUE(server_.Await([&](const State&) { return Logged("waits: "); }));
  for (const v1::CommitRequest& request : server_.Get().commit_requests) {
    v1::ToAgent answer;
    answer.mutable_commit()->set_id(request.id());
    answer.mutable_commit()->set_commit(true);
    server_.Send(answer);
  }
  ASSERT_TRUE(AwaitEnd(1) && AwaitEnd(2));
  const v1::AttemptEnded died = *server_.Get().Ended(1), lived = *server_.Get().Ended(2);
  EXPECT_EQ(died.error().code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_THAT(died.error().message(), HasSubstr("Xid 79"));
  EXPECT_THAT(died.error().message(), HasSubstr("; the trainers say: "));
  EXPECT_FALSE(lived.has_error()) << lived.error().message();
}

}  // namespace
}  // namespace legoai::agent
