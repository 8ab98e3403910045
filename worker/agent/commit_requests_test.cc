#include "worker/agent/commit_requests.h"

#include <gtest/gtest.h>

#include <vector>

namespace legoai::agent {
namespace {

v1::CommitRequest Request(int64_t step) {
  v1::CommitRequest request;
  request.set_step(step);
  return request;
}

v1::CommitAnswer AnswerTo(int64_t id, bool commit, const std::string& reason = "") {
  v1::CommitAnswer answer;
  answer.set_id(id);
  answer.set_commit(commit);
  answer.set_reason(reason);
  return answer;
}

class CommitRequestsTest : public ::testing::Test {
 protected:
  int64_t Ask(int64_t step) {
    return requests_.Ask(Request(step), [this] { ++answered_; });
  }
  int asked_ = 0, answered_ = 0;
  CommitRequests requests_{[this] { ++asked_; }};
};

TEST_F(CommitRequestsTest, AQuestionIsSentOnceAndAnsweredOnce) {
  const int64_t first = Ask(10), second = Ask(20);
  EXPECT_EQ(asked_, 2);
  EXPECT_EQ(requests_.NextToSend()->step(), 10);
  EXPECT_EQ(requests_.NextToSend()->id(), second);
  EXPECT_FALSE(requests_.NextToSend());
  EXPECT_FALSE(requests_.Take(first));
  requests_.Answer(AnswerTo(second, false, "no"));
  EXPECT_EQ(answered_, 1);
  EXPECT_FALSE(requests_.Take(first)) << "the other one's answer";
  const auto verdict = requests_.Take(second);
  ASSERT_TRUE(verdict);
  EXPECT_FALSE(verdict->commit);
  EXPECT_EQ(verdict->reason, "no");
  EXPECT_FALSE(verdict->doubtful);
  EXPECT_FALSE(requests_.Take(second));
  requests_.Answer(AnswerTo(second, true));
  requests_.Answer(AnswerTo(99, true));
  EXPECT_EQ(answered_, 1);
}

// The first answer may have been "yes", and got lost with its connection.
TEST_F(CommitRequestsTest, ADenialAfterAReconnectionIsDoubtful) {
  const int64_t denied = Ask(10), granted = Ask(20), unsent = Ask(30);
  requests_.NextToSend();
  requests_.NextToSend();
  requests_.SendAllAgain();
  EXPECT_EQ(requests_.NextToSend()->id(), denied) << "the same id";
  EXPECT_EQ(requests_.NextToSend()->id(), granted);
  EXPECT_EQ(requests_.NextToSend()->id(), unsent);
  requests_.Answer(AnswerTo(denied, false));
  requests_.Answer(AnswerTo(granted, true));
  requests_.Answer(AnswerTo(unsent, false));
  EXPECT_TRUE(requests_.Take(denied)->doubtful);
  EXPECT_FALSE(requests_.Take(granted)->doubtful);
  EXPECT_FALSE(requests_.Take(unsent)->doubtful) << "the earlier connection never carried it";
}

// Of several that are pending, over as many connections as it takes: each connection carries all that are open, in the order in
// which they were put, so the server never hears of a later step of a job before an earlier one.
TEST_F(CommitRequestsTest, EveryConnectionCarriesWhatIsOpenInOrder) {
  const auto sent = [this] {
    std::vector<int64_t> steps;
    while (const auto question = requests_.NextToSend()) steps.push_back(question->step());
    return steps;
  };
  const int64_t first = Ask(10);
  Ask(20);
  EXPECT_EQ(sent(), (std::vector<int64_t>{10, 20}));
  Ask(30);  // the connection is lost, and nobody has noticed yet
  EXPECT_EQ(sent(), (std::vector<int64_t>{30}));
  Ask(40);
  requests_.SendAllAgain();
  EXPECT_EQ(requests_.NextToSend()->step(), 10);
  EXPECT_EQ(requests_.NextToSend()->step(), 20);
  requests_.Answer(AnswerTo(first, true));
  requests_.SendAllAgain();  // lost in the midst of it
  Ask(50);
  EXPECT_EQ(sent(), (std::vector<int64_t>{20, 30, 40, 50}));
  EXPECT_TRUE(requests_.Take(first)->commit);
}

TEST_F(CommitRequestsTest, WhatIsAnsweredIsNotAskedAgainAndWhatIsWithdrawnNotAnswered) {
  const int64_t id = Ask(10), gone = Ask(20);
  requests_.NextToSend();
  requests_.Answer(AnswerTo(id, true));
  requests_.Withdraw(gone);
  requests_.SendAllAgain();
  EXPECT_FALSE(requests_.NextToSend());
  requests_.Answer(AnswerTo(gone, true));
  EXPECT_EQ(answered_, 1);
  EXPECT_TRUE(requests_.Take(id)->commit);
}

}  // namespace
}  // namespace legoai::agent
