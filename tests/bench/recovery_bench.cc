// From SIGKILL of a trainer, of the agent and of the server to the next step that the server reports. Agent and server are
// started again at once; leases and heartbeats are those of a service as it is installed.
#include <signal.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/enum_text.h"
#include "tests/bench/bench_main.h"
#include "tests/service/service_processes.h"

ABSL_FLAG(bool, json, false, "rows as JSON");
ABSL_FLAG(int32_t, rounds, 20, "of each kind");

namespace legoai::integration {
namespace {

using Clock = std::chrono::steady_clock;
using Stub = v1::ControlPlane::Stub;

constexpr int kSlots = 2, kInterval = 20;
constexpr int kSteps = 10'000'000;        // never done
constexpr double kPatienceSeconds = 120;  // beyond it the benchmark ends with a message

class Recovery {
 public:
  Recovery() : service_("legoai-recovery") {
    service_.StartServer({});
    if (!service_.AwaitServer()) throw std::runtime_error("the server did not answer\n" + service_.LastWords(2000));
    agent_ = service_.StartAgent("a", kSlots);
    const auto spec = service_.TinyJob(kSlots, kSteps, kInterval);
    if (!spec.ok()) throw std::runtime_error(std::string(spec.status().message()));
    v1::CreateJobRequest request;
    request.set_parent("projects/default");
    *request.mutable_spec() = *spec;
    v1::Job job;
    const grpc::Status status = service::Ask(service_.stub(), &Stub::CreateJob, request, &job);
    if (!status.ok()) throw std::runtime_error("CreateJob: " + status.error_message());
    name_ = job.name();
  }

  void Measure(Rows& rows, const std::string& what, const std::function<void()>& kill, bool restarts, int rounds) {
    std::vector<double> seconds;
    for (int i = 0; i < rounds; ++i) seconds.push_back(Round(what, kill, restarts));
    const double p50 = Quantile(seconds, 0.5), p99 = Quantile(seconds, 0.99);
    rows.Add(
        absl::StrFormat("\"what\": \"%s\", \"rounds\": %d, \"p50_seconds\": %.3f, \"p99_seconds\": %.3f", what, rounds, p50, p99),
        absl::StrFormat("%-8s %6d %12.3f %12.3f", what, rounds, p50, p99));
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
    v1::Job before;
    // With a checkpoint to go on from that no attempt before this one has saved.
    const int64_t committed = Get().committed_step();
    Await(what + ", a new checkpoint before it", [&](const v1::Job& job) {
      before = job;
      return job.state() == v1::RUNNING && job.committed_step() > committed;
    });
    const auto begun = Clock::now();
    const double begun_seconds = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
    kill();
    Await("a step after the end of the " + what, [&](const v1::Job& job) {
      if (job.state() != v1::RUNNING) return false;
      return restarts ? job.attempts() > before.attempts() : HasStepAfter(before.progress().step(), begun_seconds);
    });
    return std::chrono::duration<double>(Clock::now() - begun).count();
  }

  // Whether a step was done after that time: some before it may be told only afterwards.
  bool HasStepAfter(int64_t step, double unix_seconds) {
    v1::QueryMetricsRequest request;
    request.set_name(name_);
    request.set_after_step(step);
    v1::QueryMetricsResponse response;
    service::Ask(service_.stub(), &Stub::QueryMetrics, request, &response);
    // The last one is always among them.
    return !response.points().empty() && response.points().rbegin()->time_unix_seconds() > unix_seconds;
  }

  // While the server is away: a job in no state.
  v1::Job Get() {
    v1::GetJobRequest request;
    request.set_name(name_);
    v1::Job job;
    service::Ask(service_.stub(), &Stub::GetJob, request, &job);
    return job;
  }

  void Await(const std::string& what, const std::function<bool(const v1::Job&)>& wanted) {
    v1::Job job;
    const bool came = service::Within(kPatienceSeconds, [&] {
      job = Get();
      return wanted(job);
    });
    if (came) return;
    throw std::runtime_error("waited in vain for " + what + ": the job is " + EnumText(job.state()) + ", " + job.reason() + "\n" +
                             service_.LastWords(2000));
  }

  service::ServiceProcesses service_;
  pid_t agent_ = 0;
  std::string name_;
};

void MeasureAll(Rows& rows, int rounds) {
  if (rounds < 1) throw std::runtime_error("--rounds must be at least 1");
  rows.Note(absl::StrFormat("%-8s %6s %12s %12s", "what", "rounds", "p50_seconds", "p99_seconds"));
  Recovery recovery;
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
  using namespace legoai::integration;
  absl::ParseCommandLine(argc, argv);
  return AddRows(argv[0], absl::GetFlag(FLAGS_json), [](Rows& rows) { MeasureAll(rows, absl::GetFlag(FLAGS_rounds)); });
}
