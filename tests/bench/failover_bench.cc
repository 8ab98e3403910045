// From SIGKILL, or SIGSTOP, of the server that leads, of two over one PostgreSQL, to the moment at which the other says that it
// leads, and to the next step that it reports, of trainers that went on meanwhile. The leader's lease, leases and heartbeats are
// those of a service as it is installed. When the signal comes in the second of the leader's renewal is drawn; the server that it
// hit is back, and follows, before the next round.
#include <signal.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/endless_job.h"
#include "tests/service/service_processes.h"

namespace legoai::integration {
namespace {

using Clock = std::chrono::steady_clock;
using Stub = v1::ControlPlane::Stub;

constexpr int kSlots = 2;
constexpr double kPatienceSeconds = 120;  // beyond it the benchmark ends with a message

struct Server {
  std::string address;
  std::unique_ptr<Stub> stub;
  pid_t process = 0;
};

class Failover {
 public:
  Failover() : service_("legoai-failover") {
    servers_[0].address = service_.address();
    servers_[1].address = "127.0.0.1:" + std::to_string(service::FreePort());
    for (Server& server : servers_) {
      server.stub = service::MakeStub(server.address);
      server.process = service_.StartServerAt(server.address, {});
    }
    Await("a server that leads", [this] { return Info(servers_[0]).leads() || Info(servers_[1]).leads(); });
    agent_ = service_.StartAgent("a", kSlots, servers_[0].address + "," + servers_[1].address);
    job_.emplace(service_, *servers_[Leader()].stub, kSlots);
  }

  void Measure(Rows& rows, const std::string& what, int signal, int rounds) {
    std::vector<double> leads, step;
    for (int i = 0; i < rounds; ++i) {
      const auto [until_leads, until_step] = Round(what, signal);
      leads.push_back(until_leads);
      step.push_back(until_step);
      TellProgress(what, i + 1, rounds, until_step);
    }
    AddTimes(rows, what + ": leads", leads);
    AddTimes(rows, what + ": next step", step);
  }

 private:
  struct Times {
    double leads = 0, step = 0;
  };

  Times Round(const std::string& what, int signal) {
    const size_t leads = Leader();
    Server& leader = servers_[leads];
    const Server& other = servers_[1 - leads];
    const v1::Job before = job_->AwaitNewCheckpoint(*other.stub, what + ", a new checkpoint before it");
    absl::SleepFor(absl::Seconds(std::uniform_real_distribution<double>(0, 1)(random_)));
    if (!Info(leader).leads()) throw std::runtime_error("the server that leads has changed by itself");
    const auto begun = Clock::now();
    const double begun_seconds = UnixSeconds();
    const auto since = [begun] { return std::chrono::duration<double>(Clock::now() - begun).count(); };
    if (kill(leader.process, signal) != 0) throw std::runtime_error("the server that leads has ended");
    Times times;
    Await("another that leads after it was " + what, [&] { return Info(other).leads(); });
    times.leads = since();
    const v1::Job after = job_->Await(*other.stub, "a step after the leader was " + what, [&](const v1::Job& job) {
      return job.state() == v1::RUNNING && job_->HasStepAfter(*other.stub, before.progress().step(), begun_seconds);
    });
    times.step = since();
    if (after.attempts() != before.attempts()) throw std::runtime_error("the attempt did not outlive a leader that was " + what);
    Revive(leader, signal, other);
    return times;
  }

  void Revive(Server& server, int signal, const Server& leader) {
    if (signal == SIGSTOP) {
      kill(server.process, SIGCONT);
    } else {
      service::ServiceProcesses::Kill(&server.process);
      server.process = service_.StartServerAt(server.address, {});
    }
    Await("a server that follows again", [&] {
      const v1::ServerInfo info = Info(server);
      return !info.leads() && info.leader().address() == leader.address;
    });
  }

  static v1::ServerInfo Info(const Server& server) {
    v1::ServerInfo info;
    service::Ask(*server.stub, &Stub::GetServerInfo, v1::GetServerInfoRequest(), &info, 1);
    return info;
  }
  size_t Leader() const { return Info(servers_[0]).leads() ? 0 : 1; }

  void Await(const std::string& what, const std::function<bool()>& wanted) const {
    if (!service::Within(kPatienceSeconds, wanted))
      throw std::runtime_error("waited in vain for " + what + "\n" + service_.LastWords(2000));
  }

  std::mt19937 random_{1};
  service::ServiceProcesses service_;
  std::array<Server, 2> servers_;
  pid_t agent_ = 0;
  std::optional<EndlessJob> job_;
};

void MeasureAll(Rows& rows, int rounds) {
  setenv("LEGOAI_TEST_STORE", "postgresql", 1);
  Failover failover;
  failover.Measure(rows, "killed", SIGKILL, rounds);
  failover.Measure(rows, "stopped", SIGSTOP, rounds);
}

}  // namespace
}  // namespace legoai::integration

int main(int argc, char** argv) {
  return legoai::integration::RoundsMain(argc, argv, /*rounds=*/50, legoai::integration::MeasureAll);
}
