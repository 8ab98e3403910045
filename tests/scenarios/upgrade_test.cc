// A release takes the place of another while the service works (docs/operations.md, "Upgrade"): three servers over one
// PostgreSQL, whose tables the new release migrates, then the agents, each once it is idle. Clients submit, watch and cancel all
// the time. Nobody is told anything that is not so, every job ends as if nothing had been, and the store's history is that of a
// service that was left alone.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/process/build_version.h"
#include "proto/enum_text.h"
#include "server/store/postgres_connection.h"
#include "server/store/postgres_follower.h"
#include "server/store/postgres_schema.h"
#include "server/store/postgres_store.h"
#include "tests/scenarios/checker.h"
#include "tests/scenarios/checkpoint_checker.h"
#include "tests/scenarios/clients.h"
#include "tests/scenarios/other_build.h"
#include "tests/scenarios/told.h"
#include "tests/scenarios/watcher.h"
#include "tests/service/service_processes.h"

namespace legoai::scenarios {
namespace {

using service::Ask;
using service::ServiceProcesses;
using Stub = v1::ControlPlane::Stub;
using Losses = std::map<int64_t, double>;  // by step

constexpr int kSlots = 2, kClients = 2;
// The versions of the two releases' tables; next_release.cc has the script between them.
const int64_t kOldTables = store::PostgresSchemaVersion(), kNewTables = kOldTables + 1;
constexpr int64_t kKeepLatest = 2;
// Of the job that goes on while the lead goes over; no more reports than a query of metrics gives points.
constexpr int64_t kLongSteps = 3600, kLongReports = 6;
constexpr char kProject[] = "projects/default";
// Generous: it is reached only where something hangs.
constexpr double kPatienceSeconds = 400;
constexpr useconds_t kUnderLoad = 1'500'000;  // between two replacements
// Nobody is lost here but who is ended: a machine that is slow for seconds is not to be taken for one that stands still.
const service::ServerTimes kTimes = {
    .lease_ttl = "60s", .heartbeat_interval = "300ms", .replan_grace = "2s", .leader_lease = "10s"};

struct Server {
  std::string address;
  std::unique_ptr<Stub> stub;
  pid_t process = 0;
};

struct Agent {
  std::string name;
  pid_t process = 0;
};

class UpgradeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(MakeOtherBuild(old_programs_), absl::OkStatus());
    ASSERT_EQ(MakeNextRelease(new_programs_), absl::OkStatus());
    old_version_ = OtherBuildVersion(new_version_);
    std::vector<std::string> addresses;
    for (int i = 0; i < 3; ++i) {
      addresses.push_back(i == 0 ? service_.address() : absl::StrCat("127.0.0.1:", service::FreePort()));
      servers_.push_back({addresses.back(), service::MakeStub(addresses.back())});
    }
    all_servers_ = absl::StrJoin(addresses, ",");
    any_server_ = service::MakeStub("ipv4:" + all_servers_);
    for (Server& server : servers_) ASSERT_NO_FATAL_FAILURE(StartServer(&server, old_programs_));
    for (const char* name : {"a", "b"}) {
      agents_.push_back({name});
      ASSERT_NO_FATAL_FAILURE(StartAgent(&agents_.back(), old_programs_));
    }
    for (const auto& [slots, steps, interval] : {std::tuple(1, 40, 10), {1, 120, 30}, {2, 60, 15}})
      options_.specs.push_back(Spec(slots, steps, interval));
    options_.most_active = 4;
    // What was saved under one build is not gone on with under another; and the test's own jobs are to succeed.
    options_.retries = options_.ends_others = false;
  }

  void TearDown() override {
    StopClients();
    for (Agent& agent : agents_) ServiceProcesses::Kill(&agent.process);
    for (Server& server : servers_) ServiceProcesses::Kill(&server.process);
    if (HasFailure()) std::cerr << service_.LastWords(6000);
  }

  // As many ranks whenever it is given slots: its losses are the same to the last bit.
  v1::JobSpec Spec(int slots, int64_t steps, int64_t interval) {
    auto spec = service_.TinyJob(slots, static_cast<int>(steps), static_cast<int>(interval));
    EXPECT_TRUE(spec.ok()) << spec.status();
    spec->mutable_resources()->set_min_slots(slots);
    spec->mutable_recipe()->mutable_checkpoint()->set_keep_latest_k(kKeepLatest);
    return *std::move(spec);
  }

  static v1::ServerInfo Info(Stub& stub) {
    v1::ServerInfo info;
    Ask(stub, &Stub::GetServerInfo, v1::GetServerInfoRequest(), &info, 1);
    return info;
  }

  void StartServer(Server* server, const std::string& programs) {
    server->process = service_.StartServerAt(server->address, kTimes, programs);
    const std::string& version = programs == new_programs_ ? new_version_ : old_version_;
    ASSERT_TRUE(service::Within(kPatienceSeconds, [&] {
      const v1::ServerInfo info = Info(*server->stub);
      return cli::testing::Ended(server->process) || (info.build_version() == version && info.has_leader());
    })) << "the server does not answer";
    ASSERT_FALSE(cli::testing::Ended(server->process)) << server->address << " ended by itself";
  }

  v1::Worker WorkerOf(const Agent& agent) {
    v1::ListWorkersResponse response;
    Ask(*any_server_, &Stub::ListWorkers, v1::ListWorkersRequest(), &response);
    for (const v1::Worker& worker : response.workers()) {
      if (worker.name() == "workers/" + agent.name) return worker;
    }
    return {};
  }

  void StartAgent(Agent* agent, const std::string& programs) {
    agent->process = service_.StartAgent(agent->name, kSlots, all_servers_, programs);
    const std::string& version = programs == new_programs_ ? new_version_ : old_version_;
    ASSERT_TRUE(service::Within(kPatienceSeconds, [&] {
      const v1::Worker worker = WorkerOf(*agent);
      return worker.connected() && worker.build_version() == version;
    })) << agent->name << " is not connected";
  }

  // As an operator ends it.
  static void End(pid_t* process, const std::string& name) {
    ASSERT_FALSE(cli::testing::Ended(*process)) << name << " ended by itself";
    kill(*process, SIGTERM);
    EXPECT_EQ(AwaitEnd(process, name), 0) << name;
  }
  // Its exit code; of what ended otherwise -1.
  static int AwaitEnd(pid_t* process, const std::string& name) {
    const bool ended = service::Within(kPatienceSeconds, [&] { return cli::testing::Ended(*process); });
    EXPECT_TRUE(ended) << name << " does not end";
    if (!ended) return -1;
    int status = 0;
    waitpid(*process, &status, 0);
    *process = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void ReplaceServer(Server* server) {
    ASSERT_NO_FATAL_FAILURE(End(&server->process, server->address));
    ASSERT_NO_FATAL_FAILURE(StartServer(server, new_programs_));
    usleep(kUnderLoad);
  }

  void StartClients() {
    for (int i = 0; i < kClients; ++i)
      clients_.emplace_back(absl::StrCat("client-", i), /*seed=*/i + 1, &options_, any_server_.get(), &told_);
    for (Client& client : clients_) threads_.emplace_back([this, &client] { client.Run(stop_); });
    threads_.emplace_back([this] {
      for (; !stop_; usleep(100'000)) WatchAll();
    });
  }
  // Every job that anybody knows.
  void WatchAll() {
    for (const auto& [name, job] : told_.Known()) watchers_.try_emplace(name, name, any_server_.get());
  }
  void StopClients() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  std::string Submit(const v1::JobSpec& spec, const std::string& name) { return Submit(spec, name, *any_server_); }
  std::string Submit(const v1::JobSpec& spec, const std::string& name, Stub& stub) {
    v1::CreateJobRequest request;
    request.set_parent(kProject);
    request.set_request_id(name);
    *request.mutable_spec() = spec;
    request.mutable_spec()->set_display_name(name);
    const auto before = told_.Known();
    told_.Sent(name, &request.spec());
    v1::Job job;
    const grpc::Status status = Ask(stub, &Stub::CreateJob, request, &job, kPatienceSeconds);
    EXPECT_TRUE(status.ok()) << status.error_message();
    told_.Accepted(name, job);
    told_.Heard(before, job);
    return job.name();
  }

  v1::Job Get(const std::string& name) {
    v1::GetJobRequest request;
    request.set_name(name);
    v1::Job job;
    Ask(*any_server_, &Stub::GetJob, request, &job);
    return job;
  }

  template <typename Wanted>
  v1::Job Await(const std::string& name, const std::string& what, const Wanted& wanted) {
    v1::Job job;
    const bool came = service::Within(kPatienceSeconds, [&] {
      usleep(50'000);
      job = Get(name);
      return wanted(job) || (IsFinalState(job.state()) && job.state() != v1::SUCCEEDED);
    });
    EXPECT_TRUE(came && wanted(job)) << what << ": " << name << " is " << EnumText(job.state()) << ", " << job.reason();
    return job;
  }
  v1::Job AwaitSuccess(const std::string& name) {
    return Await(name, "success", [](const v1::Job& job) { return job.state() == v1::SUCCEEDED; });
  }

  Losses LossesOf(const std::string& name) {
    v1::QueryMetricsRequest request;
    request.set_name(name);
    v1::QueryMetricsResponse response;
    EXPECT_TRUE(Ask(*any_server_, &Stub::QueryMetrics, request, &response, kPatienceSeconds).ok());
    Losses losses;
    for (const v1::StepMetrics& point : response.points()) losses[point.step()] = point.loss();
    return losses;
  }

  std::vector<v1::Attempt> Attempts(const std::string& name) {
    v1::ListAttemptsRequest request;
    request.set_parent(name);
    v1::ListAttemptsResponse response;
    EXPECT_TRUE(Ask(*any_server_, &Stub::ListAttempts, request, &response, kPatienceSeconds).ok());
    return {response.attempts().begin(), response.attempts().end()};
  }

  // What the store has, whoever leads.
  StoreView Look() {
    const auto follower = store::PostgresFollower::Make(service_.StoreUrl(), {});
    EXPECT_TRUE(follower.ok()) << follower.status();
    if (!follower.ok()) return {};
    auto view = ReadStore((*follower)->store(), told_.Requests());
    EXPECT_TRUE(view.ok()) << view.status();
    return view.ok() ? *std::move(view) : StoreView();
  }

  static void ExpectNone(const std::vector<std::string>& rules) {
    for (const std::string& rule : rules) ADD_FAILURE() << rule;
  }

  // Of the store's tables, as they are.
  int64_t TablesVersion() {
    const auto target = store::ParsePostgresTarget(service_.StoreUrl());
    EXPECT_TRUE(target.ok()) << target.status();
    if (!target.ok()) return -1;
    const auto connection = store::PostgresConnection::Open(*target, store::PostgresOptions().times, nullptr);
    EXPECT_TRUE(connection.ok()) << connection.status();
    if (!connection.ok()) return -1;
    const auto version = store::PostgresVersionThere(**connection);
    EXPECT_TRUE(version.ok()) << version.status();
    return version.value_or(-1);
  }

  // Puts the one that leads at the end.
  void PutLeaderLast() {
    auto leader = servers_.end();
    ASSERT_TRUE(service::Within(kPatienceSeconds, [&] {
      leader = std::find_if(servers_.begin(), servers_.end(), [](Server& server) { return Info(*server.stub).leads(); });
      return leader != servers_.end();
    })) << "nobody leads";
    std::rotate(leader, leader + 1, servers_.end());
  }

  void ReplaceFollowers() {
    ASSERT_NO_FATAL_FAILURE(PutLeaderLast());
    for (size_t i = 0; i + 1 < servers_.size(); ++i) ASSERT_NO_FATAL_FAILURE(ReplaceServer(&servers_[i]));
    EXPECT_EQ(TablesVersion(), kOldTables) << "nobody migrates while an older server leads";
  }
  void ReplaceLeader() {
    v1::ServerInfo before;
    ASSERT_TRUE(service::Within(kPatienceSeconds, [&] {
      before = Info(*servers_.back().stub);
      return before.leads() && before.has_leader();
    })) << servers_.back().address << " leads no more";
    ASSERT_NO_FATAL_FAILURE(ReplaceServer(&servers_.back()));
    // One that is about to lead has the lock first, then migrates, and only then has a term of its own.
    std::vector<v1::ServerInfo> infos;
    ASSERT_TRUE(service::Within(kPatienceSeconds, [&] {
      infos.clear();
      for (Server& server : servers_) infos.push_back(Info(*server.stub));
      return std::all_of(infos.begin(), infos.end(),
                         [&](const v1::ServerInfo& info) { return info.leader().term() > before.leader().term(); });
    })) << "not all servers know another leader";
    EXPECT_EQ(TablesVersion(), kNewTables);
    for (const v1::ServerInfo& info : infos) {
      EXPECT_EQ(info.build_version(), new_version_);
      EXPECT_EQ(info.leader().term(), before.leader().term() + 1) << "the lead went over once";
    }
  }

  // Takes no more work, is replaced once it has none, and is taken back.
  void ReplaceAgent(Agent* agent) {
    Drain(*agent, /*undo=*/false);
    ASSERT_TRUE(service::Within(kPatienceSeconds, [&] { return IsIdle(*agent); })) << agent->name << " does not become idle";
    ASSERT_NO_FATAL_FAILURE(End(&agent->process, agent->name));
    ASSERT_NO_FATAL_FAILURE(StartAgent(agent, new_programs_));
    Drain(*agent, /*undo=*/true);
  }
  bool IsIdle(const Agent& agent) {
    usleep(100'000);
    v1::ListJobsRequest request;
    request.set_parent(kProject);
    request.set_page_size(1000);
    v1::ListJobsResponse response;
    if (!Ask(*any_server_, &Stub::ListJobs, request, &response).ok()) return false;
    return std::none_of(response.jobs().begin(), response.jobs().end(), [&](const v1::Job& job) {
      if (IsFinalState(job.state()) || job.attempts() == 0) return false;
      const v1::Attempt last = Attempts(job.name()).back();
      return !last.has_end_time_us() && last.placements(0).worker() == "workers/" + agent.name;
    });
  }
  void Drain(const Agent& agent, bool undo) {
    v1::DrainWorkerRequest request;
    request.set_name("workers/" + agent.name);
    request.set_undo(undo);
    request.set_let_finish(!undo);
    v1::Worker worker;
    const grpc::Status status = Ask(*any_server_, &Stub::DrainWorker, request, &worker, kPatienceSeconds);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  // By itself, and says why.
  void ExpectEndsForNewerTables(Server* server) {
    const std::string said = service_.OutputOf(server->process, "stderr");
    EXPECT_NE(AwaitEnd(&server->process, server->address), 0);
    const std::string why = absl::StrCat("schema version ", kNewTables, " and this server knows versions up to ", kOldTables);
    EXPECT_THAT(cli::testing::ReadAll(said), ::testing::HasSubstr(why));
  }

  void Cancel(const std::string& name, Stub& stub) {
    v1::CancelJobRequest request;
    request.set_name(name);
    v1::Job job;
    const grpc::Status status = Ask(stub, &Stub::CancelJob, request, &job, kPatienceSeconds);
    EXPECT_TRUE(status.ok()) << status.error_message();
    told_.CancelAcknowledged(name);
  }

  void AwaitEndOfAll() {
    EXPECT_TRUE(service::Within(kPatienceSeconds, [&] {
      usleep(200'000);
      if (!clients_.front().Look()) return false;
      const auto known = told_.Known();
      return std::all_of(known.begin(), known.end(), [](const auto& job) { return IsFinalState(job.second.state); });
    })) << "every job ends";
    EXPECT_TRUE(service::Within(kPatienceSeconds, [&] { return service_.Trainers().empty(); })) << "nothing trains then";
  }

  // Jobs of one kind have the same losses, those of a job that the new build trained alone; of one that was cancelled, and of one
  // that was trained alone for a part, the steps that both have.
  void CheckLosses(const StoreView& view, const std::map<int64_t, Losses>& undisturbed) {
    for (const auto& [name, history] : view.jobs) {
      const int64_t steps = history.job.spec().recipe().training().steps();
      ASSERT_EQ(undisturbed.count(steps), 1);
      const Losses& expected = undisturbed.at(steps);
      for (const auto& [step, loss] : LossesOf(name)) {
        if (const auto same = expected.find(step); same != expected.end()) {
          EXPECT_EQ(loss, same->second) << name << ", step " << step;
        }
      }
    }
  }

  // Rules of what clients were told and of the store, with no server left. `midway`: an earlier look. What clients did.
  Calls CheckAll(const StoreView& midway) {
    clients_.front().Look();
    WatchAll();
    EXPECT_TRUE(service::Within(kPatienceSeconds, [&] {
      return std::all_of(watchers_.begin(), watchers_.end(), [](const auto& watcher) { return watcher.second.done(); });
    })) << "every end is told to those who watch";
    for (Server& server : servers_) End(&server.process, server.address);
    const StoreView view = Look();
    ExpectNone(CheckOnlyAdded(midway, view));
    ExpectNone(CheckTold(view, told_));
    ExpectNone(CheckSlots(view));
    const auto known = told_.Known();
    for (const auto& [name, history] : view.jobs) {
      ExpectNone(CheckHistory(history));
      ExpectNone(CheckCommits(history));
      ExpectNone(CheckStops(history));
      ExpectNone(CheckCheckpoints(history, kKeepLatest, service_.Path("scratch")));
      ExpectNone(watchers_.at(name).Broken(history));
      EXPECT_EQ(history.job.restarts(), 0) << name;
      if (history.job.state() == v1::SUCCEEDED) continue;
      EXPECT_TRUE(history.job.state() == v1::CANCELLED && known.at(name).cancelled) << name << ": " << history.job.reason();
    }
    return TellLoad(view);
  }

  Calls TellLoad(const StoreView& view) {
    Calls calls;
    for (Client& client : clients_) calls.Add(client.TakeCalls());
    int64_t streams = 0;
    for (const auto& [name, watcher] : watchers_) streams += watcher.streams();
    std::cout << view.jobs.size() << " jobs, " << calls.submitted << " submissions, " << calls.repeated << " repeated, "
              << calls.cancelled << " cancellations, " << calls.looked << " looks, " << streams << " watches, "
              << calls.unanswered << " unanswered\n";
    return calls;
  }

  ServiceProcesses service_{"legoai-upgrade"};
  const std::string new_version_{launch::BuildVersion()};
  const std::string old_programs_ = service_.Path("old/"), new_programs_ = service_.Path("new/");
  std::string old_version_;
  std::vector<Server> servers_;
  std::vector<Agent> agents_;
  std::string all_servers_;  // as --server takes them
  std::unique_ptr<Stub> any_server_;
  Told told_;
  ClientOptions options_;
  std::deque<Client> clients_;
  std::map<std::string, Watcher> watchers_;  // by job; while there are threads it is that of one of them
  std::vector<std::thread> threads_;
  std::atomic<bool> stop_ = false;
};

TEST_F(UpgradeTest, ServersThenAgentsAreReplacedUnderLoadAndNothingIsLostOrDoneTwice) {
  StartClients();
  usleep(kUnderLoad);
  ASSERT_NO_FATAL_FAILURE(ReplaceFollowers());
  v1::JobSpec long_spec = Spec(2, kLongSteps, 200);
  long_spec.mutable_recipe()->mutable_metrics()->set_log_freq(kLongReports);
  long_spec.mutable_policy()->set_priority(10);  // before those of the clients
  const std::string long_job = Submit(long_spec, "trains-meanwhile");
  Await(long_job, "its first checkpoint", [](const v1::Job& job) { return job.committed_step() > 0; });
  ASSERT_NO_FATAL_FAILURE(ReplaceLeader());

  // The new leader has taken over what the old agents train, and gives them nothing new.
  const v1::Job taken_over = Await(long_job, "news of it", [](const v1::Job& job) { return !job.name().empty(); });
  ASSERT_EQ(taken_over.state(), v1::RUNNING) << "it was over before the leader was replaced: give it more steps";
  Await(long_job, "a checkpoint under the new leader",
        [&](const v1::Job& job) { return job.committed_step() > taken_over.committed_step(); });
  const std::string waits = Submit(Spec(1, 40, 10), "waits-for-an-agent");
  EXPECT_THAT(Await(waits, "why it waits", [](const v1::Job& job) {
                return job.reason().find("of another build than this server") != std::string::npos;
              }).state(), ::testing::AnyOf(v1::SUBMITTED, v1::QUEUED));
  const StoreView midway = Look();

  // First the one that does not train the long job.
  const std::string trains_long = Attempts(long_job).at(0).placements(0).worker();
  std::stable_partition(agents_.begin(), agents_.end(),
                        [&](const Agent& agent) { return "workers/" + agent.name != trains_long; });
  for (Agent& agent : agents_) ASSERT_NO_FATAL_FAILURE(ReplaceAgent(&agent));
  usleep(kUnderLoad);
  StopClients();
  AwaitEndOfAll();

  std::map<int64_t, std::string> alone;  // by steps
  for (const v1::JobSpec& spec : {long_spec, options_.specs[0], options_.specs[1], options_.specs[2]}) {
    const int64_t steps = spec.recipe().training().steps();
    alone[steps] = Submit(spec, absl::StrCat("trained-alone-", steps));
  }
  // Past the step at which the lead went over.
  Await(alone.at(kLongSteps), "as much as is compared",
        [&](const v1::Job& job) { return job.committed_step() > taken_over.committed_step(); });
  Cancel(alone.at(kLongSteps), *any_server_);
  AwaitEndOfAll();
  std::map<int64_t, Losses> undisturbed;
  for (const auto& [steps, name] : alone) {
    if (steps != kLongSteps) AwaitSuccess(name);
    undisturbed[steps] = LossesOf(name);
    EXPECT_GE(undisturbed[steps].size(), steps == kLongSteps ? taken_over.committed_step() / kLongReports : steps);
  }
  EXPECT_EQ(LossesOf(long_job).size(), kLongSteps / kLongReports + 1) << "the first step is reported, too";
  EXPECT_EQ(Attempts(long_job).size(), 1);
  CheckLosses(Look(), undisturbed);
  const Calls calls = CheckAll(midway);
  EXPECT_GT(calls.submitted, 5) << "there was no load";
  EXPECT_GT(calls.cancelled, 0) << "there was no load";
}

// Where the leader is lost halfway, a newer server may take over, and migrate, beside an older one that follows: that goes on
// answering and passing on. It never leads over tables that it does not know, and one that is started finds them too new.
TEST_F(UpgradeTest, AnOlderServerGoesOnBesideNewerTablesAndNeverLeadsOverThem) {
  StartClients();
  usleep(kUnderLoad);
  ASSERT_NO_FATAL_FAILURE(PutLeaderLast());
  Server &newer = servers_[0], &older = servers_[1], &first = servers_[2];
  ASSERT_NO_FATAL_FAILURE(ReplaceServer(&newer));
  // So that the newer one is faster.
  ASSERT_EQ(kill(older.process, SIGSTOP), 0);
  ASSERT_NO_FATAL_FAILURE(End(&first.process, first.address));
  EXPECT_TRUE(service::Within(kPatienceSeconds, [&] { return Info(*newer.stub).leads(); })) << "the newer one leads";
  ASSERT_EQ(kill(older.process, SIGCONT), 0);
  EXPECT_EQ(TablesVersion(), kNewTables);
  EXPECT_TRUE(service::Within(kPatienceSeconds, [&] { return Info(*older.stub).leader().address() == newer.address; }));

  // All that a client may ask.
  const std::string job = Submit(Spec(1, 40, 10), "by-the-older-server", *older.stub);
  const std::string ended = Submit(Spec(1, 40, 10), "ended-by-the-older-server", *older.stub);
  Cancel(ended, *older.stub);
  Await(ended, "its end", [](const v1::Job& now) { return now.state() == v1::CANCELLED; });
  usleep(kUnderLoad);
  first.process = service_.StartServerAt(first.address, kTimes, old_programs_);
  ExpectEndsForNewerTables(&first);
  const StoreView midway = Look();

  ASSERT_FALSE(cli::testing::Ended(older.process)) << "it follows";
  ASSERT_NO_FATAL_FAILURE(End(&newer.process, newer.address));
  ExpectEndsForNewerTables(&older);
  EXPECT_EQ(TablesVersion(), kNewTables);
  for (Server& server : servers_) ASSERT_NO_FATAL_FAILURE(StartServer(&server, new_programs_));
  for (Agent& agent : agents_) ASSERT_NO_FATAL_FAILURE(ReplaceAgent(&agent));
  AwaitSuccess(job);
  StopClients();
  AwaitEndOfAll();
  EXPECT_GT(CheckAll(midway).submitted, 0) << "there was no load";
}

}  // namespace
}  // namespace legoai::scenarios
