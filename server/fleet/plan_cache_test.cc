#include "server/fleet/plan_cache.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "server/fleet/known_plans.h"
#include "server/fleet/testing/fleet_fixture.h"
#include "server/jobs/submission.h"

namespace legoai::server {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace v1;  // the states' names

v1::PlanRequest SomeRequest() {
  v1::PlanRequest request;
  *request.mutable_model() = *model::ResolveModel("gpt2");
  *request.mutable_cluster() = *sim::ParseCluster("h100-sxm-80:2x1");
  request.mutable_base()->mutable_training()->set_steps(10);
  request.set_global_batch(64);
  request.set_seq_len(128);
  request.set_budget_seconds(60);
  request.set_top(3);
  return request;
}

v1::PlanResult NoRecipeFits(const v1::PlanRequest& request) {
  v1::PlanResult result;
  result.set_cluster(request.cluster().name());
  result.set_global_batch(request.global_batch());
  result.set_seq_len(request.seq_len());
  result.set_explanation("nothing fits");
  return result;
}

TEST(PlanCacheTest, WhateverAPlanDependsOnIsInItsKey) {
  std::set<std::string> keys = {PlanKey(SomeRequest(), "build 1")};
  const auto differs = [&](const std::string& what, const std::function<void(v1::PlanRequest*)>& change) {
    v1::PlanRequest request = SomeRequest();
    change(&request);
    EXPECT_TRUE(keys.insert(PlanKey(request, "build 1")).second) << what;
  };
  EXPECT_EQ(PlanKey(SomeRequest(), "build 1"), *keys.begin());
  EXPECT_EQ(keys.begin()->size(), 69u);
  EXPECT_TRUE(keys.insert(PlanKey(SomeRequest(), "build 2")).second);
  differs("model", [](v1::PlanRequest* r) { r->mutable_model()->set_num_hidden_layers(r->model().num_hidden_layers() + 1); });
  differs("batch", [](v1::PlanRequest* r) { r->set_global_batch(65); });
  differs("sequence", [](v1::PlanRequest* r) { r->set_seq_len(129); });
  differs("constraint", [](v1::PlanRequest* r) { r->add_constraints("parallelism.tensor_parallel_degree=2"); });
  differs("base", [](v1::PlanRequest* r) { r->mutable_base()->mutable_optimizer()->set_lr(1); });
  differs("slots", [](v1::PlanRequest* r) { r->mutable_cluster()->set_devices_per_node(4); });
  differs("calibration", [](v1::PlanRequest* r) {
    r->mutable_cluster()->mutable_device()->mutable_efficiencies(0)->set_fraction(0.123);
  });
  differs("resume", [](v1::PlanRequest* r) { r->mutable_resume_from()->mutable_training()->set_seq_len(128); });
  differs("objective", [](v1::PlanRequest* r) { r->set_objective(v1::MEMORY); });
  differs("headroom", [](v1::PlanRequest* r) { r->set_min_headroom_bytes(1); });
  differs("top", [](v1::PlanRequest* r) { r->set_top(4); });
  v1::PlanRequest hurried = SomeRequest();
  hurried.set_budget_seconds(1);
  EXPECT_EQ(PlanKey(hurried, "build 1"), PlanKey(SomeRequest(), "build 1")) << "a plan that it cuts short is not kept";
}

TEST(PlanCacheTest, WhatWasCutShortOrFailedIsNotKept) {
  v1::PlanResult result = NoRecipeFits(SomeRequest());
  EXPECT_TRUE(IsCacheable(result));
  result.set_stopped_early(true);
  EXPECT_FALSE(IsCacheable(result));
  result.set_stopped_early(false), result.set_failed(1);
  EXPECT_FALSE(IsCacheable(result));
  result.set_failed(0), result.set_not_reached(1);
  EXPECT_FALSE(IsCacheable(result)) << "and none is known to fit";
}

TEST(PlanCacheTest, ARowThatWasChangedIsRefused) {
  const v1::PlanRequest request = SomeRequest();
  const v1::CachedPlan good = MakeCachedPlan("key", NoRecipeFits(request), 7);
  ASSERT_TRUE(OpenCachedPlan(good, "key", request).ok());
  EXPECT_EQ(OpenCachedPlan(good, "key", request)->explanation(), "nothing fits");
  const auto refused = [&](const v1::CachedPlan& cached) {
    return std::string(OpenCachedPlan(cached, "key", request).status().message());
  };
  v1::CachedPlan bad = good;
  bad.set_key("other");
  EXPECT_THAT(refused(bad), HasSubstr("another request's"));
  bad = good;
  bad.mutable_result()->back() ^= 1;
  EXPECT_THAT(refused(bad), HasSubstr("was changed"));
  v1::PlanResult other = NoRecipeFits(request);
  other.set_global_batch(65);
  EXPECT_THAT(refused(MakeCachedPlan("key", other, 7)), HasSubstr("no answer to the request"));
  other = NoRecipeFits(request);
  other.add_ranked()->mutable_recipe()->mutable_parallelism()->set_tensor_parallel_degree(3);
  EXPECT_THAT(refused(MakeCachedPlan("key", other, 7)), HasSubstr("not legal"));
  other = NoRecipeFits(request);
  other.set_stopped_early(true);
  EXPECT_THAT(refused(MakeCachedPlan("key", other, 7)), HasSubstr("cut short"));
}

class KnownPlansTest : public FleetTest {
 protected:
  KnownPlansTest() { reuse_plans_ = true; }

  // Of a kind of job that differs in its length from others.
  v1::Job OfKind(int64_t kind, const std::string& project = "default") {
    v1::Job job = MakeJob(2);
    job.mutable_spec()->mutable_recipe()->mutable_training()->set_steps(10 + kind);
    job.set_name(absl::StrCat("projects/", project, job.name().substr(job.name().find("/jobs/"))));
    return job;
  }
  v1::Job AwaitPlanned(const std::string& job) {
    return Await(job, [](const v1::Job& now) { return now.has_chosen(); });
  }
  // Whether it has the plan of another.
  bool HasKnown(const std::string& job) {
    const auto transitions = Transitions(job);
    return !transitions.empty() && transitions[0].reason().find("has the plan that was made for the same before") == 0;
  }
  void KeepSlotsBusy() {
    Connect(&agent_);
    busy_ = Submit(OfKind(500));  // has the slots, so that all others wait in the queue
    agent_.link.NextStart();
  }

  std::string busy_;
};

TEST_F(KnownPlansTest, AThousandSubmissionsOfTenKindsPlanTenTimes) {
  KeepSlotsBusy();
  std::vector<v1::Job> jobs;
  for (int64_t i = 0; i < 1000; ++i) jobs.push_back(OfKind(i % 10));
  Insert(jobs);
  for (const v1::Job& job : jobs) controller_->JobChanged(job.name());
  std::map<int64_t, int64_t> planned;
  for (const v1::Job& job : jobs) {
    const v1::Job now = AwaitPlanned(job.name());
    EXPECT_EQ(now.state(), QUEUED);
    EXPECT_EQ(now.chosen().recipe().training().steps(), job.spec().recipe().training().steps());
    planned[job.spec().recipe().training().steps()] += !HasKnown(job.name());
  }
  EXPECT_EQ(planned.size(), 10u);
  for (const auto& [kind, plans] : planned) EXPECT_EQ(plans, 1) << kind;
  const auto plan = [&](size_t job) { return *MustRead(*store_, [&](auto& read) { return read.GetPlan(jobs[job].name()); }); };
  EXPECT_EQ(DeterministicBytes(plan(0)), DeterministicBytes(plan(990))) << "the same plan, word for word";
}

TEST_F(KnownPlansTest, TheNextServerKnowsThemAndOneOfAnotherBuildDoesNot) {
  KeepSlotsBusy();
  const std::string first = Submit(OfKind(1));
  AwaitPlanned(first);
  const auto again = [&] {
    StopController();
    StartController();
    agent_.hello.clear_leases();
    agent_.hello.add_leases()->set_job(busy_);
    agent_.hello.mutable_leases(0)->set_epoch(1);
    Connect(&agent_);
    const std::string job = Submit(OfKind(1));
    AwaitPlanned(job);
    return HasKnown(job);
  };
  EXPECT_TRUE(again());
  planned_by_ = "another build";
  EXPECT_FALSE(again());
  EXPECT_TRUE(again());
}

TEST_F(KnownPlansTest, AnotherConstraintOrCalibrationIsPlanned) {
  KeepSlotsBusy();
  AwaitPlanned(Submit(OfKind(1)));
  v1::Job constrained = OfKind(1);
  constrained.mutable_spec()->mutable_planning()->add_constraints("parallelism.tensor_parallel_degree=2");
  AwaitPlanned(Submit(constrained));
  EXPECT_FALSE(HasKnown(constrained.name()));
  TestAgent calibrated("b", 8);
  calibrated.hello.mutable_worker()->mutable_device()->mutable_efficiencies(0)->set_fraction(0.4321);
  Connect(&calibrated);
  calibrated.link.NextStart(), calibrated.link.NextStart();  // those that waited; four slots are left
  const std::string other = Submit(OfKind(1));
  AwaitPlanned(other);
  EXPECT_FALSE(HasKnown(other));
}

TEST_F(KnownPlansTest, APoisonedRowIsRefusedAndPlannedAnew) {
  KeepSlotsBusy();
  const std::string first = Submit(OfKind(1));
  AwaitPlanned(first);
  // As the controller asked.
  const v1::PlanRequest request = PlanRequestOf(Get(first), *ClusterOf(controller_->Workers().at(0), 2), std::nullopt);
  const std::string key = PlanKey(request, planned_by_);
  const auto stored = MustRead(*store_, [&](auto& read) { return read.GetCachedPlan(key); });
  ASSERT_TRUE(stored);
  v1::CachedPlan row = *stored;
  v1::PlanResult poisoned;
  ASSERT_TRUE(poisoned.ParseFromString(row.result()));
  poisoned.mutable_ranked(0)->mutable_recipe()->mutable_training()->set_steps(666);
  row.set_result(poisoned.SerializeAsString());
  Write([&](store::Transaction& transaction) { return transaction.PutCachedPlan(row); });
  const std::string second = Submit(OfKind(1)), third = Submit(OfKind(1));
  EXPECT_EQ(AwaitPlanned(second).chosen().recipe().training().steps(), 11);
  EXPECT_FALSE(HasKnown(second));
  AwaitPlanned(third);
  EXPECT_TRUE(HasKnown(third)) << "the new plan took its place";
}

TEST_F(KnownPlansTest, WhoeverPlansWithoutAJobHasThemToo) {
  int progress = 0;
  const auto plan = [&] { return *controller_->Plan(SomeRequest(), [&](const v1::PlanningProgress&) { ++progress; }, {}); };
  v1::PlanResult first = plan();
  EXPECT_GT(progress, 0);
  progress = 0;
  EXPECT_EQ(DeterministicBytes(plan()), DeterministicBytes(first));
  EXPECT_EQ(progress, 0) << "it was there";
}

// Whose plan takes for ever, with all simulators, as far as others leave them.
TEST_F(KnownPlansTest, NoProjectWaitsForAnothersPlan) {
  hold_steps_ = 77;
  Connect(&agent_);
  const std::string big = Submit(OfKind(67, "a")), behind = Submit(OfKind(68, "a"));
  AwaitState(big, PLANNING);
  const std::string twin = Submit(OfKind(67, "a")), same = Submit(OfKind(67, "b"));
  const std::string small = Submit(OfKind(1, "b"));
  AwaitPlanned(small);
  EXPECT_EQ(Get(big).state(), PLANNING);
  EXPECT_EQ(AwaitReason(behind, "waits for the planner").state(), SUBMITTED) << "its project has its turn";
  EXPECT_THAT(AwaitReason(twin, "waits for the plan of").reason(), HasSubstr(absl::StrCat(big, ", which asks for the same")));
  EXPECT_THAT(AwaitReason(same, "waits for the plan of another project's job, which asks for the same").reason(),
              Not(HasSubstr(big)));
  hold_steps_ = 0;
  AwaitPlanned(big);
  AwaitPlanned(behind);
  AwaitPlanned(same);
  AwaitPlanned(twin);
  EXPECT_TRUE(HasKnown(same));
  EXPECT_TRUE(HasKnown(twin));
}

}  // namespace
}  // namespace legoai::server
