// What the agent says of a job for the job's log, and of its checkpoints' removal, with real trainers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/checkpoint/directory.h"
#include "core/process/run_directory.h"
#include "worker/agent/testing/agent_fixture.h"

namespace legoai::agent {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using State = testing::ScriptedServer::State;

class AgentLogTest : public testing::AgentTest {
 protected:
  // Of one epoch: "level [rank: ]text".
  std::vector<std::string> Lines(int64_t epoch) {
    std::vector<std::string> lines;
    bool ended = false;
    for (const auto& [sequence, fact] : server_.Get().telemetry) {
      if (fact.lease().epoch() != epoch) continue;
      ended = ended || fact.has_ended();
      if (!fact.has_log()) continue;
      EXPECT_FALSE(ended) << fact.log().text();
      const v1::LogLine& line = fact.log();
      lines.push_back(absl::StrCat(line.level(), " ", line.has_rank() ? absl::StrCat(line.rank(), ": ") : "", line.text()));
    }
    return lines;
  }
  // What was said of directories, in order: the epoch's folder and its steps; "earlier" where those of earlier epochs go.
  std::vector<std::string> Kept(int64_t epoch) {
    std::vector<std::string> kept;
    for (const auto& [sequence, fact] : server_.Get().telemetry) {
      if (fact.lease().epoch() != epoch) continue;
      if (fact.has_earlier_removed()) kept.push_back("earlier");
      if (!fact.has_directory_kept()) continue;
      std::string directory = fact.directory_kept().directory();
      for (const int64_t of : {1, 2}) {
        if (directory == Checkpoints(of)) directory = absl::StrCat(of);
      }
      kept.push_back(absl::StrCat(directory, ": ", absl::StrJoin(fact.directory_kept().steps(), " ")));
    }
    return kept;
  }
};

TEST_F(AgentLogTest, AHealthyAttempt) {
  recipe().mutable_checkpoint()->set_last_save_in_hf(true);
  recipe().mutable_checkpoint()->set_keep_latest_k(2);
  recipe().mutable_validation()->set_enable(true);
  recipe().mutable_validation()->set_freq(3);
  StartAgent();
  ASSERT_TRUE(AwaitConnection());
  v1::ToAgent attempt = Attempt(1, 2);
  attempt.mutable_start()->set_recipe_text("shard 2, float32");
  server_.Send(attempt);
  ASSERT_TRUE(AwaitEnd(1));
  const std::vector<std::string> lines = Lines(1);
  ASSERT_THAT(lines, Not(SizeIs(0)));
  EXPECT_EQ(lines[0],
            "info attempt 1 begins: 2 ranks of workers/tester (shard 2, float32), in " + EpochFolder(1) + ", from the beginning");
  EXPECT_THAT(lines, Contains(AllOf(StartsWith("info 0: step: 1  loss: "), HasSubstr("  grad_norm: "), HasSubstr("  memory: "),
                                    HasSubstr("  tps: "))));
  EXPECT_THAT(lines, Contains(AllOf(StartsWith("info 0: step: 3  loss: "), HasSubstr("  validation_loss: "))));
  for (const char* step : {"2", "4", "6"})
    EXPECT_THAT(lines, Contains(absl::StrCat("info the checkpoint of step ", step, " is committed")));
  for (const char* step : {"1", "2", "3", "4", "5", "6"})
    EXPECT_LE(std::count_if(lines.begin(), lines.end(),
                            [&](const auto& line) { return line.rfind(absl::StrCat("info 0: step: ", step, " "), 0) == 0; }),
              1);
  ASSERT_GE(lines.size(), 3u);
  EXPECT_EQ(lines[lines.size() - 2], "info the weights are exported to " + EpochFolder(1) + "/hf");
  EXPECT_EQ(lines.back(), "info attempt 1 has finished at step 6");
  EXPECT_THAT(Kept(1), ElementsAre("1: 2", "earlier", "1: 2 4", "1: 4 6", "1: 4 6")) << "the last at the end, too";
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints(1)), ElementsAre(4, 6));
}

TEST_F(AgentLogTest, AnAttemptThatCannotBegin) {
  StartAgent();
  ASSERT_TRUE(AwaitConnection());
  v1::ToAgent attempt = Attempt(1, 2);
  attempt.mutable_start()->mutable_dataset()->set_uri(folder() + "/none.txt");
  server_.Send(attempt);
  ASSERT_TRUE(AwaitEnd(1));
  const std::vector<std::string> lines = Lines(1);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], StartsWith("info attempt 1 begins: 2 ranks"));
  EXPECT_THAT(lines[1], AllOf(StartsWith("error attempt 1 has failed: "), HasSubstr("none.txt")));
}

TEST_F(AgentLogTest, ARankThatDiesAndTheNextAttempt) {
  recipe().mutable_training()->set_steps(1'000'000);
  recipe().mutable_checkpoint()->set_keep_latest_k(1);
  ASSERT_TRUE(Begin(Attempt(1, 2)));
  ASSERT_TRUE(server_.Await([](const State& state) { return state.commit_requests.size() > 3; }));
  kill(Trainers().at({1, 1}), SIGKILL);
  ASSERT_TRUE(AwaitEnd(1));
  EXPECT_THAT(Lines(1).back(), AllOf(StartsWith("error attempt 1 has failed: rank 1 ("), HasSubstr("signal 9")));
  const auto held = checkpoint::ListCheckpoints(Checkpoints(1));
  ASSERT_TRUE(held.ok() && !held->empty());

  v1::ToAgent next = Attempt(2, 2);
  next.mutable_start()->set_resume_step(held->back());
  next.mutable_start()->set_resume_directory(Checkpoints(1));
  next.mutable_start()->mutable_recipe()->mutable_training()->set_steps(held->back() + 2);
  server_.Send(next);
  ASSERT_TRUE(AwaitEnd(2));
  EXPECT_THAT(Lines(2)[0], HasSubstr(absl::StrCat(", from step ", held->back())));
  const std::vector<std::string> kept = Kept(2);
  ASSERT_GE(kept.size(), 3u);
  EXPECT_EQ(kept[0], absl::StrCat("1: ", absl::StrJoin(*held, " ")));
  EXPECT_EQ(kept[1], "earlier");
  EXPECT_EQ(kept.back(), absl::StrCat("2: ", held->back() + 2));
}

}  // namespace
}  // namespace legoai::agent
