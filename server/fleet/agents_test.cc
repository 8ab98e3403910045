#include "server/fleet/agents.h"

#include <gtest/gtest.h>

#include <string>

#include "core/process/build_version.h"

namespace legoai::server {
namespace {

struct Link : AgentLink {
  void Send(const v1::ToAgent& message) override { sent.push_back(message); }
  void Close(const absl::Status& status) override { closed = status; }
  std::vector<v1::ToAgent> sent;
  absl::Status closed;
};

class AgentsTest : public testing::Test {
 protected:
  static v1::Hello MakeHello(const std::string& instance, const std::string& host = "h", int64_t slots = 2) {
    v1::Hello hello;
    hello.mutable_worker()->set_name("workers/a");
    hello.mutable_worker()->set_instance(instance);
    hello.mutable_worker()->set_host(host);
    hello.mutable_worker()->set_slots(slots);
    hello.mutable_worker()->set_build_version(std::string(launch::BuildVersion()));
    return hello;
  }
  uint64_t Open(const v1::Hello& hello, Link* link) {
    const auto facts = agents_.FactsOf(hello);
    EXPECT_TRUE(facts.ok()) << facts.status();
    return agents_.Open(*facts, hello, 0, link);
  }

  absl::Duration now_ = absl::Seconds(100);
  Agents agents_{{.lease_ttl = absl::Seconds(15),
                  .heartbeat_interval = absl::Seconds(2),
                  .forget_workers = absl::Hours(1),
                  .now_us = [] { return int64_t{1}; },
                  .steady = [this] { return now_; }}};
};

TEST_F(AgentsTest, ALaterAgentOfAWorkerSpeaksForIt) {
  Link first, second;
  const uint64_t a = Open(MakeHello("p"), &first), b = Open(MakeHello("q"), &second);
  EXPECT_EQ(first.closed.code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(agents_.Find(a)->speaks);
  EXPECT_TRUE(agents_.Find(b)->speaks);
  int64_t dropped = 0;
  EXPECT_FALSE(agents_.Heard(a, {}, &dropped));
  EXPECT_TRUE(agents_.Heard(b, {}, &dropped));
  EXPECT_FALSE(agents_.Leave(a)) << "the older one leaves nothing";
  EXPECT_EQ(agents_.Close(a), "workers/a");
  EXPECT_EQ(agents_.PlaceOf("workers/a")->session, b);
  EXPECT_FALSE(agents_.Close(a));
}

TEST_F(AgentsTest, ANameBelongsToTheHostThatIsConnected) {
  Link link;
  Open(MakeHello("p", "h"), &link);
  EXPECT_EQ(agents_.FactsOf(MakeHello("q", "other")).status().code(), absl::StatusCode::kAlreadyExists);
  now_ += absl::Seconds(16);  // nobody has heard of it since
  EXPECT_TRUE(agents_.FactsOf(MakeHello("q", "other")).ok());
}

// What a grant rests on: sent to the worker as it was seen, or not at all.
TEST_F(AgentsTest, SendsOnlyIfTheWorkerIsStillTheSame) {
  Link first, second;
  const uint64_t a = Open(MakeHello("p"), &first);
  const auto place = agents_.PlaceOf("workers/a");
  ASSERT_TRUE(place);
  v1::ToAgent start;
  start.mutable_start();
  EXPECT_FALSE(agents_.SendIfStill("workers/a", *place, start));
  EXPECT_TRUE(first.sent.back().has_start());
  agents_.Leave(a);
  const auto leaves = agents_.SendIfStill("workers/a", *place, start);
  ASSERT_TRUE(leaves);
  EXPECT_TRUE(leaves->leaves);
  Open(MakeHello("p", "h", 4), &second);
  EXPECT_TRUE(agents_.SendIfStill("workers/a", *place, start));
  agents_.Forget("workers/a");
  EXPECT_TRUE(agents_.SendIfStill("workers/a", *place, start));
  EXPECT_EQ(first.sent.size(), 2u) << "the welcome and one start";
  EXPECT_EQ(second.sent.size(), 1u);
}

TEST_F(AgentsTest, WhatRanWhenItCameBackIsJudgedOnceAllItSaidIsDurable) {
  Link first, second;
  Open(MakeHello("p"), &first);
  v1::Hello again = MakeHello("p");
  again.set_last_telemetry(7);
  v1::LeaseId& lease = *again.add_leases();
  lease.set_job("j");
  lease.set_epoch(3);
  const uint64_t b = Open(again, &second);
  EXPECT_FALSE(agents_.TakeReturn(b, 6));
  const auto back = agents_.TakeReturn(b, 7);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->worker, "workers/a");
  EXPECT_EQ(back->leases, (std::set<std::pair<std::string, int64_t>>{{"j", 3}}));
  EXPECT_FALSE(agents_.TakeReturn(b, 8)) << "once";
}

TEST_F(AgentsTest, FaultySlotsAreNoneAndAWorkerThatIsCheckedHasNoneFree) {
  Link link;
  v1::Hello hello = MakeHello("p", "h", 3);
  hello.mutable_worker()->add_used()->set_slots(1);  // which only the server knows
  hello.mutable_worker()->mutable_health()->add_slot_faults()->set_slot(2);
  const uint64_t session = Open(hello, &link);
  EXPECT_EQ(agents_.Views()[0].slots, 2);
  EXPECT_EQ(agents_.Views()[0].free, 2);
  EXPECT_EQ(agents_.Views()[0].checked, 0);
  v1::WorkerHealth health;
  health.set_checking(true);
  EXPECT_EQ(agents_.TakeHealth(session, health)->slot_faults_size(), 1);
  EXPECT_EQ(agents_.Views()[0].slots, 3);
  EXPECT_EQ(agents_.Views()[0].free, 0);
  EXPECT_EQ(agents_.Views()[0].checked, 3);
  EXPECT_TRUE(agents_.Views()[0].accepts) << "jobs wait for it";
  health.set_fault("the disk");
  ASSERT_TRUE(agents_.TakeHealth(session, health).ok());
  EXPECT_FALSE(agents_.Views()[0].accepts);
  EXPECT_TRUE(absl::IsNotFound(agents_.TakeHealth(session + 1, health).status()));
  EXPECT_FALSE(agents_.StoredFacts("workers/a")->has_health()) << "it is told anew in each connection";
  agents_.Close(session);
  EXPECT_FALSE(agents_.List()[0].has_health());
  EXPECT_EQ(agents_.LastHealth("workers/a", "p").fault(), "the disk") << "what is told again is not new";
  EXPECT_EQ(agents_.LastHealth("workers/a", "q").fault(), "");
  EXPECT_EQ(agents_.LastHealth("workers/b", "p").fault(), "");
}

TEST_F(AgentsTest, SilentAndLeavingWorkersAcceptNothing) {
  Link link;
  const uint64_t session = Open(MakeHello("p"), &link);
  EXPECT_TRUE(agents_.Views()[0].accepts);
  now_ += absl::Seconds(7);  // two heartbeats are missing
  EXPECT_FALSE(agents_.Views()[0].accepts);
  agents_.ExtendAll(absl::Seconds(7));
  EXPECT_TRUE(agents_.Views()[0].accepts);
  v1::Worker facts = *agents_.StoredFacts("workers/a");
  facts.set_state(v1::DRAINING);
  agents_.SetDraining(facts);
  EXPECT_FALSE(agents_.Views()[0].accepts);
  EXPECT_TRUE(link.sent.back().has_drain());
  facts.set_state(v1::READY);
  agents_.SetDraining(facts);
  agents_.Leave(session);
  EXPECT_FALSE(agents_.Views()[0].accepts);
  agents_.Close(session);
  now_ += absl::Hours(2);
  EXPECT_EQ(agents_.LongLost(), std::vector<std::string>{"workers/a"});
  EXPECT_EQ(agents_.List()[0].state(), v1::LOST);
}

}  // namespace
}  // namespace legoai::server
