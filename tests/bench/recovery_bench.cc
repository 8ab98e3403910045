// From a submission to the job's first step, with an agent that waits for one; and from SIGKILL of a trainer, of the agent and of
// the server to the next step that the server reports. Agent and server are started again at once; leases and heartbeats are
// those of a service as it is installed.
#include <signal.h>

#include <chrono>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/endless_job.h"
#include "tests/service/service_processes.h"

namespace legoai::integration {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSlots = 2;

class Recovery {
 public:
  Recovery() : service_("legoai-recovery") {
    service_.StartServer({});
    if (!service_.AwaitServer()) throw std::runtime_error("the server did not answer\n" + service_.LastWords(2000));
    agent_ = service_.StartAgent("a", kSlots);
  }

  // Each job has a plan of its own made or found, and its processes started.
  void MeasureSubmission(Rows& rows, int rounds) {
    const std::string what = "submission";
    std::vector<double> seconds;
    for (int i = 0; i < rounds; ++i) {
      const auto begun = Clock::now();
      const EndlessJob job(service_, service_.stub(), kSlots);
      job.Await(service_.stub(), "the first step", [](const v1::Job& now) { return now.progress().step() > 0; });
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begun).count());
      job.Cancel(service_.stub());
      TellProgress(what, i + 1, rounds, seconds.back());
    }
    AddTimes(rows, what, seconds);
  }

  void Submit() { job_.emplace(service_, service_.stub(), kSlots); }

  void Measure(Rows& rows, const std::string& what, const std::function<void()>& kill, bool restarts, int rounds) {
    std::vector<double> seconds;
    for (int i = 0; i < rounds; ++i) {
      seconds.push_back(Round(what, kill, restarts));
      TellProgress(what, i + 1, rounds, seconds.back());
    }
    AddTimes(rows, what, seconds);
  }

  void KillTrainer() {
    const auto trainers = service_.Trainers();
    if (trainers.empty()) throw std::runtime_error("no trainer runs");
    kill(trainers.back(), SIGKILL);
  }
  void KillAgent() {
    service::ServiceProcesses::Kill(&agent_);
    agent_ = service_.StartAgent("a", kSlots);
  }
  void KillServer() {
    service_.KillServer();
    service_.StartServer({});
  }

 private:
  // Seconds from the signal to the next step. An attempt is running from its first reported step on.
  double Round(const std::string& what, const std::function<void()>& kill, bool restarts) {
    // That no attempt before this one has saved.
    const v1::Job before = job_->AwaitNewCheckpoint(service_.stub(), what + ", a new checkpoint before it");
    const auto begun = Clock::now();
    const double begun_seconds = UnixSeconds();
    kill();
    job_->Await(service_.stub(), "a step after the end of the " + what, [&](const v1::Job& job) {
      if (job.state() != v1::RUNNING) return false;
      return restarts ? job.attempts() > before.attempts()
                      : job_->HasStepAfter(service_.stub(), before.progress().step(), begun_seconds);
    });
    return std::chrono::duration<double>(Clock::now() - begun).count();
  }

  service::ServiceProcesses service_;
  pid_t agent_ = 0;
  std::optional<EndlessJob> job_;
};

void MeasureAll(Rows& rows, int rounds) {
  Recovery recovery;
  recovery.MeasureSubmission(rows, rounds);
  recovery.Submit();
  recovery.Measure(
      rows, "trainer", [&] { recovery.KillTrainer(); }, /*restarts=*/true, rounds);
  recovery.Measure(
      rows, "agent", [&] { recovery.KillAgent(); }, /*restarts=*/true, rounds);
  recovery.Measure(
      rows, "server", [&] { recovery.KillServer(); }, /*restarts=*/false, rounds);
}

}  // namespace
}  // namespace legoai::integration

int main(int argc, char** argv) {
  return legoai::integration::RoundsMain(argc, argv, /*rounds=*/20, legoai::integration::MeasureAll);
}
