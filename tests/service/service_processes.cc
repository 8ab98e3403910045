#include "tests/service/service_processes.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <system_error>

#include "core/model/hf_config.h"
#include "core/recipe/recipe.h"
#include "proto/status.h"
#include "server/store/testing/test_store.h"

namespace legoai::service {
namespace {

namespace fs = std::filesystem;

// Of its own also where one before it in this process is kept.
std::string NameOfThis(const std::string& name) {
  static int objects = 0;
  return name + "-" + std::to_string(getpid()) + "-" + std::to_string(++objects);
}

fs::path TemporaryFolder() {
  const char* const of_test = getenv("TEST_TMPDIR");
  return of_test != nullptr ? fs::path(of_test) : fs::temp_directory_path();
}

}  // namespace

int FreePort() {
  // Below the ports that the kernel gives to whoever asks for any: nobody takes it while the server is dead.
  std::random_device random;
  for (;;) {
    const int port = std::uniform_int_distribution<int>(20000, 31999)(random);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    close(fd);
    if (free) return port;
  }
}

std::unique_ptr<v1::ControlPlane::Stub> MakeStub(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  arguments.SetLoadBalancingPolicyName("round_robin");  // of several addresses
  return v1::ControlPlane::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

std::vector<std::string> ServerCommand(const std::string& address, const std::string& data, const ServerTimes& times,
                                       const std::string& programs) {
  return {programs + "server/main/legoai-server",
          "--listen=" + address,
          "--http=",
          store::TestStoreIsPostgres() ? "--store=" + store::TestStoreUrl(data) : "--data=" + data,
          "--sim=" + programs + "simulator/estimate/lego-sim",
          "--lease_ttl=" + times.lease_ttl,
          "--heartbeat_interval=" + times.heartbeat_interval,
          "--replan_grace=" + times.replan_grace,
          "--leader_lease=" + times.leader_lease};
}

std::vector<std::string> AgentCommand(const std::string& server, const std::string& name, int64_t slots,
                                      const std::string& runs, const std::string& programs) {
  return {programs + "worker/agent/legoai-agent",
          "--server=" + server,
          "--name=" + name,
          "--slots=" + std::to_string(slots),
          "--device=cpu",
          "--check=false",  // tests of agents have it
          "--runs=" + runs,
          "--data_roots=" + fs::path(runs).parent_path().string(),  // the tests' texts lie beside the runs
          "--trainer=" + programs + "worker/train/legoai-trainer"};
}

absl::StatusOr<v1::JobSpec> TinyJob(const std::string& folder, int64_t slots, int64_t steps, int64_t interval) {
  ASSIGN_OR_RETURN(auto model, model::ReadHfConfig(folder + "/config.json"));
  ASSIGN_OR_RETURN(auto recipe, parallel::LoadRecipe(folder + "/recipe.toml"));
  recipe.mutable_training()->clear_local_batch_size();
  recipe.mutable_training()->set_steps(steps);
  recipe.mutable_checkpoint()->set_interval(interval);
  recipe.mutable_comm()->set_train_timeout_seconds(60);
  v1::JobSpec spec;
  spec.set_display_name("tiny");
  *spec.mutable_model() = std::move(model);
  *spec.mutable_recipe() = std::move(recipe);
  spec.mutable_dataset()->set_uri(spec.recipe().training().dataset_path());
  spec.mutable_resources()->set_slots(slots);
  spec.mutable_resources()->set_min_slots(1);
  spec.mutable_planning()->set_budget_seconds(300);
  for (const char* constraint : {"training.mixed_precision_param=float32", "parallelism.tensor_parallel_degree=1",
                                 "parallelism.pipeline_parallel_degree=1", "activation_checkpoint.mode=none"}) {
    spec.mutable_planning()->add_constraints(constraint);
  }
  return spec;
}

ServiceProcesses::ServiceProcesses(const std::string& name) : ServiceProcesses(TemporaryFolder(), NameOfThis(name)) {}

ServiceProcesses::ServiceProcesses(const fs::path& under, const std::string& name)
    : processes_(under / name, name),
      address_("127.0.0.1:" + std::to_string(FreePort())),
      stub_(MakeStub(address_)) {}

ServiceProcesses::~ServiceProcesses() {
  KillServer();
  // Trainers and lego-sim die with their parents; an agent that started one a moment ago may be a parent of another.
  Within(60, [this] {
    const auto left = processes_.All();
    for (const cli::testing::Process& process : left) kill(process.pid, SIGKILL);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    return left.empty();
  });
  std::error_code busy;
  if (!keep_folder_) fs::remove_all(processes_.folder(), busy);
}

void ServiceProcesses::StartServer(const ServerTimes& times) {
  server_ = processes_.Start(ServerCommand(address_, Path("data"), times));
}

bool ServiceProcesses::AwaitServer() {
  const bool answered = Within(60, [this] {
    v1::ServerInfo info;
    return cli::testing::Ended(server_) ||
           Ask(*stub_, &v1::ControlPlane::Stub::GetServerInfo, v1::GetServerInfoRequest(), &info).ok();
  });
  return answered && !cli::testing::Ended(server_);
}

void ServiceProcesses::Kill(pid_t* process) {
  if (*process == 0) return;
  kill(*process, SIGKILL);
  waitpid(*process, nullptr, 0);
  *process = 0;
}

void ServiceProcesses::KillServer() { Kill(&server_); }

pid_t ServiceProcesses::StartServerAt(const std::string& address, const ServerTimes& times, const std::string& programs) const {
  return processes_.Start(ServerCommand(address, Path("data"), times, programs));
}

pid_t ServiceProcesses::StartAgent(const std::string& name, int slots, const std::string& servers,
                                   const std::string& programs) const {
  return processes_.Start(AgentCommand(servers.empty() ? address_ : servers, name, slots, Path("runs"), programs));
}

std::vector<pid_t> ServiceProcesses::Trainers() const {
  std::vector<pid_t> trainers;
  for (const cli::testing::Process& process : processes_.All()) {
    if (process.program == "legoai-trainer") trainers.push_back(process.pid);
  }
  return trainers;
}

absl::StatusOr<v1::JobSpec> ServiceProcesses::TinyJob(int slots, int steps, int interval) const {
  auto spec = service::TinyJob(processes_.folder(), slots, steps, interval);
  if (spec.ok()) spec->mutable_policy()->set_max_restarts(1000);
  return spec;
}

std::string ServiceProcesses::LastWords(size_t bytes_each) const {
  std::string words;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(processes_.folder(), error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("stderr.", 0) != 0) continue;
    const std::string said = cli::testing::ReadAll(entry.path());
    words += name + ":\n" + said.substr(said.size() - std::min(said.size(), bytes_each)) + "\n";
  }
  return words;
}

bool Within(double seconds, const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    usleep(5000);
  }
  return true;
}

}  // namespace legoai::service
