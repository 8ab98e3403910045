// What a coordinator makes of what supervisors say, without processes: three hosts of two ranks.
#include "worker/launch/gang_coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "worker/launch/exit_status.h"

namespace legoai::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GangCoordinatorTest : public ::testing::Test {
 protected:
  LaunchCallbacks Callbacks() {
    LaunchCallbacks callbacks;
    callbacks.troubled = [this](const std::vector<v1::RankCondition>& ranks, const absl::Status&) {
      for (const v1::RankCondition& rank : ranks) faults_.push_back(rank.fault());
    };
    callbacks.commit = [this](int64_t step, const std::vector<std::string>& digests) {
      commits_.push_back(absl::StrCat(step, "x", digests.size()));
      return absl::OkStatus();
    };
    return callbacks;
  }

  void Says(int64_t rank, v1::FromTrainer said) {
    said.set_rank(rank);
    v1::FromHost message;
    *message.mutable_rank_says() = std::move(said);
    coordinator_.Hear(rank / 2, message);
  }
  void IsAtStep(int64_t rank, int64_t step) {
    v1::FromTrainer said;
    said.mutable_progress()->set_phase("train");
    said.mutable_progress()->set_step(step);
    Says(rank, said);
  }
  void Ends(int64_t rank, v1::Exit::Cause cause, const absl::Status& status = absl::OkStatus()) {
    v1::FromTrainer said;
    *said.mutable_exit() = MakeExit(cause, 7, status);
    Says(rank, said);
    v1::FromHost message;
    message.mutable_ended()->set_rank(rank);
    coordinator_.Hear(rank / 2, message);
  }
  void Answers(int64_t rank, const std::string& waits_in) {
    v1::FromTrainer said;
    said.mutable_flight_answer()->set_waits_in(waits_in);
    Says(rank, said);
  }
  // Of both ranks.
  void HostAnswers(int64_t host) {
    v1::FromHost message;
    for (const int64_t rank : {2 * host, 2 * host + 1}) {
      auto* state = message.mutable_answered()->add_ranks();
      state->set_rank(rank);
      state->set_process_state("S");
      state->set_connected(true);
    }
    coordinator_.Hear(host, message);
    coordinator_.Advance();
  }
  void HostIsDone(int64_t host, const absl::Status& failure = absl::OkStatus()) {
    v1::FromHost message;
    message.mutable_done();
    if (!failure.ok()) *message.mutable_done()->mutable_failure() = MakeExit(v1::Exit::FAILED, 0, failure);
    coordinator_.Hear(host, message);
    coordinator_.Advance();
  }
  // As the supervisor of its host sees it.
  void FallsSilent(int64_t rank) {
    v1::FromHost message;
    message.mutable_fault()->set_rank(rank);
    message.mutable_fault()->set_blame(v1::BLAME_CONSEQUENCE);
    *message.mutable_fault()->mutable_failure() =
        MakeExit(v1::Exit::FAILED, 0, absl::DeadlineExceededError("no message for 100 s"));
    coordinator_.Hear(rank / 2, message);
    coordinator_.Advance();
  }
  void LoseSilent(int64_t host) {
    coordinator_.Lose(host, v1::BLAME_UNRESPONSIVE, absl::DeadlineExceededError("was not heard of for 15 s"));
    coordinator_.Advance();
  }

  absl::Duration now_;
  WatchClock clock_{[this] { return now_; }};
  std::vector<std::string> told_;  // to all hosts, by kind
  std::vector<std::string> faults_, commits_;
  const LaunchCallbacks callbacks_ = Callbacks();
  GangCoordinator coordinator_{{.world_size = 6, .hosts = {"host 0 at A", "host 1 at B", "host 2 at C"}},
                               callbacks_,
                               clock_,
                               [this](const v1::ToHost& message) {
                                 told_.push_back(message.has_ask()              ? "ask"
                                                 : message.end().kill()         ? "kill"
                                                 : message.has_end()            ? "end"
                                                 : message.to_ranks().has_met() ? "met"
                                                                                : "other");
                               }};
};

TEST_F(GangCoordinatorTest, MeetingsAndVotesNeedTheRanksOfAllHosts) {
  for (int64_t rank = 0; rank < 6; ++rank) {
    coordinator_.AskForVerdicts();
    EXPECT_THAT(told_, IsEmpty()) << rank;
    EXPECT_THAT(commits_, IsEmpty()) << rank;
    v1::FromTrainer ready, arrived;
    ready.mutable_checkpoint_ready()->set_step(4);
    arrived.mutable_arrived()->set_meeting(1);
    Says(rank, ready);
    Says(rank, arrived);
  }
  coordinator_.AskForVerdicts();
  EXPECT_THAT(commits_, ElementsAre("4x6"));
  EXPECT_THAT(told_, ElementsAre("other", "met")) << "commit, and the end of the meeting";
}

TEST_F(GangCoordinatorTest, ItIsDoneWhenAllHostsAre) {
  for (int64_t rank = 0; rank < 6; ++rank) Ends(rank, v1::Exit::FINISHED);
  for (int64_t host = 0; host < 3; ++host) {
    EXPECT_FALSE(coordinator_.done());
    HostIsDone(host);
  }
  EXPECT_TRUE(coordinator_.done());
  LoseSilent(1);  // it has nothing more to say
  const auto outcome = coordinator_.Conclude();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->cause, v1::Exit::FINISHED);
  EXPECT_EQ(outcome->step, 7);
  EXPECT_THAT(told_, IsEmpty());
}

// The others complain before the host is known to be lost.
TEST_F(GangCoordinatorTest, ALostHostBeatsTheConsequencesAndIsWaitedFor) {
  IsAtStep(2, 6);
  Ends(0, v1::Exit::FAILED, absl::UnavailableError("connection closed by peer"));
  coordinator_.Advance();
  EXPECT_THAT(told_, ElementsAre("ask"));
  HostAnswers(0);
  HostAnswers(2);
  EXPECT_THAT(told_, ElementsAre("ask")) << "host 1 may still say what is wrong";
  LoseSilent(1);
  EXPECT_THAT(told_, ElementsAre("ask", "end"));
  EXPECT_THAT(faults_, ElementsAre("consequence", "none", "consequence", "consequence", "none", "none"));
  HostIsDone(0);
  HostIsDone(2);
  ASSERT_TRUE(coordinator_.done());
  EXPECT_EQ(coordinator_.Conclude().status(),
            absl::DeadlineExceededError("host 1 at B (ranks 2 to 3): was not heard of for 15 s"));
}

// A rank that is busy is not blamed for a host's silence, which is shorter than what ranks may take.
TEST_F(GangCoordinatorTest, ASilentHostMakesNobodyHang) {
  LoseSilent(2);
  Answers(0, "all_reduce of group world");
  Answers(1, "");
  HostAnswers(0);
  HostAnswers(1);
  EXPECT_THAT(faults_, ElementsAre("none", "none", "none", "none", "consequence", "consequence"));
}

TEST_F(GangCoordinatorTest, ARankThatHangsOnAnotherHostIsFoundByWhatTheOthersWaitIn) {
  IsAtStep(5, 6);
  Ends(0, v1::Exit::FAILED, absl::DeadlineExceededError("timed out"));
  coordinator_.Advance();
  for (const int64_t rank : {1, 2, 3, 4}) Answers(rank, "all_reduce of group world");
  Answers(5, "");
  for (int64_t host = 0; host < 3; ++host) HostAnswers(host);
  for (int64_t host = 0; host < 3; ++host) HostIsDone(host);
  const auto outcome = coordinator_.Conclude();
  EXPECT_THAT(outcome.status().message(),
              HasSubstr("rank 5 of host 2 at C (train, step 6): hangs, or works longer than the time-out, while rank 4 waits in "
                        "all_reduce of group world"));
}

TEST_F(GangCoordinatorTest, WhereNoOtherIsHeardOfTheOneThatListensIsBlamed) {
  LoseSilent(1);
  LoseSilent(2);
  HostAnswers(0);
  HostIsDone(0);
  EXPECT_THAT(coordinator_.Conclude().status().message(), HasSubstr("host 0 at A (ranks 0 to 1): hears of none of the others"));
}

// Rank 0 exports to a disk that does not answer, say, when the ranks of the other hosts have ended.
TEST_F(GangCoordinatorTest, HostsWhoseRanksHaveEndedAreNotWaitedForWhenTheOthersAreAsked) {
  for (int64_t rank = 2; rank < 6; ++rank) Ends(rank, v1::Exit::FINISHED);
  for (const int64_t host : {1, 2}) HostIsDone(host);
  FallsSilent(0);
  EXPECT_THAT(told_, ElementsAre("ask"));
  HostAnswers(0);
  EXPECT_THAT(told_, ElementsAre("ask", "end"));
  HostIsDone(0);
  ASSERT_TRUE(coordinator_.done());
  EXPECT_THAT(coordinator_.Conclude().status().message(), HasSubstr("rank 0 of host 0 at A: no message for 100 s"));
}

// Whoever was asked without success, or could not be asked: leaving at once does not wait for the answers.
TEST_F(GangCoordinatorTest, AStopThatDiscardsKillsThoseThatAreAskedToo) {
  FallsSilent(0);
  EXPECT_THAT(told_, ElementsAre("ask"));
  coordinator_.HandleStop(Stop::kDiscard);
  now_ = absl::Seconds(4);
  clock_.Tick();
  coordinator_.Advance();
  EXPECT_THAT(told_, ElementsAre("ask", "other")) << "the ranks were told, and have a little time";
  now_ = absl::Seconds(6);
  clock_.Tick();
  coordinator_.Advance();
  EXPECT_THAT(told_, ElementsAre("ask", "other", "kill"));
  for (int64_t host = 0; host < 3; ++host) HostIsDone(host);
  EXPECT_THAT(coordinator_.Conclude().status().message(), HasSubstr("no message for 100 s")) << "what went wrong before";
}

TEST_F(GangCoordinatorTest, AHostThatIsDoneWithoutTheEndOfItsRanksIsNoSuccess) {
  for (const int64_t rank : {0, 1, 2, 4, 5}) Ends(rank, v1::Exit::FINISHED);
  for (int64_t host = 0; host < 3; ++host) HostIsDone(host);
  ASSERT_TRUE(coordinator_.done());
  EXPECT_EQ(coordinator_.Conclude().status(),
            absl::InternalError("host 1 at B (ranks 2 to 3): says that its ranks have ended, and not how rank 3 did"));
}

TEST_F(GangCoordinatorTest, AHostThatCannotStartSaysWhyWithItsField) {
  HostIsDone(1, FieldError("trainer program", "/no/such", "is not there"));
  EXPECT_THAT(told_, ElementsAre("ask"));
  HostAnswers(0);
  HostAnswers(2);
  HostIsDone(0);
  HostIsDone(2);
  const absl::Status failure = coordinator_.Conclude().status();
  EXPECT_THAT(failure.message(), HasSubstr("host 1 at B (ranks 2 to 3): trainer program = /no/such"));
  EXPECT_EQ(GetFieldViolation(failure)->field(), "trainer program");
}

TEST_F(GangCoordinatorTest, AHostSpeaksOfItsOwnRanksOnly) {
  for (const int64_t rank : {-1, 0, 3, 6, 1000000}) {
    GangCoordinator coordinator({.world_size = 6, .hosts = {"host 0 at A", "host 1 at B", "host 2 at C"}}, callbacks_, clock_,
                                [](const v1::ToHost&) {});
    v1::FromHost message;
    message.mutable_fault()->set_rank(rank);
    message.mutable_fault()->set_blame(v1::BLAME_CAUSE);
    coordinator.Hear(2, message);
    EXPECT_THAT(coordinator.Conclude().status().message(), HasSubstr("host 2 at C (ranks 4 to 5): broke the protocol")) << rank;
  }
}

}  // namespace
}  // namespace legoai::launch
