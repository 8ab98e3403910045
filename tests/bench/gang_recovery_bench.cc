// A gang trains on three hosts, and one of them, drawn at random, is killed, stopped, or cut off from the network: from that
// moment to the next step that the server reports, of the attempt after it, on the two hosts that are left and a spare one. The
// host is back, idle, before the gang's next round. Leases, heartbeats and limits on silence are those of a service as it is
// installed.
//
// A host that is stopped or cut off is silent for 15 s before anybody acts, and nobody computes meanwhile: these rounds are done
// by several gangs at a time (--gangs), each on hosts of its own. Needs root (host_network.h).
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/endless_job.h"
#include "tests/bench/host_network.h"
#include "tests/service/service_processes.h"

ABSL_FLAG(int32_t, gangs, 4, "that are stopped and cut off at a time");
ABSL_FLAG(std::vector<std::string>, kinds, std::vector<std::string>({"killed", "stopped", "cut_off"}),
          "what becomes of a host, with commas between");

namespace legoai::integration {
namespace {

using Clock = std::chrono::steady_clock;
using Stub = v1::ControlPlane::Stub;

constexpr int kMembers = 3;
constexpr int kHosts = kMembers + 1;
constexpr int kMostGangs = 8;
constexpr int64_t kMostAttempts = 1000;  // of a gang: a page of them
constexpr double kPatienceSeconds = 120;
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(10);

struct Host {
  std::string name;
  pid_t agent = 0;
};

// How a host is lost, and what brings it back.
struct Kind {
  std::string name;
  std::function<void(Host&)> lose, bring_back;
  bool silent = false;  // for seconds nobody learns of it
};

class Service {
 public:
  explicit Service(int gangs) : processes_("legoai-gang-recovery"), address_(absl::StrCat(HostNetwork::address(), ":7420")) {
    for (int gang = 0; gang < gangs; ++gang) {
      for (int host = 0; host < kHosts; ++host) network_.Add(NameOf(gang, host));
    }
    GiveLayers();
    stub_ = service::MakeStub(address_);
    std::vector<std::string> command = service::ServerCommand(address_, processes_.Path("data"));
    command.push_back("--insecure");
    processes_.Start(std::move(command));
    v1::ServerInfo info;
    const grpc::Status status = service::Ask(*stub_, &Stub::GetServerInfo, v1::GetServerInfoRequest(), &info, kPatienceSeconds);
    if (!status.ok()) throw std::runtime_error("the server does not answer\n" + processes_.LastWords(2000));
  }

  static std::string NameOf(int gang, int host) { return absl::StrCat("g", gang, "-", host); }

  void StartAgent(Host& host, const std::string& pool) const {
    std::vector<std::string> command = service::AgentCommand(address_, host.name, 1, processes_.Path("runs"));
    command.push_back("--pool=" + pool);
    host.agent = processes_.Start(HostNetwork::On(host.name, std::move(command)));
  }

  v1::Worker Worker(const Host& host) const {
    v1::ListWorkersResponse response;
    service::Ask(*stub_, &Stub::ListWorkers, v1::ListWorkersRequest(), &response);
    for (const v1::Worker& worker : response.workers()) {
      if (worker.name() == "workers/" + host.name) return worker;
    }
    return {};
  }

  void Await(const std::string& what, const std::function<bool()>& wanted) const {
    const bool came = service::Within(kPatienceSeconds, [&] {
      absl::SleepFor(kBetweenLooks);
      return wanted();
    });
    if (!came) throw std::runtime_error("waited in vain for " + what + "\n" + processes_.LastWords(2000));
  }

  Stub& stub() const { return *stub_; }
  const service::ServiceProcesses& processes() const { return processes_; }

 private:
  // Of the tiny model, for as many stages as a gang has hosts.
  void GiveLayers() const {
    const std::string file = processes_.Path("config.json"), two = "\"num_hidden_layers\": 2";
    std::string config = cli::testing::ReadAll(file);
    const size_t at = config.find(two);
    if (at == std::string::npos) throw std::runtime_error(file + " does not have two layers");
    cli::testing::Write(file, config.replace(at, two.size(), absl::StrCat("\"num_hidden_layers\": ", 2 * kMembers)));
  }

  HostNetwork network_;  // before anything has threads
  service::ServiceProcesses processes_;
  const std::string address_;
  std::unique_ptr<Stub> stub_;
};

// Used by one thread at a time.
class Gang {
 public:
  Gang(const Service& service, int number)
      : service_(service), pool_(absl::StrCat("gang-", number)), random_(static_cast<uint32_t>(number + 1)) {
    for (int i = 0; i < kHosts; ++i) {
      hosts_.push_back({Service::NameOf(number, i)});
      service_.StartAgent(hosts_.back(), pool_);
    }
    for (const Host& host : hosts_) AwaitIdle(host);
    job_.emplace(service_.processes(), service_.stub(), kMembers, [this](v1::JobSpec& spec) { Arrange(spec); });
  }

  // Seconds from the loss to the next step. An attempt is running from its first reported step on.
  double Round(const Kind& kind) {
    const v1::Job before = job_->AwaitNewCheckpoint(service_.stub(), kind.name + ", a new checkpoint before it");
    absl::SleepFor(absl::Seconds(std::uniform_real_distribution<double>(0, 1)(random_)));
    Host& host = Member();
    const auto begun = Clock::now();
    kind.lose(host);
    const std::string what = absl::StrCat("a step after ", host.name, " was ", kind.name);
    job_->Await(service_.stub(), what, [&](const v1::Job& job) {
      absl::SleepFor(kBetweenLooks);
      return job.state() == v1::RUNNING && job.attempts() > before.attempts();
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    kind.bring_back(host);
    if (host.agent == 0) service_.StartAgent(host, pool_);
    AwaitIdle(host);
    return seconds;
  }

 private:
  // A stage for each host. Nothing is planned for fewer.
  void Arrange(v1::JobSpec& spec) const {
    spec.mutable_resources()->set_min_slots(kMembers);
    spec.mutable_resources()->set_pool(pool_);
    spec.mutable_planning()->clear_constraints();
    for (const std::string& constraint :
         {std::string("training.mixed_precision_param=float32"), std::string("activation_checkpoint.mode=none"),
          absl::StrCat("parallelism.pipeline_parallel_degree=", kMembers)}) {
      spec.mutable_planning()->add_constraints(constraint);
    }
  }

  // One of those that train, whichever rank it has: the first coordinates.
  Host& Member() {
    v1::ListAttemptsRequest request;
    request.set_parent(job_->name());
    request.set_page_size(kMostAttempts);
    v1::ListAttemptsResponse response;
    service::Ask(service_.stub(), &Stub::ListAttempts, request, &response);
    if (response.attempts().empty()) throw std::runtime_error("the gang has no attempt");
    if (!response.next_page_token().empty())
      throw std::runtime_error(absl::StrCat("a gang has more than ", kMostAttempts, " attempts: ask for fewer --rounds"));
    const v1::Attempt& last = *response.attempts().rbegin();
    if (last.placements_size() != kMembers) throw std::runtime_error("the gang trains on other than three hosts");
    const int drawn = std::uniform_int_distribution<int>(0, kMembers - 1)(random_);
    for (Host& host : hosts_) {
      if ("workers/" + host.name == last.placements(drawn).worker()) return host;
    }
    throw std::runtime_error("the gang trains on " + last.placements(drawn).worker());
  }

  // Connected, and what it trained has ended.
  void AwaitIdle(const Host& host) const {
    service_.Await(host.name + ", idle", [&] {
      if (HostNetwork::Processes(host.name).size() != 1) return false;
      const v1::Worker worker = service_.Worker(host);
      return worker.connected() && worker.state() == v1::READY;
    });
  }

  const Service& service_;
  const std::string pool_;
  std::mt19937 random_;
  std::vector<Host> hosts_;
  std::optional<EndlessJob> job_;
};

std::vector<Kind> AllKinds() {
  const auto kill_all = [](Host& host) {
    HostNetwork::Signal(host.name, SIGKILL);
    service::ServiceProcesses::Kill(&host.agent);
  };
  return {{"killed", kill_all, [](Host&) {}},
          {"stopped", [](Host& host) { HostNetwork::Signal(host.name, SIGSTOP); },
           [](Host& host) { HostNetwork::Signal(host.name, SIGCONT); }, /*silent=*/true},
          {"cut_off", [](Host& host) { HostNetwork::CutOff(host.name); }, [](Host& host) { HostNetwork::Join(host.name); },
           /*silent=*/true}};
}

std::vector<Kind> AskedKinds() {
  std::vector<Kind> asked;
  for (const std::string& name : absl::GetFlag(FLAGS_kinds)) {
    const size_t before = asked.size();
    for (Kind& kind : AllKinds()) {
      if (kind.name == name) asked.push_back(std::move(kind));
    }
    if (asked.size() == before) throw std::runtime_error("--kinds = " + name + ": must be killed, stopped or cut_off");
  }
  return asked;
}

// The gangs take rounds until all are done. Rethrows what ended one of them, after the others have ended theirs.
std::vector<double> Measure(const Kind& kind, std::deque<Gang>& gangs, size_t at_once, int rounds) {
  std::atomic<int> begun = 0, done = 0;
  std::vector<double> seconds(rounds);
  std::vector<std::future<void>> running;
  for (size_t i = 0; i < at_once; ++i) {
    running.push_back(std::async(std::launch::async, [&, i] {
      try {
        for (int round = begun++; round < rounds; round = begun++) {
          seconds[round] = gangs[i].Round(kind);
          TellProgress(kind.name, ++done, rounds, seconds[round]);
        }
      } catch (...) {
        begun = rounds;
        throw;
      }
    }));
  }
  for (const std::future<void>& one : running) one.wait();
  for (std::future<void>& one : running) one.get();
  return seconds;
}

void MeasureAll(Rows& rows, int rounds) {
  const int most = absl::GetFlag(FLAGS_gangs);
  if (most < 1 || most > kMostGangs) throw std::runtime_error(absl::StrCat("--gangs must be 1 to ", kMostGangs));
  const std::vector<Kind> kinds = AskedKinds();
  Service service(most);
  std::deque<Gang> gangs;
  for (const Kind& kind : kinds) {
    // Others would only take the processors of one whose rounds have no silence.
    const size_t at_once = kind.silent ? static_cast<size_t>(std::min(most, rounds)) : 1;
    while (gangs.size() < at_once) gangs.emplace_back(service, static_cast<int>(gangs.size()));
    AddTimes(rows, kind.name, Measure(kind, gangs, at_once, rounds));
  }
}

}  // namespace
}  // namespace legoai::integration

int main(int argc, char** argv) {
  return legoai::integration::RoundsMain(argc, argv, /*rounds=*/50, legoai::integration::MeasureAll);
}
