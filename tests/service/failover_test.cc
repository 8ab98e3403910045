// Several servers over one PostgreSQL: whatever becomes of the one that leads, another takes over, trainers go on, and the job
// ends as if nothing had been. Times are printed; tests/scenarios/chaos_failover_test prints their distribution.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "server/http/testing/test_client.h"
#include "server/store/testing/postgres_server.h"
#include "tests/service/service_processes.h"
#include "tests/service/service_test_fixture.h"

namespace legoai::service {
namespace {

using cli::testing::Ended;
using cli::testing::ReadAll;
using cli::testing::WaitUntil;
using ::testing::HasSubstr;
using Stub = v1::ControlPlane::Stub;

constexpr int64_t kSteps = 600, kInterval = 40;

class FailoverTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    second_address_ = "127.0.0.1:" + std::to_string(FreePort());
    second_stub_ = MakeStub(second_address_);
    second_http_ = FreePort();
    std::vector<std::string> command = ServerCommand(second_address_, Path("data"), {"10s", "500ms", "2s"});
    command.push_back("--http=127.0.0.1:" + std::to_string(second_http_));
    second_ = StartProgram(command);
    WaitUntil("the second server", [this] { return Info(*second_stub_).has_leader(); });
  }
  void TearDown() override {
    ServiceProcesses::Kill(&second_);
    ServiceTest::TearDown();
  }

  static v1::ServerInfo Info(Stub& stub) {
    v1::ServerInfo info;
    Ask(stub, &Stub::GetServerInfo, v1::GetServerInfoRequest(), &info, 1);
    return info;
  }
  server::http_test::Answer HttpGet(const std::string& path) const {
    server::http_test::Client client(second_http_);
    client.Send(server::http_test::Request("GET", path, "", "Connection: close\r\n"));
    return server::http_test::Parse(client.ReadAll());
  }
  std::string Both() const { return address() + "," + second_address_; }
  void StartAgentOfBoth(const std::string& name, int64_t slots) {
    agents_.push_back(StartProgram(AgentCommand(Both(), name, slots, Path("runs"))));
    WaitUntil("the agent", [this] {
      const auto workers = Workers();
      return !workers.empty() && workers[0].connected();
    });
  }
  // Seconds until the second server leads.
  void AwaitSecondLeads() {
    const auto begun = std::chrono::steady_clock::now();
    WaitUntil("another leader", [this] { return Info(*second_stub_).leads(); });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    std::cout << "another server leads after " << took.count() << " s\n";
  }
  // What is asked from here on is asked of the second server, and a check of the store ends it.
  void GoOnWithSecond() {
    std::swap(stub_, second_stub_);
    std::swap(server_, second_);
  }

  std::string second_address_;
  std::unique_ptr<Stub> second_stub_;
  int second_http_ = 0;
  pid_t second_ = 0;
};

TEST_F(FailoverTest, AnotherLeadsWhereTheLeaderIsKilledAndTheJobEndsAsIfNothingHadBeen) {
  const int64_t term = Info(*stub_).leader().term();
  StartAgentOfBoth("a", 2);
  const std::string calm = Submit(2, kSteps, kInterval);
  AwaitSuccess(calm);
  const auto undisturbed = Losses(calm);
  const std::string job = Submit(2, kSteps, kInterval);
  AwaitCommit(job, kInterval);
  const pid_t trainer = Trainer(1);
  ASSERT_NE(trainer, 0) << "the job was over before it could be disturbed";
  KillServer();
  AwaitSecondLeads();
  EXPECT_EQ(Info(*second_stub_).leader().term(), term + 1);
  EXPECT_EQ(Info(*second_stub_).leader().address(), second_address_);
  GoOnWithSecond();
  EXPECT_TRUE(Get(job).state() == v1::SUCCEEDED || Trainer(1) == trainer);
  AwaitSuccess(job);
  EXPECT_EQ(Attempts(job).size(), 1);
  ExpectUndisturbed(job, undisturbed, 0);
  ExpectCheckpointsAsListed(job);
  ExpectSoundHistory(job);
}

TEST_F(FailoverTest, AnotherLeadsWhereTheLeaderStandsStillAndThatOneFollowsWhenItWakes) {
  StartAgentOfBoth("a", 2);
  const std::string job = Submit(2, 4 * kSteps, kInterval);
  AwaitCommit(job, kInterval);
  const pid_t trainer = Trainer(1);
  ASSERT_NE(trainer, 0);
  Signal(server_, SIGSTOP);
  AwaitSecondLeads();
  GoOnWithSecond();
  const int64_t committed = Get(job).committed_step();
  AwaitCommit(job, committed + 2 * kInterval);
  EXPECT_EQ(Trainer(1), trainer) << "it goes on under the new leader";
  Signal(second_, SIGCONT);
  WaitUntil("the old leader follows", [this] {
    const v1::ServerInfo info = Info(*second_stub_);
    return info.has_leader() && !info.leads() && info.leader().address() == second_address_;
  });
  EXPECT_TRUE(Info(*stub_).leads());
  AwaitSuccess(job);
  EXPECT_EQ(Attempts(job).size(), 1);
  // The one that woke up reads what the leader wrote, and can lead again.
  std::swap(stub_, second_stub_);
  EXPECT_EQ(Get(job).state(), v1::SUCCEEDED);
  std::swap(stub_, second_stub_);
  Kill(&server_);
  WaitUntil("the old leader leads again", [this] { return Info(*second_stub_).leads(); });
  GoOnWithSecond();
  ExpectCheckpointsAsListed(job);
  ExpectSoundHistory(job);
}

TEST_F(FailoverTest, AServerThatIsStartedWhileTheDatabaseIsAwayWaitsForItAndEndsWhenItIsTold) {
  KillServer();
  Kill(&second_);
  std::vector<std::string> command = ServerCommand(second_address_, Path("data"), {"10s", "500ms", "2s"});
  command.push_back("--http=127.0.0.1:" + std::to_string(second_http_));
  store::PostgresOutage outage(store::PostgresServer::OfThisProcess());
  second_ = StartProgram(command);
  const auto log = [this] { return ReadAll(OutputOf(second_, "stderr")); };
  WaitUntil("that it serves", [&] { return log().find("\"http_port\"") != std::string::npos || Ended(second_); });
  ASSERT_FALSE(Ended(second_)) << log();
  EXPECT_EQ(HttpGet("/healthz").code, 200);
  EXPECT_EQ(HttpGet("/readyz").code, 503);
  EXPECT_THAT(log(), HasSubstr("waits for the database"));
  Signal(second_, SIGTERM);
  EXPECT_EQ(Wait(second_).code, 0);
  // And once more, until it is there.
  second_ = StartProgram(command);
  WaitUntil("that it serves", [&] { return log().find("\"http_port\"") != std::string::npos || Ended(second_); });
  ASSERT_TRUE(outage.End().ok());
  WaitUntil("that it leads", [&] { return Info(*second_stub_).leads() || Ended(second_); });
  EXPECT_FALSE(Ended(second_)) << log();
  EXPECT_EQ(HttpGet("/readyz").code, 200);
}

// As where they are turned on by starting one server after the other anew: nobody who could let others in was there before.
TEST_F(FailoverTest, AServerThatAsksForTokensMakesTheFirstOneWhenItTakesOver) {
  Kill(&second_);
  std::vector<std::string> command = ServerCommand(second_address_, Path("data"), {"10s", "500ms", "2s"});
  const std::string first_token = Path("first.token");
  command.insert(command.end(), {"--tokens", "--first_token_file=" + first_token, "--audit_log=" + Path("audit.jsonl")});
  second_ = StartProgram(command);
  const auto asks = [this](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"list", "--server", second_address_};
    words.insert(words.end(), more.begin(), more.end());
    return Run(words);
  };
  WaitUntil("that it asks for tokens", [&] { return asks({}).err.find("is needed") != std::string::npos; });
  EXPECT_FALSE(std::filesystem::exists(first_token));
  KillServer();
  WaitUntil("the first token", [&] { return std::filesystem::exists(first_token); });
  WaitUntil("that it counts", [&] { return asks({"--token-file", first_token}).code == 0; });
}

// Nobody would lead otherwise. Where it is the first, people are there who see it end.
TEST_F(FailoverTest, AServerThatCannotWriteTheFirstTokenTakesOverAllTheSameAndEndsAtItsStart) {
  Kill(&second_);
  std::ofstream(Path("file")) << "no folder";
  std::vector<std::string> command = ServerCommand(second_address_, Path("data"), {"10s", "500ms", "2s"});
  const std::string first_token = Path("file") + "/first.token";
  command.insert(command.end(), {"--tokens", "--first_token_file=" + first_token, "--audit_log=" + Path("audit.jsonl")});
  second_ = StartProgram(command);
  const auto log = [this] { return ReadAll(OutputOf(second_, "stderr")); };
  WaitUntil("that it serves", [&] { return log().find("\"http_port\"") != std::string::npos || Ended(second_); });
  KillServer();
  WaitUntil("that it leads", [&] { return log().find("leads, term") != std::string::npos || Ended(second_); });
  EXPECT_FALSE(Ended(second_)) << log();
  EXPECT_THAT(log(), HasSubstr("--first_token_file = " + first_token));
  Kill(&second_);
  // Until the database has noticed, the one that was killed is a leader to follow.
  WaitUntil("that nobody leads", [] {
    const auto locks = store::PostgresServer::OfThisProcess().Sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'");
    return locks.ok() && *locks == "0";
  });
  second_ = StartProgram(command);
  WaitUntil("its end", [&] { return Ended(second_); });
  EXPECT_EQ(Wait(second_).code, 2);
  EXPECT_THAT(log(), HasSubstr("--first_token_file = " + first_token));
  second_ = 0;
}

TEST_F(FailoverTest, AFollowerReadsTheDatabaseAndPassesOnWhatOnlyTheLeaderCanDo) {
  StartAgentOfBoth("a", 1);
  ASSERT_FALSE(Info(*second_stub_).leads());
  std::swap(stub_, second_stub_);  // all that follows is asked of the follower
  const std::string job = Submit(1, 200, kInterval);
  ASSERT_FALSE(job.empty());
  ASSERT_EQ(Workers().size(), 1);
  EXPECT_TRUE(Workers()[0].connected());
  v1::WatchJobRequest watch;
  watch.set_name(job);
  grpc::ClientContext context;
  const auto reader = stub_->WatchJob(&context, watch);
  v1::WatchJobResponse last;
  int messages = 0;
  while (reader->Read(&last)) ++messages;
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(last.job().state(), v1::SUCCEEDED);
  EXPECT_GT(messages, 1) << "it is woken while the leader works";
  EXPECT_EQ(Losses(job).size(), 200);

  v1::DrainWorkerRequest drain;
  drain.set_name("workers/a");
  v1::Worker worker;
  ASSERT_TRUE(Ask(*stub_, &Stub::DrainWorker, drain, &worker).ok());
  EXPECT_EQ(worker.state(), v1::DRAINING);
  const std::string waits = Submit(1, 200, kInterval);
  v1::CancelJobRequest cancel;
  cancel.set_name(waits);
  v1::Job cancelled;
  ASSERT_TRUE(Ask(*stub_, &Stub::CancelJob, cancel, &cancelled).ok());
  cancel.set_name("projects/default/jobs/01JAAAAAAAAAAAAAAAAAAAAAAA");
  const grpc::Status missing = Ask(*stub_, &Stub::CancelJob, cancel, &cancelled);
  EXPECT_EQ(missing.error_code(), grpc::StatusCode::NOT_FOUND) << "the leader's answer, and not the way to it";

  // The same over HTTP, and what a load balancer asks.
  EXPECT_THAT(HttpGet("/v1/workers").body, HasSubstr("workers/a"));
  EXPECT_THAT(HttpGet("/v1/server").body, HasSubstr(address())) << "who leads, for the page";
  EXPECT_THAT(HttpGet("/v1/" + job).body, HasSubstr("succeeded"));
  EXPECT_EQ(HttpGet("/healthz").code, 200);
  EXPECT_THAT(HttpGet("/readyz").body, HasSubstr("follows " + address()));
  EXPECT_THAT(HttpGet("/metrics").body, HasSubstr("legoai_server_leads 0"));

  // And by `lego`, which takes them all and finds the one that does.
  const auto servers = Run({"servers", "--server", Both()});
  EXPECT_EQ(servers.code, 0) << servers.err;
  EXPECT_THAT(servers.out, HasSubstr("leads"));
  EXPECT_THAT(servers.out, HasSubstr("follows"));
  Kill(&server_);
  const auto workers = Run({"workers", "a", "--undrain", "--server", Both()});
  EXPECT_EQ(workers.code, 0) << workers.err;
}

}  // namespace
}  // namespace legoai::service
