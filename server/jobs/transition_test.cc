// A job changes its state as the table says, with all that goes with it, and in no other way.
#include "server/jobs/transition.h"

#include <gtest/gtest.h>

#include <iterator>

#include "server/jobs/testing/legal_transitions.h"
#include "server/store/testing/oracle.h"

namespace legoai::server {
namespace {

constexpr int64_t kNow = 1'000'000;
constexpr char kJob[] = "projects/default/jobs/01J00000000000000000000001";

v1::Job InState(v1::JobState state) {
  v1::Job job;
  job.set_name(kJob);
  job.set_state(state);
  job.set_version(7);
  return job;
}

std::vector<v1::JobState> AllStates() {
  std::vector<v1::JobState> states;
  for (int state = v1::SUBMITTED; state <= v1::JobState_MAX; ++state) states.push_back(static_cast<v1::JobState>(state));
  return states;
}

TEST(Transition, EveryPairOfStatesIsAsTheTableSays) {
  ASSERT_EQ(AllStates().size(), std::size(kLegalTransitions));
  for (const v1::JobState from : AllStates()) {
    for (const v1::JobState to : AllStates()) {
      SCOPED_TRACE(StateText(from) + " to " + StateText(to));
      store::Oracle store;
      v1::Job job = InState(from);
      ASSERT_TRUE(store.InsertJob(job, std::nullopt).ok());
      const absl::Status moved = Move(store, &job, to, "why", kNow);
      const v1::Job stored = **store.GetJob(kJob);
      const auto history = *store.ListTransitions(kJob, 0, 10);
      if (!IsLegal(from, to)) {
        EXPECT_EQ(moved.code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_EQ(stored.SerializeAsString(), InState(from).SerializeAsString()) << "nothing is done";
        EXPECT_EQ(job.SerializeAsString(), InState(from).SerializeAsString());
        EXPECT_TRUE(history.empty());
        continue;
      }
      ASSERT_TRUE(moved.ok()) << moved;
      EXPECT_EQ(stored.state(), to);
      EXPECT_EQ(stored.version(), 8);
      EXPECT_EQ(stored.reason(), "why");
      EXPECT_EQ(stored.update_time_us(), kNow);
      EXPECT_EQ(stored.has_start_time_us(), to == v1::LEASED);
      EXPECT_EQ(stored.has_end_time_us(), to == v1::SUCCEEDED || to == v1::FAILED || to == v1::CANCELLED);
      ASSERT_EQ(history.size(), 1);
      EXPECT_EQ(history[0].from(), from);
      EXPECT_EQ(history[0].to(), to);
      EXPECT_EQ(history[0].version(), 8);
    }
  }
}

TEST(Transition, AJobThatAnotherHasChangedIsNotMoved) {
  store::Oracle store;
  v1::Job job = InState(v1::QUEUED);
  ASSERT_TRUE(store.InsertJob(job, std::nullopt).ok());
  v1::Job seen = job;
  ASSERT_TRUE(Move(store, &job, v1::LEASED, "why", kNow).ok());
  EXPECT_EQ(Move(store, &seen, v1::CANCELLED, "why", kNow).code(), absl::StatusCode::kAborted);
  EXPECT_EQ((*store.GetJob(kJob))->state(), v1::LEASED);
}

}  // namespace
}  // namespace legoai::server
