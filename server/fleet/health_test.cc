#include "server/fleet/health.h"

#include <gmock/gmock.h>

#include <functional>

#include "core/hardware/catalog.h"
#include "proto/errors.h"
#include "proto/worker_slots.h"
#include "server/fleet/testing/fleet_fixture.h"

namespace legoai::server {
namespace {

using testing::HasSubstr;
using namespace v1;  // the states' names

void AddFault(int64_t slot, FaultCause cause, WorkerHealth* health) {
  SlotFault& fault = *health->add_slot_faults();
  fault.set_slot(slot);
  fault.set_cause(cause);
  fault.set_reason("it is told to be ill");
  fault.set_time_us(7);
}

TEST(HealthTest, SlotsThatMayBeGiven) {
  Worker worker;
  worker.set_slots(4);
  EXPECT_EQ(SoundSlots(worker), 4);
  AddFault(1, GPU_XID, worker.mutable_health());
  AddFault(1, GPU_MEMORY, worker.mutable_health());
  EXPECT_EQ(SoundSlots(worker), 3) << "a slot with two faults is one";
  worker.add_used()->set_slots(2);
  EXPECT_EQ(FreeSlots(worker), 1);
  worker.add_used()->set_slots(2);
  EXPECT_EQ(FreeSlots(worker), 0) << "one of them is the faulty one";
  worker.clear_used();
  worker.mutable_health()->set_checking(true);
  EXPECT_EQ(FreeSlots(worker), 0);
  EXPECT_EQ(SoundSlots(worker), 3);
  worker.mutable_health()->set_checking(false);
  worker.mutable_health()->set_fault("the disk");
  EXPECT_EQ(SoundSlots(worker), 0);
}

TEST(HealthTest, OnlyWhatIsNewIsNew) {
  WorkerHealth before, after;
  AddFault(1, GPU_XID, &before);
  AddFault(1, GPU_XID, &after);
  EXPECT_TRUE(NewFaults(before, after).empty());
  AddFault(1, GPU_MEMORY, &after);
  after.set_fault("the disk");
  const auto fresh = NewFaults(before, after);
  ASSERT_EQ(fresh.size(), 2u);
  EXPECT_EQ(fresh[0].slot(), -1);
  EXPECT_EQ(fresh[0].reason(), "the disk");
  EXPECT_EQ(fresh[1].cause(), GPU_MEMORY);
}

TEST(HealthTest, WhatCannotBeIsRefused) {
  Worker worker;
  worker.set_slots(2);
  const auto refusal = [&](const std::function<void(WorkerHealth*)>& change) {
    WorkerHealth health;
    AddFault(1, GPU_LOST, &health);
    CheckResult& result = *health.mutable_check()->add_results();
    result.add_slots(0), result.add_slots(1);
    change(&health);
    const auto fault = GetFieldViolation(CheckHealth(worker, health));
    return fault ? fault->field() : "";
  };
  EXPECT_EQ(refusal([](auto*) {}), "");
  EXPECT_EQ(refusal([](auto* h) { AddFault(2, GPU_LOST, h); }), "health.slot_faults");
  EXPECT_EQ(refusal([](auto* h) { AddFault(-1, GPU_LOST, h); }), "health.slot_faults");
  EXPECT_EQ(refusal([](auto* h) { h->mutable_slot_faults(0)->set_reason(std::string(5000, 'x')); }), "health.slot_faults");
  EXPECT_EQ(refusal([](auto* h) {
              for (int i = 0; i < 9; ++i) AddFault(0, GPU_XID, h);
            }),
            "health.slot_faults");
  EXPECT_EQ(refusal([](auto* h) { h->set_fault(std::string(5000, 'x')); }), "health.fault");
  // They are shown on terminals, and causes count in metrics.
  EXPECT_EQ(refusal([](auto* h) { h->mutable_slot_faults(0)->set_reason("a\x1b[2J"); }), "health.slot_faults.reason");
  EXPECT_EQ(refusal([](auto* h) { AddFault(0, static_cast<FaultCause>(99), h); }), "health.slot_faults.cause");
  EXPECT_EQ(refusal([](auto* h) { h->set_fault("a\nb"); }), "health.fault");
  EXPECT_EQ(refusal([](auto* h) { h->mutable_check()->mutable_results(0)->set_text("\t"); }), "health.check.results.text");
  EXPECT_EQ(refusal([](auto* h) { h->mutable_check()->mutable_results(0)->add_slots(0); }), "health.check.results");
  EXPECT_EQ(refusal([](auto* h) { h->mutable_check()->mutable_results(0)->set_slots(0, 5); }), "health.check.results");
  EXPECT_EQ(refusal([](auto* h) { h->mutable_check()->mutable_results(0)->set_flops_per_second(-1); }), "health.check.results");
  EXPECT_EQ(refusal([](auto* h) {
              for (int i = 0; i < 100; ++i) h->mutable_check()->add_results();
            }),
            "health.check.results");
}

class WorkerHealthTest : public FleetTest {
 protected:
  void Tell(TestAgent* agent, const WorkerHealth& health) {
    Heartbeat heartbeat;
    *heartbeat.mutable_health() = health;
    controller_->Heartbeat(agent->session, heartbeat);
  }
  Worker Shown() { return controller_->Workers().at(0); }
};

TEST_F(WorkerHealthTest, NothingIsGivenToAFaultySlotAndItIsSaidWhy) {
  TestAgent agent("b", 2);
  AddFault(1, GPU_MEMORY, agent.hello.mutable_worker()->mutable_health());
  Connect(&agent);
  const std::string one = Submit(1), both = Submit(MakeJob(2, 2));
  AwaitState(one, LEASED);
  AwaitReason(both, "the largest worker of pool default has 1 slot");
  EXPECT_THAT(Get(both).reason(), HasSubstr("1 has faulty slots (`lego workers NAME` says why)"));
  EXPECT_EQ(Shown().health().slot_faults(0).cause(), GPU_MEMORY);

  Tell(&agent, {});
  AwaitReason(both, "2 slots are wanted");
  EXPECT_EQ(Shown().health().slot_faults_size(), 0);
}

TEST_F(WorkerHealthTest, AWorkerThatIsCheckedGetsNothingYet) {
  TestAgent agent("b", 2);
  agent.hello.mutable_worker()->mutable_health()->set_checking(true);
  Connect(&agent);
  const std::string job = Submit(2);
  AwaitState(job, QUEUED);
  AwaitDecision();
  EXPECT_EQ(Get(job).state(), QUEUED);
  EXPECT_EQ(Plans(job), 1) << "it is planned for it meanwhile";
  WorkerHealth failed;
  failed.set_fault("the disk of its runs failed the check: it is full");
  Tell(&agent, failed);
  AwaitDecision();
  EXPECT_EQ(Get(job).state(), QUEUED);
  Tell(&agent, {});
  AwaitState(job, LEASED);
}

TEST_F(WorkerHealthTest, OfAnotherConnectionNothingIsLeft) {
  TestAgent agent("b", 2);
  AddFault(0, GPU_LOST, agent.hello.mutable_worker()->mutable_health());
  AddFault(1, GPU_LOST, agent.hello.mutable_worker()->mutable_health());
  Connect(&agent);
  const std::string job = Submit(1);
  AwaitReason(job, "has faulty slots");
  controller_->Disconnected(agent.session);
  EXPECT_FALSE(Shown().has_health());
  agent.hello.mutable_worker()->clear_health();
  Connect(&agent);
  AwaitState(job, LEASED);
}

TEST_F(WorkerHealthTest, AReportThatCannotBeChangesNothing) {
  TestAgent agent("b", 2);
  Connect(&agent);
  WorkerHealth wrong;
  AddFault(7, GPU_LOST, &wrong);
  Tell(&agent, wrong);
  EXPECT_FALSE(Shown().has_health());
  TestAgent other("c", 2);
  *other.hello.mutable_worker()->mutable_health() = wrong;
  const auto refused = GetFieldViolation(controller_->Connect(other.hello, &other.link).status());
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->field(), "worker.health.slot_faults");
}

TEST_F(WorkerHealthTest, AnOperatorHasItChecked) {
  CheckWorkerRequest request;
  request.set_name("workers/b");
  EXPECT_EQ(controller_->CheckWorker(request).status().code(), absl::StatusCode::kNotFound);
  TestAgent agent("b", 2);
  Connect(&agent);
  EXPECT_THAT(controller_->CheckWorker(request).status().message(), HasSubstr("has an agent of an older build"));
  EXPECT_FALSE(agent.link.Has([](const ToAgent& message) { return message.has_check(); }));
  controller_->Disconnected(agent.session);
  agent.hello.mutable_worker()->mutable_health();
  Connect(&agent);
  EXPECT_TRUE(controller_->CheckWorker(request).ok());
  EXPECT_TRUE(agent.link.Has([](const ToAgent& message) { return message.has_check(); }));
  controller_->Disconnected(agent.session);
  const absl::Status away = controller_->CheckWorker(request).status();
  EXPECT_EQ(away.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(away.message(), HasSubstr("is not connected"));
}

}  // namespace
}  // namespace legoai::server
