// The checker finds what it is there to find: each fault is put into a history without one, which breaks no rule.
#include "tests/scenarios/checker.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/scenarios/whole_history.h"

namespace legoai::scenarios {
namespace {

StoreView ViewOf(const JobHistory& history) {
  StoreView view;
  view.jobs[kJob] = history;
  view.submissions["request-1"] = kJob;
  view.slots["workers/a"] = 2;
  return view;
}

void ExpectBroken(const std::string& rule, const std::function<void(JobHistory*)>& spoil) {
  JobHistory history = Whole();
  spoil(&history);
  EXPECT_TRUE(Says(CheckHistory(history), rule)) << rule;
}

TEST(CheckerTest, AWholeHistoryBreaksNoRule) {
  EXPECT_EQ(CheckHistory(Whole()), std::vector<std::string>());
  EXPECT_EQ(CheckSlots(ViewOf(Whole())), std::vector<std::string>());
}

TEST(CheckerTest, FaultsOfAHistoryAreFound) {
  ExpectBroken("versions strictly increase", [](auto* h) { h->transitions[4].set_version(h->transitions[3].version()); });
  ExpectBroken("versions strictly increase", [](auto* h) { h->job.set_version(1); });
  ExpectBroken("transitions follow each other", [](auto* h) { h->transitions.erase(h->transitions.begin() + 4); });
  ExpectBroken("legal table", [](auto* h) { h->transitions[2].set_to(v1::RUNNING); });
  ExpectBroken("legal table", [](auto* h) { h->transitions[0].set_to(v1::PLANNING); });
  ExpectBroken("leaves a final state", [](auto* h) { Add(h, v1::RESTARTING); });
  ExpectBroken("epochs strictly increase", [](auto* h) { h->transitions[7].set_epoch(1); });
  ExpectBroken("epochs strictly increase", [](auto* h) { h->transitions[8].set_epoch(3); });
  ExpectBroken("was leased in epochs", [](auto* h) { h->attempts[0].set_epoch(2); });
  ExpectBroken("attempts are counted", [](auto* h) { h->attempts[1].set_attempt(3); });
  ExpectBroken("begins before it ends", [](auto* h) { h->attempts[1].set_end_time_us(199); });
  ExpectBroken("runs twice at once", [](auto* h) { h->attempts[0].clear_end_time_us(); });
  ExpectBroken("runs twice at once", [](auto* h) { h->attempts[1].set_start_time_us(120); });
  ExpectBroken("open exactly while", [](auto* h) { h->attempts[1].clear_end_time_us(); });
  ExpectBroken("stored are 1", [](auto* h) { h->attempts.pop_back(); });
  ExpectBroken("has epoch 3", [](auto* h) { h->job.set_epoch(3); });
  ExpectBroken("that of its last transition", [](auto* h) { h->job.set_state(v1::CANCELLED); });
  ExpectBroken("done all its steps", [](auto* h) { h->job.mutable_progress()->set_step(59); });
  ExpectBroken("no job fails", [](auto* h) { h->job.set_state(v1::FAILED); });
}

TEST(CheckerTest, SlotsThatAreGivenTwiceAreFound) {
  StoreView view = ViewOf(Whole());
  for (const char* name : {"B", "C"}) {
    JobHistory running;
    running.job.set_name(name);
    for (const v1::JobState state : {v1::SUBMITTED, v1::PLANNING, v1::QUEUED, v1::LEASED}) Add(&running, state);
    running.attempts[0].set_start_time_us(300);
    EXPECT_EQ(CheckSlots(view), std::vector<std::string>());
    view.jobs[name] = running;
  }
  EXPECT_TRUE(Says(CheckSlots(view), "slots are given once: workers/a has 2, and attempts held 4"));
}

TEST(CheckerTest, SlotsThatWereGivenTwiceWhileNobodyLookedAreFound) {
  StoreView view = ViewOf(Whole());
  JobHistory other = Whole();
  other.attempts = {other.attempts[0]};
  v1::Attempt& attempt = other.attempts[0];
  attempt.set_start_time_us(150), attempt.set_end_time_us(200);  // just between the two
  view.jobs["B"] = other;
  EXPECT_EQ(CheckSlots(view), std::vector<std::string>());
  for (const auto& [begin, end] : {std::pair(149, 200), {150, 201}, {160, 260}, {100, 150}}) {
    view.jobs["B"].attempts[0].set_start_time_us(begin), view.jobs["B"].attempts[0].set_end_time_us(end);
    EXPECT_TRUE(Says(CheckSlots(view), "attempts held 4")) << begin;
  }
  view = ViewOf(Whole());
  view.slots.clear();
  EXPECT_TRUE(Says(CheckSlots(view), "workers/a has 0"));
}

TEST(CheckerTest, WhatWasStoredIsOnlyAddedTo) {
  StoreView before = ViewOf(Whole());
  JobHistory& running = before.jobs[kJob];
  running.transitions.resize(9), running.checkpoints.resize(5);
  running.attempts[1].clear_end_time_us();
  StoreView after = ViewOf(Whole());
  after.jobs[kJob].checkpoints[1].set_damage("a bit"), after.jobs[kJob].checkpoints[1].set_damage_time_us(190);
  EXPECT_EQ(CheckOnlyAdded(before, after), std::vector<std::string>());
  EXPECT_EQ(CheckOnlyAdded(StoreView(), after), std::vector<std::string>());
  const auto expect = [&](const std::string& rule, const std::function<void(StoreView*)>& spoil) {
    StoreView spoilt = after;
    spoil(&spoilt);
    EXPECT_TRUE(Says(CheckOnlyAdded(before, spoilt), rule)) << rule;
  };
  expect("is gone", [](auto* view) { view->jobs.clear(); });
  expect("transitions of", [](auto* view) { view->jobs[kJob].transitions.resize(8); });
  expect("transitions of", [](auto* view) { view->jobs[kJob].transitions[3].set_reason("another"); });
  expect("attempts of", [](auto* view) { view->jobs[kJob].attempts[0].set_end_time_us(140); });
  expect("checkpoints of", [](auto* view) { view->jobs[kJob].checkpoints.erase(view->jobs[kJob].checkpoints.begin()); });
  expect("the submission of", [](auto* view) { view->jobs[kJob].job.mutable_spec()->set_display_name("another"); });
  expect("is not of", [](auto* view) { view->submissions.clear(); });
  expect("is not of", [](auto* view) { view->submissions["request-1"] = "B"; });
}

TEST(CheckerTest, WhatClientsWereToldIsHeldAgainstTheStore) {
  const JobHistory whole = Whole();
  Told told;
  told.Sent("request-1", &whole.job.spec());
  told.Accepted("request-1", whole.job);
  told.Heard({}, whole.job);
  told.CancelAcknowledged(kJob);
  EXPECT_EQ(CheckTold(ViewOf(whole), told), std::vector<std::string>());

  EXPECT_TRUE(Says(CheckTold(StoreView(), told), "of request request-1 is not stored"));
  EXPECT_TRUE(Says(CheckTold(StoreView(), told), "was told and is not stored"));
  StoreView view = ViewOf(whole);
  view.submissions["request-2"] = kJob;
  EXPECT_TRUE(Says(CheckTold(view, told), "one request_id per job"));
  view = ViewOf(whole);
  view.jobs["B"] = whole;
  EXPECT_TRUE(Says(CheckTold(view, told), "nobody asked for B"));
  view = ViewOf(whole);
  view.submissions["request-1"] = "B";
  EXPECT_TRUE(Says(CheckTold(view, told), "was answered with projects/default/jobs/A, and stored is B"));
  for (const auto& older : std::vector<std::function<void(v1::Job*)>>{[](v1::Job* job) { job->set_version(3); },
                                                                      [](v1::Job* job) { job->set_epoch(1); },
                                                                      [](v1::Job* job) { job->set_committed_step(50); }}) {
    view = ViewOf(whole);
    older(&view.jobs[kJob].job);
    EXPECT_TRUE(Says(CheckTold(view, told), "what was told is durable"));
  }
  view = ViewOf(whole);
  view.jobs[kJob].job.mutable_spec()->mutable_recipe()->mutable_training()->set_steps(70);
  EXPECT_TRUE(Says(CheckTold(view, told), "a job is what was asked for"));
  view = ViewOf(whole);
  view.jobs[kJob].job.set_retry_of("B");
  EXPECT_TRUE(Says(CheckTold(view, told), "a retry names what it tries again"));
  view = ViewOf(whole);
  view.jobs[kJob].job.set_state(v1::RUNNING);
  EXPECT_TRUE(Says(CheckTold(view, told), "no job leaves a final state"));
  EXPECT_TRUE(Says(CheckTold(view, told), "a cancellation that was acknowledged stays"));
  EXPECT_TRUE(Says(CheckTold(view, told), "a version has one state"));
}

TEST(CheckerTest, ARetryOfAnotherJobIsFound) {
  StoreView view = ViewOf(Whole());
  JobHistory& again = view.jobs["B"] = Whole();
  again.job.set_retry_of(kJob);
  view.submissions["request-2"] = "B";
  EXPECT_EQ(CheckTold(view, Told()), std::vector<std::string>());
  again.job.mutable_spec()->set_display_name("another");
  EXPECT_TRUE(Says(CheckTold(view, Told()), "a retry does the same again"));
  again.job.set_retry_of("nobody");
  EXPECT_TRUE(Says(CheckTold(view, Told()), "a retry does the same again"));
}

TEST(CheckerTest, AnswersThatContradictEarlierOnesAreFound) {
  const JobHistory whole = Whole();
  Told told;
  told.Accepted("request-1", whole.job);
  told.Heard({}, whole.job);
  const auto before = told.Known();
  v1::Job older = whole.job;
  older.set_version(1);
  told.Heard({}, older);  // asked for earlier: no fault
  EXPECT_EQ(told.Broken(), std::vector<std::string>());
  told.Heard(before, older);
  EXPECT_TRUE(Says(told.Broken(), "versions never go back"));
  EXPECT_FALSE(Says(told.Broken(), "never changes"));
  v1::Job other = whole.job;
  other.set_state(v1::RUNNING);
  told.Heard(before, other);
  EXPECT_TRUE(Says(told.Broken(), "a final state never changes"));
  EXPECT_TRUE(Says(told.Broken(), "a version has one state"));
  EXPECT_FALSE(Says(told.Broken(), "never go back: projects/default/jobs/A was told at epoch"));
  for (const bool epoch : {true, false}) {
    Told back;
    back.Heard({}, whole.job);
    older = whole.job;
    epoch ? older.set_epoch(1) : older.set_committed_step(50);
    back.Heard(back.Known(), older);
    EXPECT_TRUE(Says(back.Broken(), "epochs and committed steps never go back"));
  }
  Told found;  // damaged: the step before counts again
  found.Heard({}, whole.job);
  older = whole.job;
  older.set_committed_step(50);
  older.set_steps_back(1);
  found.Heard(found.Known(), older);
  EXPECT_EQ(found.Broken(), std::vector<std::string>());
  older.set_steps_back(0);
  found.Heard(found.Known(), older);
  EXPECT_TRUE(Says(found.Broken(), "epochs and committed steps never go back"));
  other.set_name("B");
  told.Accepted("request-1", other);
  EXPECT_TRUE(Says(told.Broken(), "one job per request_id"));
}

}  // namespace
}  // namespace legoai::scenarios
