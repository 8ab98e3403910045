#include "worker/agent/testing/agent_fixture.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/process/child_process.h"

namespace legoai::agent::testing {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(3);
constexpr absl::Duration kLook = absl::Milliseconds(10);

// A process that is no zombie.
bool Runs(pid_t pid) {
  const char state = launch::ProcessState(pid);
  return state != '?' && state != 'Z' && state != 'X';
}

}  // namespace

AgentTest::AgentTest(const std::string& trainer) : TinyRun(std::filesystem::absolute(trainer).string()) {
  WriteText(std::string(3000, 'a') + std::string(3000, 'b') + std::string(3000, 'c'));
  recipe().mutable_training()->set_global_batch_size(4);
  recipe().mutable_training()->set_steps(6);
  recipe().mutable_training()->set_mixed_precision_param(v1::FLOAT32);
  recipe().mutable_optimizer()->set_lr(5e-3);
  recipe().mutable_lr_scheduler()->set_warmup_steps(2);
  recipe().mutable_checkpoint()->set_enable_checkpoint(true);
  recipe().mutable_checkpoint()->set_interval(2);
  recipe().mutable_metrics()->set_log_freq(1);
}

AgentTest::~AgentTest() {
  if (agent_ > 0) {
    kill(agent_, SIGKILL);
    waitpid(agent_, nullptr, 0);
  }
  EXPECT_TRUE(AwaitNoTrainers());
}

void AgentTest::StartAgent(const std::vector<std::string>& further_arguments) {
  launch::ChildSpec spec;
  spec.arguments = {std::filesystem::absolute("worker/agent/legoai-agent").string(),
                    "--server=" + server_.address(),
                    "--name=tester",
                    "--slots=2",
                    "--device=cpu",
                    "--check=false",
                    "--runs=" + folder() + "/runs",
                    "--data_roots=" + folder(),
                    "--trainer=" + request_.trainer};
  spec.arguments.insert(spec.arguments.end(), further_arguments.begin(), further_arguments.end());
  spec.log_path = LogPath();
  const auto pid = launch::SpawnChild(spec);
  ASSERT_TRUE(pid.ok()) << pid.status();
  agent_ = *pid;
}

std::optional<int> AgentTest::AwaitExit() {
  for (absl::Time until = absl::Now() + kPatience; absl::Now() < until; absl::SleepFor(kLook)) {
    int status = 0;
    if (waitpid(agent_, &status, WNOHANG) != agent_) continue;
    agent_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  return std::nullopt;
}

bool AgentTest::AwaitConnection() {
  return server_.Await([](const ScriptedServer::State& state) { return state.connections > 0; });
}

std::vector<int64_t> AgentTest::Steps(const std::vector<v1::StepMetrics>& metrics) {
  std::vector<int64_t> steps;
  for (const v1::StepMetrics& entry : metrics) steps.push_back(entry.step());
  return steps;
}

bool AgentTest::Begin(const v1::ToAgent& attempt) {
  StartAgent();
  if (!AwaitConnection()) return false;
  server_.Send(attempt);
  return true;
}

bool AgentTest::AwaitStep(int64_t step, int64_t epoch) {
  return server_.Await([&](const ScriptedServer::State& state) {
    const auto metrics = state.Metrics(epoch);
    return !metrics.empty() && metrics.back().step() >= step;
  });
}

bool AgentTest::AwaitEnd(int64_t epoch) {
  return server_.Await([&](const ScriptedServer::State& state) { return state.Ended(epoch).has_value(); });
}

v1::ToAgent AgentTest::StopOf(int64_t epoch, const std::string& job, bool save, double grace_seconds) {
  v1::ToAgent message;
  *message.mutable_stop()->mutable_lease() = LeaseOf(epoch, job);
  message.mutable_stop()->set_save(save);
  message.mutable_stop()->set_grace_seconds(grace_seconds);
  message.mutable_stop()->set_reason("the test wants it");
  return message;
}

v1::LeaseId AgentTest::LeaseOf(int64_t epoch, const std::string& job) {
  v1::LeaseId lease;
  lease.set_job("projects/default/jobs/" + job);
  lease.set_epoch(epoch);
  return lease;
}

v1::ToAgent AgentTest::Attempt(int64_t epoch, int64_t world, const std::string& job) const {
  v1::ToAgent message;
  v1::StartAttempt& start = *message.mutable_start();
  *start.mutable_lease() = LeaseOf(epoch, job);
  start.set_attempt(epoch);
  *start.mutable_model() = request_.model;
  *start.mutable_recipe() = request_.recipe;
  start.mutable_dataset()->set_uri(folder() + "/text.txt");
  start.set_world_size(world);
  start.mutable_placement()->set_worker("workers/tester");
  start.mutable_placement()->set_slots(world);
  return message;
}

v1::ToAgent AgentTest::AttemptOfMember(int64_t epoch, int port) const {
  v1::ToAgent message = Attempt(epoch, 2);
  v1::StartAttempt& start = *message.mutable_start();
  start.mutable_placement()->set_slots(1);
  start.mutable_placement()->set_first_rank(1);
  start.mutable_gang()->set_workers(2);
  start.mutable_gang()->set_index(1);
  start.mutable_gang()->set_address("127.0.0.1");
  start.mutable_gang()->set_port(port);
  start.mutable_gang()->set_first_worker("workers/first");
  return message;
}

std::string AgentTest::EpochFolder(int64_t epoch, const std::string& job) const {
  const std::string runs = std::filesystem::absolute(folder()).lexically_normal().string() + "/runs/";
  return absl::StrCat(runs, job, "/epoch-", epoch);
}

std::vector<nlohmann::json> AgentTest::Lines() const {
  std::ifstream file(LogPath());
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) {
    const auto parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_object()) lines.push_back(parsed);
  }
  return lines;
}

bool AgentTest::Logged(const std::string& text) const {
  const auto lines = Lines();
  return std::any_of(lines.begin(), lines.end(), [&](const auto& line) { return absl::StrContains(line.dump(), text); });
}

std::map<std::pair<int64_t, int64_t>, pid_t> AgentTest::Trainers() const {
  std::map<std::pair<int64_t, int64_t>, pid_t> trainers;
  for (const auto& line : Lines()) {
    const std::vector<std::string> words = absl::StrSplit(line["message"].get<std::string>(), ' ');
    int pid = 0;
    if (words.size() == 4 && words[0] == "process" && words[3] == "started" && absl::SimpleAtoi(words[1], &pid))
      trainers[{line["epoch"], line["rank"]}] = pid;
  }
  return trainers;
}

bool AgentTest::AwaitNoTrainers() const {
  const auto trainers = Trainers();
  const auto any = [&] {
    return std::any_of(trainers.begin(), trainers.end(), [](const auto& trainer) { return Runs(trainer.second); });
  };
  for (absl::Time until = absl::Now() + kPatience; absl::Now() < until; absl::SleepFor(kLook)) {
    if (!any()) return true;
  }
  return false;
}

}  // namespace legoai::agent::testing
