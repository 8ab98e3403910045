// Which GPU a rank gets on a worker of several: the agent as a process, a fake NVML, and trainers that say what they were told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/hardware/testing/fake_gpus.h"
#include "core/process/host_resources.h"
#include "worker/agent/testing/agent_fixture.h"
#include "worker/launch/gpus.h"

namespace legoai::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using State = testing::ScriptedServer::State;
using Ranks = std::map<std::pair<int64_t, int64_t>, std::string>;  // the GPU's UUID by epoch and rank

class GpusTest : public testing::AgentTest {
 protected:
  GpusTest() : AgentTest("worker/launch/test_trainer") {}

  // What the trainers say that their Start holds: "pid 7 fd -1 port 8 threads 2 processors 4 gpu GPU-a".
  static Ranks GpusOf(const State& state) {
    Ranks gpus;
    for (const auto& [sequence, fact] : state.telemetry) {
      const std::vector<std::string> words = absl::StrSplit(fact.log().text(), ' ');
      if (words.size() == 12 && words[0] == "pid" && words[10] == "gpu")
        gpus[{fact.lease().epoch(), fact.log().rank()}] = words[11];
    }
    return gpus;
  }
  bool AwaitRanks(size_t count) {
    return server_.Await([&](const State& state) { return GpusOf(state).size() == count; });
  }
  // Its checkpoint is not decided on before: the trainers wait for that.
  void Release(int64_t epoch) {
    const State state = server_.Get();
    server_.Change([&](State& now) {
      now.verdict = [epoch](const v1::CommitRequest& request) -> std::optional<bool> {
        return request.lease().epoch() == epoch ? std::optional(true) : std::nullopt;
      };
    });
    for (const v1::CommitRequest& request : state.commit_requests) {
      if (request.lease().epoch() != epoch) continue;
      v1::ToAgent answer;
      answer.mutable_commit()->set_id(request.id());
      answer.mutable_commit()->set_commit(true);
      server_.Send(answer);
    }
  }
};

TEST_F(GpusTest, JobsSideBySideShareNoneAndAFreedOneIsGivenAgain) {
  const sim::testing::FakeGpus fake({sim::testing::FakeH100("GPU-a"), sim::testing::FakeH100("GPU-b"),
                                     sim::testing::FakeH100("GPU-c"), sim::testing::FakeH100("GPU-d")});
  server_.Change([](State& state) { state.verdict = [](const v1::CommitRequest&) { return std::nullopt; }; });
  recipe().mutable_training()->set_local_batch_size(1);
  StartAgent({"--device=auto", "--slots="});
  ASSERT_TRUE(AwaitConnection());
  const v1::Worker worker = server_.Get().hellos[0].worker();
  EXPECT_EQ(worker.slots(), 4);
  EXPECT_EQ(worker.device().type(), "h100-sxm-80");
  ASSERT_EQ(worker.slot_devices_size(), 4);
  EXPECT_EQ(worker.slot_devices(3).uuid(), "GPU-d");
  EXPECT_TRUE(Logged("4 slots of type h100-sxm-80 (GPUs by --device=auto: 4 NVIDIA H100 80GB HBM3, driver 580.65.06)"));

  server_.Send(Attempt(1, 1, "01A"));
  ASSERT_TRUE(AwaitRanks(1));
  server_.Send(Attempt(2, 2, "01B"));
  ASSERT_TRUE(AwaitRanks(3));
  EXPECT_THAT(GpusOf(server_.Get()),
              ElementsAre(Pair(Pair(1, 0), "GPU-a"), Pair(Pair(2, 0), "GPU-b"), Pair(Pair(2, 1), "GPU-c")));

  ASSERT_TRUE(server_.Await([](const State& state) { return state.commit_requests.size() == 2; })) << "both are still there";
  Release(1);
  ASSERT_TRUE(AwaitEnd(1));
  EXPECT_FALSE(server_.Get().Ended(1)->has_error()) << server_.Get().Ended(1)->error().message();
  server_.Send(Attempt(3, 2, "01C"));
  ASSERT_TRUE(AwaitRanks(5));
  const Ranks gpus = GpusOf(server_.Get());
  EXPECT_EQ(gpus.at({3, 0}), "GPU-a") << "which the first has given back";
  EXPECT_EQ(gpus.at({3, 1}), "GPU-d") << "and not that of the second job's rank 1";
  EXPECT_FALSE(server_.Get().Ended(2)) << "which still runs";
}

// The GPU computes; the host launches its work from several threads, and draws the weights.
TEST_F(GpusTest, ARankHasItsShareOfTheHostsCoresAndIsPinnedToNone) {
  const sim::testing::FakeGpus fake({sim::testing::FakeH100("GPU-a")});
  recipe().mutable_training()->set_local_batch_size(1);
  StartAgent({"--device=cuda", "--slots="});
  ASSERT_TRUE(AwaitConnection());
  server_.Send(Attempt(1, 1));
  ASSERT_TRUE(AwaitRanks(1));
  const std::string expected =
      absl::StrCat(" threads ", launch::AllowedCores(), " processors ", launch::AllowedCpus().size(), " gpu GPU-a");
  EXPECT_TRUE(server_.Await([&](const State& state) {
    return std::any_of(state.telemetry.begin(), state.telemetry.end(),
                       [&](const auto& fact) { return absl::EndsWith(fact.second.log().text(), expected); });
  })) << expected;
  ASSERT_TRUE(AwaitEnd(1));
}

TEST_F(GpusTest, GpusOfAnAgentAreNobodyElsesUntilItEnds) {
  const sim::testing::FakeGpus fake({sim::testing::FakeH100("GPU-a"), sim::testing::FakeH100("GPU-b")});
  {
    const auto claim = launch::GpuClaim::Take({"GPU-b"});
    ASSERT_TRUE(claim.ok()) << claim.status();
    StartAgent({"--device=cuda", "--slots=2"});
    EXPECT_EQ(AwaitExit(), 1);
    EXPECT_TRUE(Logged(absl::StrCat("gpu = GPU-b: is taken by process ", getpid())));
  }
  StartAgent({"--device=cuda", "--slots=1"});
  ASSERT_TRUE(AwaitConnection());
  const absl::Status taken = launch::GpuClaim::Take({"GPU-a"}).status();
  EXPECT_THAT(std::string(taken.message()), ::testing::HasSubstr("(legoai-agent), and a GPU is one training's at a time"));
  EXPECT_TRUE(launch::GpuClaim::Take({"GPU-b"}).ok()) << "it has one slot";
  Signal(SIGKILL);
  AwaitExit();
  EXPECT_TRUE(launch::GpuClaim::Take({"GPU-a"}).ok());
}

TEST_F(GpusTest, WhatCannotBeIsSaidAtTheStart) {
  const sim::testing::FakeGpus fake({sim::testing::FakeH100("GPU-a"), sim::testing::FakeH200("GPU-b")});
  StartAgent({"--device=cuda"});
  EXPECT_EQ(AwaitExit(), 2);
  EXPECT_TRUE(Logged("leaves GPUs of different kinds"));
  setenv("CUDA_VISIBLE_DEVICES", "GPU-a", 1);
  StartAgent({"--device=cuda"});
  EXPECT_EQ(AwaitExit(), 2) << "two slots";
  EXPECT_TRUE(Logged("--slots = 2: is more than the GPUs that can be used here, 1"));
}

}  // namespace
}  // namespace legoai::agent
