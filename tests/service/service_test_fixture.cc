#include "tests/service/service_test_fixture.h"

#include <signal.h>

#include <algorithm>
#include <cmath>

#include "core/checkpoint/directory.h"
#include "proto/enum_text.h"
#include "server/store/open_store.h"
#include "server/store/testing/test_store.h"
#include "tests/scenarios/checker.h"
#include "tests/scenarios/checkpoint_checker.h"
#include "tests/service/service_processes.h"

namespace legoai::service {
namespace {

using cli::testing::Ended;
using cli::testing::ReadAll;
using cli::testing::WaitUntil;

}  // namespace

void ServiceTest::SetUp() {
  LegoTest::SetUp();
  PrepareFolder();
  address_ = "127.0.0.1:" + std::to_string(FreePort());
  stub_ = MakeStub(address_);
  StartServer();
}

void ServiceTest::TearDown() {
  for (pid_t& agent : agents_) Kill(&agent);  // also those that are stopped
  KillServer();
  // Trainers and lego-sim die with their parents, a moment later.
  WaitUntil("the end of all processes", [this] { return Processes().empty(); });
  LegoTest::TearDown();
}

void ServiceTest::StartServer() {
  // Longer than an agent waits before it tries again (AgentOptions::longest_wait), with room for a machine that stands still.
  server_ = StartProgram(ServerCommand(address_, Path("data"), {"10s", "500ms", "2s"}));
  WaitUntil("the server", [this] {
    v1::ServerInfo info;
    return Ended(server_) || Ask(*stub_, &v1::ControlPlane::Stub::GetServerInfo, v1::GetServerInfoRequest(), &info).ok();
  });
  ASSERT_FALSE(Ended(server_)) << ReadAll(OutputOf(server_, "stderr"));
}

void ServiceTest::Kill(pid_t* process) { ServiceProcesses::Kill(process); }

void ServiceTest::KillServer() { Kill(&server_); }

void ServiceTest::Signal(pid_t process, int number) const {
  ASSERT_GT(process, 0) << "it has ended";  // 0 would be this test's own group
  EXPECT_EQ(kill(process, number), 0);
}

pid_t ServiceTest::StartAgent(const std::string& name, int64_t slots, const std::vector<std::string>& further) {
  std::vector<std::string> command = AgentCommand(address_, name, slots, Path("runs"));
  command.insert(command.end(), further.begin(), further.end());
  const pid_t agent = StartProgram(command);
  agents_.push_back(agent);
  WaitUntil("agent " + name, [&] {
    const auto workers = Workers();
    return Ended(agent) || std::any_of(workers.begin(), workers.end(), [&](const v1::Worker& worker) {
             return worker.name() == "workers/" + name && worker.connected() && worker.state() == v1::READY;
           });
  });
  EXPECT_FALSE(Ended(agent)) << ReadAll(OutputOf(agent, "stderr"));
  return agent;
}

std::string ServiceTest::Submit(int64_t slots, int64_t steps, int64_t interval, int64_t min_slots, const std::string& text) {
  auto spec = TinyJob(folder_, slots, steps, interval);
  EXPECT_TRUE(spec.ok()) << spec.status();
  if (!spec.ok()) return "";
  spec->mutable_resources()->set_min_slots(min_slots);
  if (!text.empty()) {
    spec->mutable_recipe()->mutable_training()->set_dataset_path(text);
    spec->mutable_dataset()->set_uri(text);
  }
  return Submit(*std::move(spec));
}

std::string ServiceTest::Submit(v1::JobSpec spec) {
  v1::CreateJobRequest request;
  request.set_parent("projects/default");
  request.set_request_id("service-test-" + std::to_string(++submitted_));
  spec.set_display_name(::testing::UnitTest::GetInstance()->current_test_info()->name());
  *request.mutable_spec() = std::move(spec);
  v1::Job job;
  const grpc::Status status = Ask(*stub_, &v1::ControlPlane::Stub::CreateJob, request, &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return job.name();
}

v1::Job ServiceTest::Get(const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  v1::Job job;
  Ask(*stub_, &v1::ControlPlane::Stub::GetJob, request, &job);  // while the server is away: no job
  return job;
}

v1::Job ServiceTest::Await(const std::string& name, const std::string& what, const std::function<bool(const v1::Job&)>& wanted) {
  v1::Job job;
  WaitUntil(what, [&] {
    job = Get(name);
    const bool over = job.state() == v1::FAILED || job.state() == v1::CANCELLED;
    return wanted(job) || over;
  });
  if (!wanted(job)) {
    ADD_FAILURE() << what << ": the job is " << EnumText(job.state()) << " (" << job.reason() << ")\nserver:\n"
                  << ReadAll(OutputOf(server_, "stderr"));
    for (const pid_t agent : agents_) ADD_FAILURE() << "agent:\n" << ReadAll(OutputOf(agent, "stderr"));
  }
  return job;
}

v1::Job ServiceTest::AwaitSuccess(const std::string& job) {
  return Await(job, "success", [](const v1::Job& now) { return now.state() == v1::SUCCEEDED; });
}

v1::Job ServiceTest::AwaitCommit(const std::string& job, int64_t step) {
  return Await(job, "the commit of step " + std::to_string(step),
               [&](const v1::Job& now) { return now.committed_step() >= step; });
}

std::vector<v1::Attempt> ServiceTest::Attempts(const std::string& job) {
  v1::ListAttemptsRequest request;
  request.set_parent(job);
  request.set_page_size(1000);
  v1::ListAttemptsResponse response;
  const grpc::Status status = Ask(*stub_, &v1::ControlPlane::Stub::ListAttempts, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return {response.attempts().begin(), response.attempts().end()};
}

std::vector<v1::Checkpoint> ServiceTest::Checkpoints(const std::string& job) {
  v1::ListCheckpointsRequest request;
  request.set_parent(job);
  request.set_page_size(1000);
  v1::ListCheckpointsResponse response;
  const grpc::Status status = Ask(*stub_, &v1::ControlPlane::Stub::ListCheckpoints, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return {response.checkpoints().begin(), response.checkpoints().end()};
}

std::vector<v1::Worker> ServiceTest::Workers() {
  v1::ListWorkersResponse response;
  Ask(*stub_, &v1::ControlPlane::Stub::ListWorkers, v1::ListWorkersRequest(), &response);
  return {response.workers().begin(), response.workers().end()};
}

std::map<int64_t, double> ServiceTest::Losses(const std::string& job) {
  v1::QueryMetricsRequest request;
  request.set_name(job);
  v1::QueryMetricsResponse response;
  const grpc::Status status = Ask(*stub_, &v1::ControlPlane::Stub::QueryMetrics, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  std::map<int64_t, double> losses;
  for (const v1::StepMetrics& point : response.points()) losses[point.step()] = point.loss();
  return losses;
}

void ServiceTest::ExpectUndisturbed(const std::string& job, const std::map<int64_t, double>& undisturbed, double tolerance) {
  const std::map<int64_t, double> losses = Losses(job);
  ASSERT_EQ(losses.size(), undisturbed.size());
  for (const auto& [step, loss] : undisturbed) {
    ASSERT_EQ(losses.count(step), 1) << "step " << step;
    EXPECT_NEAR(losses.at(step), loss, tolerance * std::abs(loss)) << "step " << step;
  }
}

void ServiceTest::ExpectCheckpointsAsListed(const std::string& job) {
  std::map<std::string, std::vector<int64_t>> listed;
  for (const v1::Checkpoint& checkpoint : Checkpoints(job)) {
    if (checkpoint.damage().empty()) listed[checkpoint.directory()].push_back(checkpoint.step());
  }
  ASSERT_FALSE(listed.empty());
  for (const auto& [directory, steps] : listed) {
    const auto there = checkpoint::ListCheckpoints(directory);
    ASSERT_TRUE(there.ok()) << there.status();
    EXPECT_EQ(*there, steps) << directory;
  }
}

void ServiceTest::ExpectSoundHistory(const std::string& job) {
  KillServer();
  const auto store = store::OpenStore(store::TestStoreUrl(Path("data")));
  ASSERT_TRUE(store.ok()) << store.status();
  const auto view = scenarios::ReadStore(**store, {});
  ASSERT_TRUE(view.ok()) << view.status();
  ASSERT_EQ(view->jobs.count(job), 1);
  const scenarios::JobHistory& history = view->jobs.at(job);
  const int64_t kept = history.job.spec().recipe().checkpoint().keep_latest_k();
  for (const auto& rules : {scenarios::CheckHistory(history), scenarios::CheckCommits(history),
                            scenarios::CheckCheckpoints(history, kept, Path("scratch"))}) {
    for (const std::string& rule : rules) ADD_FAILURE() << rule;
  }
}

}  // namespace legoai::service
