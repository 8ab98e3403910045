// Builds are replaced while the service works (docs/operations.md, "Upgrade"): three servers over one PostgreSQL one after the
// other, the leader last, then the agents, each once it is idle. Clients submit and look all the time. Nobody is told anything
// that is not so, every job succeeds as if nothing had been, and the store's history is that of a service that was left alone.
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
#include "server/store/postgres_follower.h"
#include "tests/scenarios/checker.h"
#include "tests/scenarios/checkpoint_checker.h"
#include "tests/scenarios/clients.h"
#include "tests/scenarios/other_build.h"
#include "tests/scenarios/told.h"
#include "tests/service/service_processes.h"

namespace legoai::scenarios {
namespace {

using service::Ask;
using service::ServiceProcesses;
using Stub = v1::ControlPlane::Stub;
using Losses = std::map<int64_t, double>;  // by step

constexpr int kSlots = 2, kClients = 2;
constexpr int64_t kKeepLatest = 2;
// Of the job that goes on meanwhile; no more reports than a query of metrics gives points.
constexpr int64_t kLongSteps = 3600, kLongReports = 4;
constexpr char kProject[] = "projects/default";
// Generous: it is reached only where something hangs.
constexpr double kPatienceSeconds = 240;
constexpr useconds_t kUnderLoad = 1'500'000;  // between two replacements
const service::ServerTimes kTimes = {.lease_ttl = "20s", .heartbeat_interval = "300ms", .replan_grace = "2s"};

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
    old_programs_ = service_.Path("old/");
    ASSERT_EQ(MakeOtherBuild(old_programs_), absl::OkStatus());
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
    // What was saved under one build is not gone on with under another.
    options_.ends_jobs = false;
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
    const std::string& version = programs.empty() ? new_version_ : old_version_;
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
    const std::string& version = programs.empty() ? new_version_ : old_version_;
    ASSERT_TRUE(service::Within(kPatienceSeconds, [&] {
      const v1::Worker worker = WorkerOf(*agent);
      return worker.connected() && worker.build_version() == version;
    })) << agent->name << " is not connected";
  }

  // As an operator ends it.
  static void End(pid_t* process, const std::string& name) {
    ASSERT_FALSE(cli::testing::Ended(*process)) << name << " ended by itself";
    kill(*process, SIGTERM);
    ASSERT_TRUE(service::Within(kPatienceSeconds, [&] { return cli::testing::Ended(*process); })) << name << " does not end";
    int status = 0;
    waitpid(*process, &status, 0);
    *process = 0;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << name << " ended with status " << status;
  }

  void StartClients() {
    for (int i = 0; i < kClients; ++i)
      clients_.emplace_back(absl::StrCat("client-", i), /*seed=*/i + 1, &options_, any_server_.get(), &told_);
    for (Client& client : clients_) threads_.emplace_back([this, &client] { client.Run(stop_); });
  }
  void StopClients() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  std::string Submit(const v1::JobSpec& spec, const std::string& name) {
    v1::CreateJobRequest request;
    request.set_parent(kProject);
    request.set_request_id(name);
    *request.mutable_spec() = spec;
    request.mutable_spec()->set_display_name(name);
    const auto before = told_.Known();
    told_.Sent(name, &request.spec());
    v1::Job job;
    const grpc::Status status = Ask(*any_server_, &Stub::CreateJob, request, &job);
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
    EXPECT_TRUE(Ask(*any_server_, &Stub::QueryMetrics, request, &response).ok());
    Losses losses;
    for (const v1::StepMetrics& point : response.points()) losses[point.step()] = point.loss();
    return losses;
  }

  std::vector<v1::Attempt> Attempts(const std::string& name) {
    v1::ListAttemptsRequest request;
    request.set_parent(name);
    v1::ListAttemptsResponse response;
    EXPECT_TRUE(Ask(*any_server_, &Stub::ListAttempts, request, &response).ok());
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

  // Followers first, the leader last.
  void ReplaceServers() {
    const auto leads = [](Server& server) { return Info(*server.stub).leads(); };
    ASSERT_TRUE(service::Within(kPatienceSeconds, [&] { return std::any_of(servers_.begin(), servers_.end(), leads); }));
    std::stable_partition(servers_.begin(), servers_.end(), [&](Server& server) { return !leads(server); });
    const int64_t term = Info(*servers_.back().stub).leader().term();
    for (Server& server : servers_) {
      ASSERT_NO_FATAL_FAILURE(End(&server.process, server.address));
      ASSERT_NO_FATAL_FAILURE(StartServer(&server, ""));
      usleep(kUnderLoad);
    }
    for (Server& server : servers_) {
      const v1::ServerInfo info = Info(*server.stub);
      EXPECT_EQ(info.build_version(), new_version_);
      EXPECT_EQ(info.leader().term(), term + 1) << "the lead went over once";
    }
  }

  // Takes no more work, is replaced once it has none, and is taken back.
  void ReplaceAgent(Agent* agent) {
    Drain(*agent, /*undo=*/false);
    ASSERT_TRUE(service::Within(kPatienceSeconds, [&] { return IsIdle(*agent); })) << agent->name << " does not become idle";
    ASSERT_NO_FATAL_FAILURE(End(&agent->process, agent->name));
    ASSERT_NO_FATAL_FAILURE(StartAgent(agent, ""));
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
    const grpc::Status status = Ask(*any_server_, &Stub::DrainWorker, request, &worker);
    EXPECT_TRUE(status.ok()) << status.error_message();
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

  // Jobs of one kind have the same losses, those of a job that the new build trained alone.
  void CheckLosses(const StoreView& view, const std::map<int64_t, Losses>& undisturbed) {
    for (const auto& [name, history] : view.jobs) {
      const int64_t steps = history.job.spec().recipe().training().steps();
      ASSERT_EQ(undisturbed.count(steps), 1);
      EXPECT_EQ(LossesOf(name), undisturbed.at(steps)) << name;
      EXPECT_EQ(history.job.state(), v1::SUCCEEDED) << name << ": " << history.job.reason();
      EXPECT_EQ(history.job.restarts(), 0) << name;
    }
  }

  ServiceProcesses service_{"legoai-upgrade"};
  const std::string new_version_{launch::BuildVersion()};
  std::string old_version_, old_programs_;
  std::vector<Server> servers_;
  std::vector<Agent> agents_;
  std::string all_servers_;  // as --server takes them
  std::unique_ptr<Stub> any_server_;
  Told told_;
  ClientOptions options_;
  std::deque<Client> clients_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stop_ = false;
};

TEST_F(UpgradeTest, ServersThenAgentsAreReplacedUnderLoadAndNothingIsLostOrDoneTwice) {
  v1::JobSpec long_spec = Spec(2, kLongSteps, 200);
  long_spec.mutable_recipe()->mutable_metrics()->set_log_freq(kLongReports);
  const std::string long_job = Submit(long_spec, "long");
  Await(long_job, "its first checkpoint", [](const v1::Job& job) { return job.committed_step() > 0; });
  StartClients();
  usleep(kUnderLoad);
  ASSERT_NO_FATAL_FAILURE(ReplaceServers());

  // The new leader has taken over what the old agents train, and gives them nothing new.
  const v1::Job taken_over = Get(long_job);
  ASSERT_EQ(taken_over.state(), v1::RUNNING) << "it was over before the servers were replaced: give it more steps";
  Await(long_job, "a checkpoint under the new leader",
        [&](const v1::Job& job) { return job.committed_step() > taken_over.committed_step(); });
  const std::string waits = Submit(Spec(1, 40, 10), "waits");
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

  std::map<int64_t, Losses> undisturbed;
  for (const v1::JobSpec& spec : {options_.specs[0], options_.specs[1], options_.specs[2], long_spec}) {
    const int64_t steps = spec.recipe().training().steps();
    const std::string alone = Submit(spec, absl::StrCat("alone-", steps));
    AwaitSuccess(alone);
    undisturbed[steps] = LossesOf(alone);
    EXPECT_EQ(undisturbed[steps].size(), steps == kLongSteps ? kLongSteps / kLongReports : steps);
  }
  EXPECT_EQ(Attempts(long_job).size(), 1);
  clients_.front().Look();
  const StoreView view = Look();
  CheckLosses(view, undisturbed);
  for (Server& server : servers_) End(&server.process, server.address);
  ExpectNone(CheckOnlyAdded(midway, view));
  ExpectNone(CheckTold(view, told_));
  ExpectNone(CheckSlots(view));
  for (const auto& [name, history] : view.jobs) {
    ExpectNone(CheckHistory(history));
    ExpectNone(CheckCommits(history));
    ExpectNone(CheckStops(history));
    ExpectNone(CheckCheckpoints(history, kKeepLatest, service_.Path("scratch")));
  }
  Calls calls;
  for (Client& client : clients_) calls.Add(client.TakeCalls());
  EXPECT_GT(calls.submitted, 5) << "there was no load";
  std::cout << view.jobs.size() << " jobs, " << calls.submitted << " submissions, " << calls.repeated << " repeated, "
            << calls.looked << " looks, " << calls.unanswered << " unanswered\n";
}

}  // namespace
}  // namespace legoai::scenarios
