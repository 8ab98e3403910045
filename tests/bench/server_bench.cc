// The server under load: agents with a running job each that send a heartbeat and telemetry every second, users who submit, list
// and watch, a store that holds many jobs. Agents are streams of this process; the server is the real one.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "core/hardware/catalog.h"
#include "core/process/build_version.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/worker_service.grpc.pb.h"
#include "server/store/open_store.h"
#include "server/store/testing/postgres_server.h"
#include "server/store/testing/test_store.h"
#include "server/store/ulid.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/job_watcher.h"
#include "tests/service/service_processes.h"

ABSL_FLAG(bool, json, false, "rows as JSON");
ABSL_FLAG(int32_t, agents, 1000, "simulated agents, each with a job that runs");
ABSL_FLAG(int32_t, gang, 1, "agents of each job that runs");
ABSL_FLAG(int32_t, jobs, 100'000, "finished jobs in the store");
ABSL_FLAG(int32_t, seconds, 20, "of load");
ABSL_FLAG(int32_t, watchers, 0, "streams of WatchJob, over the jobs that run by turns");
ABSL_FLAG(std::string, store, "sqlite", "the server's store: sqlite, or postgresql, a database of its own on this machine");

namespace legoai::integration {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

void Check(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

// One agent's stream: what it sends waits in a queue, as gRPC takes one message at a time.
class SimulatedAgent : public grpc::ClientBidiReactor<v1::FromAgent, v1::ToAgent> {
 public:
  // `is_first`: of the job's agents it tells how the steps go; the others tell what they log.
  SimulatedAgent(v1::WorkerService::Stub* stub, const v1::Worker& worker, const v1::LeaseId& lease, bool is_first)
      : lease_(lease), is_first_(is_first) {
    v1::FromAgent hello;
    *hello.mutable_hello()->mutable_worker() = worker;
    *hello.mutable_hello()->add_leases() = lease;
    stub->async()->Connect(&context_, this);
    outgoing_.push_back(hello);
    StartWrite(&outgoing_.front());
    StartRead(&incoming_);
    StartCall();
  }

  void Beat() {
    v1::FromAgent beat, telemetry;
    const MutexLock lock(mutex_);
    beat.mutable_heartbeat()->set_sequence(++beats_);
    *beat.mutable_heartbeat()->add_leases() = lease_;
    sent_[beats_] = Clock::now();
    Send(beat);
    v1::Telemetry& fact = *telemetry.mutable_telemetry();
    fact.set_sequence(++facts_);
    told_.push_back(Clock::now());
    *fact.mutable_lease() = lease_;
    if (is_first_) {
      fact.mutable_metrics()->set_step(facts_);
      fact.mutable_metrics()->set_loss(1.0);
      fact.mutable_metrics()->set_step_seconds(1.0);
    } else {
      fact.mutable_log()->set_level("info");
      fact.mutable_log()->set_text("is well");
    }
    Send(telemetry);
  }

  void OnWriteDone(bool ok) override {
    const MutexLock lock(mutex_);
    outgoing_.pop_front();
    if (ok && !outgoing_.empty()) StartWrite(&outgoing_.front());
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    {
      const MutexLock lock(mutex_);
      if (incoming_.has_heartbeat()) TakeAnswer(incoming_.heartbeat());
      if (incoming_.has_telemetry_ack()) acknowledged_ = incoming_.telemetry_ack().sequence();
      if (incoming_.has_welcome()) welcome_ = true;
    }
    StartRead(&incoming_);
  }
  void OnDone(const grpc::Status& status) override {
    const MutexLock lock(mutex_);
    done_ = true, error_ = status.error_message();
    ended_.NotifyAll();
  }
  void End() {
    context_.TryCancel();
    MutexLock lock(mutex_);
    while (!done_) ended_.Wait(lock);
  }

  bool welcome() {
    const MutexLock lock(mutex_);
    return welcome_;
  }
  int64_t beats() {
    const MutexLock lock(mutex_);
    return beats_;
  }
  int64_t facts() {
    const MutexLock lock(mutex_);
    return facts_;
  }
  int64_t acknowledged() {
    const MutexLock lock(mutex_);
    return acknowledged_;
  }
  int64_t revoked() {
    const MutexLock lock(mutex_);
    return revoked_;
  }
  std::optional<Clock::time_point> SentAt(int64_t step) {
    const MutexLock lock(mutex_);
    if (step < 1 || step > static_cast<int64_t>(told_.size())) return std::nullopt;
    return told_[static_cast<size_t>(step - 1)];
  }
  // From each heartbeat to its answer; one that has none by now has waited so far.
  std::vector<double> seconds() {
    const MutexLock lock(mutex_);
    std::vector<double> seconds = seconds_;
    for (const auto& [sequence, sent] : sent_) seconds.push_back(Since(sent));
    return seconds;
  }
  int64_t unanswered() {
    const MutexLock lock(mutex_);
    return static_cast<int64_t>(sent_.size());
  }
  std::string error() {
    const MutexLock lock(mutex_);
    return error_;
  }

 private:
  void TakeAnswer(const v1::HeartbeatAnswer& answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    revoked_ += answer.revoked_size();
    const auto sent = sent_.find(answer.sequence());
    if (sent == sent_.end()) return;  // to the hello
    seconds_.push_back(Since(sent->second));
    sent_.erase(sent);
  }
  void Send(const v1::FromAgent& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (done_) return;
    outgoing_.push_back(message);
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
  }

  const v1::LeaseId lease_;
  const bool is_first_;
  grpc::ClientContext context_;
  v1::ToAgent incoming_;
  Mutex mutex_;
  Condition ended_;
  std::deque<v1::FromAgent> outgoing_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, Clock::time_point> sent_ ABSL_GUARDED_BY(mutex_);  // heartbeats without answer, by sequence
  int64_t beats_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t facts_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Clock::time_point> told_ ABSL_GUARDED_BY(mutex_);  // of each fact
  int64_t acknowledged_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t revoked_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<double> seconds_ ABSL_GUARDED_BY(mutex_);
  bool welcome_ ABSL_GUARDED_BY(mutex_) = false, done_ ABSL_GUARDED_BY(mutex_) = false;
  std::string error_ ABSL_GUARDED_BY(mutex_);
};

class Load {
 public:
  explicit Load(Rows& rows)
      : rows_(rows),
        service_("legoai-server-bench"),
        ulids_([] { return absl::ToUnixMicros(absl::Now()); }, store::SystemRandom) {
    auto spec = service_.TinyJob(1, 1'000'000, 1'000'000);
    Check(spec.status());
    spec_ = *std::move(spec);
    spec_.mutable_resources()->set_pool("bench");
    Seed();
    service_.StartServer({});
    if (!service_.AwaitServer()) throw std::runtime_error("the server did not answer\n" + service_.LastWords(2000));
  }

  void Run() {
    Connect();
    std::atomic<bool> over{false};
    std::thread beats([&] { Beat(&over); });
    try {
      Watch();
      const auto begun = Clock::now();
      const double cpu = ProcessorSeconds();
      const double submissions = Submit(absl::GetFlag(FLAGS_seconds) / 4.0);
      const std::vector<double> lists = List(500);
      while (Since(begun) < absl::GetFlag(FLAGS_seconds)) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const double cores = (ProcessorSeconds() - cpu) / Since(begun);
      over = true;
      beats.join();
      Report(submissions, lists, cores);
    } catch (...) {
      over = true;
      if (beats.joinable()) beats.join();
      End();
      throw;
    }
    End();
  }

 private:
  v1::Job MakeJob(v1::JobState state) {
    v1::Job job;
    job.set_name("projects/default/jobs/" + ulids_.Next());
    *job.mutable_spec() = spec_;
    job.set_state(state);
    job.set_reason("for the benchmark");
    job.set_version(1);
    job.set_create_time_us(absl::ToUnixMicros(absl::Now()));
    job.set_update_time_us(job.create_time_us());
    return job;
  }

  // As a server leaves them: finished jobs, and one that runs on each worker, or on each so many.
  void Seed() {
    std::filesystem::create_directories(service_.Path("data"));
    auto opened = store::OpenStore(service_.StoreUrl());
    Check(opened.status());
    const int jobs = absl::GetFlag(FLAGS_jobs), agents = absl::GetFlag(FLAGS_agents);
    for (int done = 0; done < jobs; done += 1000) {
      Check((*opened)->Write([&](store::Transaction& transaction) -> absl::Status {
        for (int i = done; i < std::min(done + 1000, jobs); ++i) {
          if (absl::Status status = transaction.InsertJob(MakeJob(v1::SUCCEEDED), std::nullopt); !status.ok()) return status;
        }
        return absl::OkStatus();
      }));
    }
    Check((*opened)->Write([&](store::Transaction& transaction) -> absl::Status {
      const int gang = absl::GetFlag(FLAGS_gang);
      for (int first = 0; first < agents; first += gang) {
        const int workers = std::min(gang, agents - first);
        v1::Job job = MakeJob(v1::RUNNING);
        job.set_epoch(1), job.set_attempts(1), job.set_world_size(workers);
        if (workers > 1) job.set_worker_count(workers);
        v1::Attempt attempt;
        attempt.set_name(job.name() + "/attempts/1");
        attempt.set_attempt(1), attempt.set_epoch(1), attempt.set_world_size(workers);
        attempt.set_state("running");
        for (int i = 0; i < workers; ++i) {
          v1::Placement& placement = *attempt.add_placements();
          placement.set_worker(WorkerName(first + i));
          placement.set_slots(1), placement.set_first_rank(i);
          leases_.push_back(job.name());
          if (absl::Status status = transaction.PutWorker(WorkerOf(first + i)); !status.ok()) return status;
        }
        job.mutable_spec()->mutable_recipe()->mutable_training()->set_steps(1'000'000'000);  // more than are reported
        if (absl::Status status = transaction.InsertJob(job, std::nullopt); !status.ok()) return status;
        if (absl::Status status = transaction.PutAttempt(job.name(), attempt); !status.ok()) return status;
      }
      return absl::OkStatus();
    }));
  }

  static std::string WorkerName(int i) { return absl::StrCat("workers/bench-", i); }
  static v1::Worker WorkerOf(int i) {
    v1::Worker worker;
    worker.set_name(WorkerName(i));
    worker.set_host("localhost"), worker.set_pool("default"), worker.set_slots(1), worker.set_instance(worker.name());
    worker.set_runs("/runs");
    return worker;
  }

  void Connect() {
    const auto device = sim::FindDevice("h100-sxm-80");
    Check(device.status());
    constexpr int kAgentsOfAConnection = 50;  // a real agent has its own; file descriptors of this process are few
    std::shared_ptr<grpc::Channel> channel;
    for (size_t i = 0; i < leases_.size(); ++i) {
      if (i % kAgentsOfAConnection == 0) {
        channel = ChannelOfItsOwn();
        stubs_.push_back(v1::WorkerService::NewStub(channel));
      }
      v1::Worker worker = WorkerOf(static_cast<int>(i));
      *worker.mutable_device() = *device;
      worker.set_build_version(std::string(launch::BuildVersion()));
      v1::LeaseId lease;
      lease.set_job(leases_[i]), lease.set_epoch(1);
      const bool is_first = i % static_cast<size_t>(absl::GetFlag(FLAGS_gang)) == 0;
      agents_.push_back(std::make_unique<SimulatedAgent>(stubs_.back().get(), worker, lease, is_first));
    }
    const bool all = service::Within(
        60, [this] { return std::all_of(agents_.begin(), agents_.end(), [](const auto& agent) { return agent->welcome(); }); });
    if (!all) throw std::runtime_error("not all agents were welcomed\n" + service_.LastWords(2000));
  }

  // Of one agent for each job, which tells of its steps.
  void Watch() {
    const int watchers = absl::GetFlag(FLAGS_watchers), gang = absl::GetFlag(FLAGS_gang);
    const size_t jobs = agents_.size() / static_cast<size_t>(gang);
    constexpr int kWatchersOfAConnection = 50;
    std::shared_ptr<grpc::Channel> channel;
    for (int i = 0; i < watchers; ++i) {
      if (i % kWatchersOfAConnection == 0) {
        channel = ChannelOfItsOwn();
        watch_stubs_.push_back(v1::ControlPlane::NewStub(channel));
      }
      const size_t first = static_cast<size_t>(i) % jobs * static_cast<size_t>(gang);
      SimulatedAgent* const agent = agents_[first].get();
      watchers_.push_back(std::make_unique<JobWatcher>(watch_stubs_.back().get(), leases_[first],
                                                       [agent](int64_t step) { return agent->SentAt(step); }));
    }
    const bool all = service::Within(
        60, [this] { return std::all_of(watchers_.begin(), watchers_.end(), [](const auto& one) { return one->messages() > 0; }); });
    if (!all) throw std::runtime_error("not all watches have begun\n" + service_.LastWords(2000));
  }

  // With a connection that no other shares.
  std::shared_ptr<grpc::Channel> ChannelOfItsOwn() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(service_.address(), grpc::InsecureChannelCredentials(), arguments);
  }

  // Each agent once a second, spread over it.
  void Beat(const std::atomic<bool>* over) {
    auto next = Clock::now();
    while (!*over) {
      for (const auto& agent : agents_) {
        if (*over) return;
        std::this_thread::sleep_until(next);
        agent->Beat();
        next += std::chrono::nanoseconds(1'000'000'000 / agents_.size());
      }
    }
  }

  // By 16 users who wait for each answer; per second.
  double Submit(double seconds) {
    std::atomic<int64_t> accepted{0};
    std::atomic<bool> failed{false};
    const auto begun = Clock::now();
    std::vector<std::thread> users;
    for (int i = 0; i < 16; ++i) {
      users.emplace_back([&] {
        while (Since(begun) < seconds && !failed) {
          v1::CreateJobRequest request;
          request.set_parent("projects/default");
          *request.mutable_spec() = spec_;
          v1::Job job;
          const bool ok = service::Ask(service_.stub(), &v1::ControlPlane::Stub::CreateJob, request, &job, 60).ok();
          ok ? void(++accepted) : failed.store(true);
        }
      });
    }
    for (std::thread& user : users) user.join();
    if (failed) throw std::runtime_error("a submission was refused\n" + service_.LastWords(2000));
    return static_cast<double>(accepted) / Since(begun);
  }

  std::vector<double> List(int calls) {
    const std::vector<std::string> filters = {"", "state = active", "state = succeeded", "state = running"};
    std::vector<double> seconds;
    for (int i = 0; i < calls; ++i) {
      v1::ListJobsRequest request;
      request.set_parent("projects/default");
      request.set_filter(filters[i % filters.size()]);
      v1::ListJobsResponse response;
      const auto begun = Clock::now();
      const grpc::Status status = service::Ask(service_.stub(), &v1::ControlPlane::Stub::ListJobs, request, &response, 60);
      if (!status.ok()) throw std::runtime_error("ListJobs: " + status.error_message());
      seconds.push_back(Since(begun));
    }
    return seconds;
  }

  // That the server has taken so far, on all cores.
  double ProcessorSeconds() const {
    std::ifstream file(absl::StrCat("/proc/", service_.server(), "/stat"));
    std::string text;
    std::getline(file, text, ')');  // its number and name
    for (int field = 3; field < 14; ++field) file >> text;
    double user = 0, system = 0;
    file >> user >> system;
    return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }

  int64_t ResidentBytes() const {
    std::ifstream file(absl::StrCat("/proc/", service_.server(), "/statm"));
    int64_t size = 0, resident = 0;
    file >> size >> resident;
    return resident * sysconf(_SC_PAGESIZE);
  }

  void Report(double submissions, const std::vector<double>& lists, double cores) {
    const bool all = service::Within(60, [this] {
      return std::all_of(agents_.begin(), agents_.end(),
                         [](const auto& agent) { return agent->acknowledged() == agent->facts(); });
    });
    if (!all) throw std::runtime_error("telemetry was not acknowledged within a minute");
    std::vector<double> beats;
    int64_t sent = 0, unanswered = 0, facts = 0, revoked = 0;
    for (const auto& agent : agents_) {
      unanswered += agent->unanswered();
      const std::vector<double> seconds = agent->seconds();
      beats.insert(beats.end(), seconds.begin(), seconds.end());
      sent += agent->beats(), facts += agent->facts(), revoked += agent->revoked();
    }
    if (revoked > 0) throw std::runtime_error(absl::StrCat(revoked, " leases were revoked under load"));
    const double p50 = Quantile(beats, 0.5), p99 = Quantile(beats, 0.99), list = Quantile(lists, 0.99);
    rows_.Note(absl::StrFormat(
        "%d agents, %d of each job, %d heartbeats (%d not answered by the end), %d facts, %d jobs in the store", agents_.size(),
        absl::GetFlag(FLAGS_gang), sent, unanswered, facts, absl::GetFlag(FLAGS_jobs)));
    rows_.Add(
        absl::StrFormat("\"store\": \"%s\", \"agents\": %d, \"gang\": %d, \"jobs\": %d, \"heartbeat_p50_seconds\": %.6f, "
                        "\"heartbeat_p99_seconds\": %.6f, "
                        "\"durable_submissions_per_second\": %.1f, \"list_p99_seconds\": %.6f, \"server_resident_bytes\": %d, "
                        "\"server_cores\": %.3f",
                        absl::GetFlag(FLAGS_store), agents_.size(), absl::GetFlag(FLAGS_gang), absl::GetFlag(FLAGS_jobs), p50,
                        p99, submissions, list, ResidentBytes(), cores),
        absl::StrFormat(
            "heartbeat p50 %.2f ms, p99 %.2f ms; %.0f durable submissions a second; list p99 %.2f ms; server %.0f MiB "
            "resident, %.2f cores busy",
            p50 * 1e3, p99 * 1e3, submissions, list * 1e3, static_cast<double>(ResidentBytes()) / (1 << 20), cores));
    if (!watchers_.empty()) ReportWatches();
  }

  void ReportWatches() {
    std::vector<double> delays;
    int64_t messages = 0;
    for (const auto& watcher : watchers_) {
      if (const std::string error = watcher->error(); !error.empty()) throw std::runtime_error("a watch ended: " + error);
      const std::vector<double> seconds = watcher->seconds();
      delays.insert(delays.end(), seconds.begin(), seconds.end());
      messages += watcher->messages();
    }
    const double p50 = Quantile(delays, 0.5), p99 = Quantile(delays, 0.99);
    rows_.Summarize(absl::StrFormat("\"watchers\": %d, \"watch_messages\": %d, \"watch_p50_seconds\": %.6f, "
                                    "\"watch_p99_seconds\": %.6f",
                                    watchers_.size(), messages, p50, p99),
                    absl::StrFormat("%d watchers, told %d times: p50 %.1f ms, p99 %.1f ms after the agent told of the step",
                                    watchers_.size(), messages, p50 * 1e3, p99 * 1e3));
  }

  void End() {
    for (const auto& watcher : watchers_) watcher->End();
    for (const auto& agent : agents_) agent->End();
  }

  Rows& rows_;
  service::ServiceProcesses service_;
  store::UlidSource ulids_;
  v1::JobSpec spec_;
  std::vector<std::string> leases_;  // names of the jobs that run, by agent
  std::vector<std::unique_ptr<v1::WorkerService::Stub>> stubs_;
  std::vector<std::unique_ptr<SimulatedAgent>> agents_;
  std::vector<std::unique_ptr<v1::ControlPlane::Stub>> watch_stubs_;
  std::vector<std::unique_ptr<JobWatcher>> watchers_;
};

// Before anything reads the environment (server/store/testing/test_store.h). Commits wait for the disk, as SQLite's do.
void ChooseStore() {
  const std::string store = absl::GetFlag(FLAGS_store);
  if (store != "sqlite" && store != "postgresql") throw std::runtime_error("--store must be sqlite or postgresql");
  setenv("LEGOAI_TEST_STORE", store.c_str(), 1);
  if (!store::TestStoreIsPostgres()) return;
  for (const char* sql : {"ALTER SYSTEM SET fsync = on", "SELECT pg_reload_conf()"})
    Check(store::PostgresServer::OfThisProcess().Sql(sql).status());
}

}  // namespace
}  // namespace legoai::integration

int main(int argc, char** argv) {
  using namespace legoai::integration;
  absl::ParseCommandLine(argc, argv);
  return AddRows(argv[0], absl::GetFlag(FLAGS_json), [](Rows& rows) {
    ChooseStore();
    Load(rows).Run();
  });
}
