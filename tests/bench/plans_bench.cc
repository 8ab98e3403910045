// Planning that keeps up: jobs of a few kinds are submitted at once to the real server, which plans each kind once with lego-sim
// and gives its plan to all others; then as many again, of which every plan is known. A worker that trains nothing is a stream of
// this process. With --bound=both other kinds are planned in turns, with and without the lower bound of the step time that leaves
// recipes out, and the plans must have the same winners.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/process/build_version.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/worker_service.grpc.pb.h"
#include "tests/bench/bench_main.h"
#include "tests/service/service_processes.h"

ABSL_FLAG(bool, json, false, "rows as JSON");
ABSL_FLAG(int32_t, jobs, 1000, "submitted at once");
ABSL_FLAG(int32_t, kinds, 10, "of jobs, each with a plan of its own");
ABSL_FLAG(std::string, bound, "with",
          "whether recipes are left out that a lower bound of their step time proves slower: with, without, both in turns");
ABSL_FLAG(std::string, model, "", "of the catalog, planned for eight H100; empty: a tiny one, planned for two");

namespace legoai::integration {
namespace {

using Clock = std::chrono::steady_clock;
using Stub = v1::ControlPlane::Stub;

constexpr int kUsers = 16;
constexpr double kPatienceSeconds = 1800;
// Nothing is left out before as many recipes fit as are shown, which are fewer than these in any plan (planner/plan.h).
constexpr int64_t kShowAll = 1000;

double Since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

// Takes what it is given and says that it is alive, and nothing else.
class IdleWorker {
 public:
  IdleWorker(const std::string& address, int64_t slots)
      : stub_(v1::WorkerService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
        stream_(stub_->Connect(&context_)) {
    v1::FromAgent hello;
    v1::Worker& worker = *hello.mutable_hello()->mutable_worker();
    worker.set_name("workers/bench"), worker.set_host("elsewhere"), worker.set_pool("bench"), worker.set_instance("bench");
    worker.set_slots(slots), worker.set_runs("/runs");
    worker.set_build_version(std::string(launch::BuildVersion()));
    *worker.mutable_device() = *sim::FindDevice("h100-sxm-80");
    stream_->Write(hello);
    reads_ = std::thread([this] { Read(); });
    beats_ = std::thread([this] { Beat(); });
  }
  ~IdleWorker() {
    over_ = true;
    beats_.join();
    context_.TryCancel();
    reads_.join();
  }

 private:
  void Read() {
    v1::ToAgent message;
    while (stream_->Read(&message)) {
      if (!message.has_start()) continue;
      const MutexLock lock(mutex_);
      leases_.push_back(message.start().lease());
    }
  }
  void Beat() {
    for (int64_t i = 0; !over_; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (i % 10 > 0) continue;
      v1::FromAgent beat;
      beat.mutable_heartbeat()->set_sequence(i + 1);
      {
        const MutexLock lock(mutex_);
        for (const v1::LeaseId& lease : leases_) *beat.mutable_heartbeat()->add_leases() = lease;
      }
      if (!stream_->Write(beat)) return;
    }
  }

  grpc::ClientContext context_;
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::FromAgent, v1::ToAgent>> stream_;
  std::atomic<bool> over_{false};
  Mutex mutex_;
  std::vector<v1::LeaseId> leases_ ABSL_GUARDED_BY(mutex_);
  std::thread reads_, beats_;
};

class Bench {
 public:
  explicit Bench(Rows& rows) : rows_(rows), service_("legoai-plans-bench") {
    const std::string model = absl::GetFlag(FLAGS_model);
    auto spec = service_.TinyJob(model.empty() ? 2 : 8, 100, 100);
    if (!spec.ok()) throw std::runtime_error(spec.status().ToString());
    spec_ = *std::move(spec);
    spec_.mutable_resources()->set_pool("bench");
    spec_.mutable_planning()->clear_constraints();
    if (!model.empty()) {
      auto known = model::ResolveModel(model);
      if (!known.ok()) throw std::runtime_error(known.status().ToString());
      *spec_.mutable_model() = *std::move(known);
      spec_.mutable_recipe()->mutable_model()->set_name(model);
      spec_.mutable_recipe()->mutable_training()->set_global_batch_size(64);
      spec_.mutable_recipe()->mutable_training()->set_seq_len(8192);
    }
    service_.StartServer({});
    if (!service_.AwaitServer()) throw std::runtime_error("the server did not answer\n" + service_.LastWords(2000));
    worker_ = std::make_unique<IdleWorker>(service_.address(), spec_.resources().slots());
  }

  void Run() {
    const std::string bound = absl::GetFlag(FLAGS_bound);
    if (bound != "with" && bound != "without" && bound != "both")
      throw std::runtime_error("--bound must be with, without or both");
    // As many before the middle as after it.
    const std::vector<bool> turns =
        bound == "both" ? std::vector<bool>{true, false, false, true} : std::vector<bool>{bound == "with"};
    for (const bool bounded : turns) {
      if (bounded) spec_.mutable_planning()->clear_top();
      if (!bounded) spec_.mutable_planning()->set_top(kShowAll);
      ++wave_;
      Measure(absl::StrCat("each kind is planned once, ", bounded ? "with" : "without", " the bound"));
    }
    Measure("every plan is known");
  }

 private:
  struct Plans {
    int64_t simulated = 0;
    double best_seconds = 0;
  };

  void Measure(const std::string& wave) {
    const auto begun = Clock::now();
    Submit();
    const double submitted = Since(begun);
    if (!service::Within(kPatienceSeconds, [this] { return Unplanned() == 0; }))
      throw std::runtime_error(absl::StrCat(Unplanned(), " jobs are not planned\n", service_.LastWords(2000)));
    const double seconds = Since(begun), jobs = absl::GetFlag(FLAGS_jobs);
    const Plans plans = LookAtPlans();
    if (best_seconds_ != 0 && best_seconds_ != plans.best_seconds)
      throw std::runtime_error(absl::StrCat("another recipe has won: ", plans.best_seconds, " s a step, not ", best_seconds_));
    best_seconds_ = plans.best_seconds;
    rows_.Add(absl::StrFormat("\"wave\": \"%s\", \"jobs\": %.0f, \"kinds\": %d, \"simulated\": %d, "
                              "\"submitted_seconds\": %.3f, \"planned_seconds\": %.3f, \"plans_per_second\": %.1f",
                              wave, jobs, absl::GetFlag(FLAGS_kinds), plans.simulated, submitted, seconds, jobs / seconds),
              absl::StrFormat("%.0f jobs of %d kinds, %s: %d recipes simulated, submitted after %.1f s, all planned after "
                              "%.1f s, %.1f a second",
                              jobs, absl::GetFlag(FLAGS_kinds), wave, plans.simulated, submitted, seconds, jobs / seconds));
  }

  // Of the kinds that were submitted last, which differ in nothing that a step takes. The newest jobs come first, and users
  // submit side by side: some more than there are kinds, but none of the wave before.
  Plans LookAtPlans() {
    v1::ListJobsRequest request;
    request.set_parent("projects/default");
    request.set_page_size(std::min({1000, absl::GetFlag(FLAGS_jobs), absl::GetFlag(FLAGS_kinds) + 4 * kUsers}));
    v1::ListJobsResponse response;
    Check(service::Ask(service_.stub(), &Stub::ListJobs, request, &response, 60), "ListJobs");
    std::map<int64_t, Plans> of_kinds;  // by steps
    for (const v1::Job& one : response.jobs()) {
      v1::GetJobRequest get;
      get.set_name(one.name());
      v1::Job job;
      Check(service::Ask(service_.stub(), &Stub::GetJob, get, &job, 60), "GetJob");
      v1::GetPlanRequest plan;
      plan.set_name(one.name() + "/plan");
      v1::PlanResult result;
      Check(service::Ask(service_.stub(), &Stub::GetPlan, plan, &result, 60), "GetPlan");
      if (result.ranked().empty()) throw std::runtime_error("no recipe fits");
      of_kinds[job.spec().recipe().training().steps()] = {result.captured() + result.failed(),
                                                          result.ranked(0).step_time_seconds()};
    }
    Plans all;
    for (const auto& [steps, plans] : of_kinds) {
      all.simulated += plans.simulated;
      if (all.best_seconds != 0 && all.best_seconds != plans.best_seconds)
        throw std::runtime_error("two kinds have plans of other times");
      all.best_seconds = plans.best_seconds;
    }
    return all;
  }

  static void Check(const grpc::Status& status, const std::string& call) {
    if (!status.ok()) throw std::runtime_error(absl::StrCat(call, ": ", status.error_message()));
  }

  void Submit() {
    std::atomic<int> next{0};
    std::atomic<bool> failed{false};
    std::vector<std::thread> users;
    for (int user = 0; user < kUsers; ++user) {
      users.emplace_back([&] {
        for (int i = next++; i < absl::GetFlag(FLAGS_jobs) && !failed; i = next++) {
          v1::CreateJobRequest request;
          request.set_parent("projects/default");
          *request.mutable_spec() = spec_;
          request.mutable_spec()->mutable_recipe()->mutable_training()->set_steps(
              100 + wave_ * absl::GetFlag(FLAGS_kinds) + i % absl::GetFlag(FLAGS_kinds));
          v1::Job job;
          if (!service::Ask(service_.stub(), &v1::ControlPlane::Stub::CreateJob, request, &job, 60).ok()) failed = true;
        }
      });
    }
    for (std::thread& user : users) user.join();
    if (failed) throw std::runtime_error("a submission was refused\n" + service_.LastWords(2000));
  }

  int64_t Unplanned() {
    int64_t jobs = 0;
    for (const char* const state : {"submitted", "planning", "failed"}) {
      v1::ListJobsRequest request;
      request.set_parent("projects/default");
      request.set_page_size(1);
      request.set_filter(absl::StrCat("state = ", state));
      v1::ListJobsResponse response;
      const grpc::Status status = service::Ask(service_.stub(), &v1::ControlPlane::Stub::ListJobs, request, &response, 60);
      if (!status.ok()) throw std::runtime_error("ListJobs: " + status.error_message());
      if (state == std::string("failed") && response.total_size() > 0)
        throw std::runtime_error("a job has failed: " + response.jobs(0).reason());
      jobs += response.total_size();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return jobs;
  }

  Rows& rows_;
  service::ServiceProcesses service_;
  v1::JobSpec spec_;
  std::unique_ptr<IdleWorker> worker_;
  int64_t wave_ = 0;          // of new kinds
  double best_seconds_ = 0;  // of the winners' steps; 0: none is known
};

}  // namespace
}  // namespace legoai::integration

int main(int argc, char** argv) {
  using namespace legoai::integration;
  absl::ParseCommandLine(argc, argv);
  return AddRows(argv[0], absl::GetFlag(FLAGS_json), [](Rows& rows) { Bench(rows).Run(); });
}
