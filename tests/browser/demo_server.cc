// demo_server [--jobs N] [--web DIR] [--port P]: the service's HTTP over a real store with rows of every kind. A job that runs
// does two steps a second until it is cancelled or done. Prints {"port": P, ...} when it listens; ends when its standard input
// ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/http/control_plane_handlers.h"
#include "server/http/http_server.h"
#include "server/metrics/gauges.h"
#include "server/metrics/log.h"
#include "server/rpc/testing/test_service.h"
#include "server/store/ulid.h"
#include "tests/browser/demo_data.h"

namespace legoai::testing {
namespace {

using server::testing::TestService;

constexpr int64_t kSteps = 900;  // more than six minutes: no test is so slow that it would see the end
constexpr int64_t kSlots = 4;

int64_t Now() { return absl::GetCurrentTimeNanos() / 1000; }

struct Flags {
  int64_t jobs = 120;
  std::string web;
  int port = 0;
};

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--jobs") flags.jobs = std::stoll(value);
    if (name == "--web") flags.web = value;
    if (name == "--port") flags.port = std::stoi(value);
  }
  return flags;
}

// Jobs of the last days, in a few large transactions.
void FillOldJobs(TestService& service, int64_t jobs) {
  constexpr int64_t kApart = 1'800'000'000;
  int64_t clock = Now() - (jobs + 1) * std::min(kApart, int64_t{30} * 86'400'000'000 / std::max<int64_t>(jobs, 1));
  const int64_t apart = (Now() - clock) / (jobs + 1);
  store::UlidSource ids([&clock] { return clock; }, store::SystemRandom);
  for (int64_t done = 0; done < jobs;) {
    service.Write([&](store::Transaction& transaction) -> absl::Status {
      for (int64_t i = 0; i < 1000 && done < jobs; ++i, ++done, clock += apart) {
        if (auto status = transaction.InsertJob(DemoJob(done, ids.Next(), clock), std::nullopt); !status.ok()) return status;
      }
      return absl::OkStatus();
    });
  }
}

void SetChosen(v1::Job* job, const v1::PlanResult& plan) {
  *job->mutable_chosen() = plan.ranked(0);
  v1::Training* asked = job->mutable_spec()->mutable_recipe()->mutable_training();
  asked->set_global_batch_size(plan.global_batch());
  asked->set_seq_len(plan.seq_len());
  asked->set_steps(kSteps);
  job->set_world_size(kSlots);
}

v1::Attempt MakeAttempt(const std::string& job, int64_t number, const v1::PlanResult& plan) {
  v1::Attempt attempt;
  attempt.set_name(absl::StrCat(job, "/attempts/", number));
  attempt.set_attempt(number);
  attempt.set_epoch(number);
  *attempt.mutable_recipe() = plan.ranked(0).recipe();
  attempt.set_world_size(kSlots);
  v1::Placement* place = attempt.add_placements();
  place->set_worker("workers/node-1");
  place->set_slots(kSlots);
  attempt.set_start_time_us(Now() - (3 - number) * 90'000'000);
  attempt.set_state("running");
  attempt.set_predicted_step_seconds(plan.ranked(0).step_time_seconds());
  attempt.set_predicted_peak_memory_bytes(plan.ranked(0).peak_memory_bytes());
  *attempt.mutable_predicted_memory() = plan.ranked(0).memory();
  attempt.set_measured_step_seconds(0.433);
  attempt.set_measured_peak_memory_bytes(int64_t{138} << 20);
  return attempt;
}

void SetProgress(v1::Job* job, int64_t step) {
  const v1::StepMetrics metrics = DemoMetrics(2, step);
  v1::JobProgress* progress = job->mutable_progress();
  progress->set_phase("train");
  progress->set_step(step);
  progress->set_steps(kSteps);
  progress->set_loss(metrics.loss());
  if (metrics.has_validation_loss()) progress->set_validation_loss(metrics.validation_loss());
  progress->set_tokens_per_second(metrics.tokens_per_second());
  progress->set_step_seconds(metrics.step_seconds());
  progress->set_peak_memory_bytes(metrics.peak_memory_bytes());
  progress->set_update_time_us(Now());
}

v1::LogLine MakeLine(int64_t attempt, int64_t rank, const char* level, const std::string& text) {
  v1::LogLine line;
  line.set_attempt(attempt);
  line.set_epoch(attempt);
  if (rank >= 0) line.set_rank(rank);
  line.set_level(level);
  line.set_text(text);
  line.set_time_us(Now());
  return line;
}

void AddCheckpoint(store::Transaction& transaction, const std::string& job, int64_t step) {
  v1::Checkpoint checkpoint;
  checkpoint.set_name(absl::StrCat(job, "/checkpoints/", step));
  checkpoint.set_step(step);
  checkpoint.set_epoch(1);
  checkpoint.set_attempt(1);
  checkpoint.set_directory("/data/runs/llama-bible/checkpoints");
  checkpoint.set_time_us(Now());
  EXPECT_TRUE(transaction.PutCheckpoint(job, checkpoint).ok());
}

// A job in its second attempt that goes on while the server lives.
std::string MakeRunning(TestService& service) {
  const v1::PlanResult plan = DemoPlan(kSlots);
  const std::string job = service.Create("llama-bible").name();
  service.Move(job, {v1::PLANNING, v1::QUEUED, v1::LEASED, v1::STARTING, v1::RUNNING, v1::RESTARTING, v1::LEASED, v1::STARTING,
                     v1::RUNNING});
  service.Write([&](store::Transaction& transaction) -> absl::Status {
    v1::Attempt lost = MakeAttempt(job, 1, plan);
    lost.set_state("lost");
    lost.set_end_time_us(Now() - 95'000'000);
    lost.set_last_step(58);
    lost.mutable_error()->set_code(14);
    lost.mutable_error()->set_message("worker node-3 has not been heard of for 10 s");
    v1::Attempt now = MakeAttempt(job, 2, plan);
    now.set_resume_step(50);
    for (const v1::Attempt& attempt : {lost, now}) {
      if (auto status = transaction.PutAttempt(job, attempt); !status.ok()) return status;
    }
    for (int64_t step = 1; step <= 150; ++step) {
      if (auto status = transaction.AppendMetrics(job, DemoMetrics(step <= 50 ? 1 : 2, step)); !status.ok()) return status;
    }
    for (int64_t step : {50, 100, 150}) AddCheckpoint(transaction, job, step);
    for (int64_t i = 0; i < 40; ++i) {
      if (auto status = transaction.AppendLog(
              job, MakeLine(2, i % kSlots, i == 30 ? "warning" : "info", absl::StrCat("line ", i, " of the trainer")));
          !status.ok()) {
        return status;
      }
    }
    return transaction.PutPlan(job, plan);
  });
  service.Touch(job, [&plan](v1::Job* row) {
    SetChosen(row, plan);
    SetProgress(row, 150);
    row->set_reason("training since step 50, in attempt 2");
    row->set_attempts(2);
    row->set_restarts(1);
    row->set_committed_step(150);
    row->set_unigram_entropy(4.31);
  });
  return job;
}

void MakeOthers(TestService& service) {
  const std::string failed = service.Create("llama-hang").name();
  service.Move(failed, {v1::PLANNING, v1::QUEUED, v1::LEASED, v1::STARTING, v1::RUNNING});
  service.Touch(failed, [](v1::Job* row) {
    SetChosen(row, DemoPlan(kSlots));
    SetProgress(row, 17);
  });
  service.Move(failed, {v1::FAILED});
  service.Write([&](store::Transaction& transaction) -> absl::Status {
    v1::Attempt hung = MakeAttempt(failed, 1, DemoPlan(kSlots));
    hung.set_state("failed");
    hung.set_end_time_us(Now());
    hung.mutable_error()->set_code(4);
    hung.mutable_error()->set_message("no step for 30 s");
    if (auto status = transaction.PutAttempt(failed, hung); !status.ok()) return status;
    for (int64_t step = 1; step <= 17; ++step) {
      if (auto status = transaction.AppendMetrics(failed, DemoMetrics(1, step)); !status.ok()) return status;
    }
    const v1::FlightRecord record = DemoFlightRecord(kSlots, Now());
    for (const v1::FlightDump& dump : record.dumps()) {
      if (auto status = transaction.PutFlightRecord(failed, record, &dump); !status.ok()) return status;
    }
    return absl::OkStatus();
  });
  service.Touch(failed, [](v1::Job* row) {
    row->set_reason("rank 1 has not entered all_gather 17 of dp_shard, in which 0, 2, 3 wait; no restart is left");
    row->set_attempts(1);
  });
  const std::string queued = service.Create("llama-large-batch").name();
  service.Move(queued, {v1::PLANNING, v1::QUEUED});
  service.Touch(queued, [](v1::Job* row) {
    row->set_queue_position(1);
    row->set_reason("waits for 16 slots; 12 are free. It is next, and starts when llama-bible ends (in about 2 min)");
  });
  const std::string planning = service.Create("gpt2-owt").name();
  service.Move(planning, {v1::PLANNING});
  v1::PlanningProgress progress;
  progress.set_space(1152);
  progress.set_to_capture(208);
  progress.set_captured(61);
  progress.set_best_step_seconds(0.47);
  progress.set_elapsed_seconds(3.4);
  service.notifier().SetPlanning(planning, progress);
  service.Touch(planning, [](v1::Job* row) { row->set_reason("ranks recipes for 8 slots of pool default"); });
}

// One step of the running job; false: it has ended.
bool Advance(TestService& service, const std::string& job, int64_t step) {
  const v1::Job now = service.Get(job);
  if (now.state() == v1::CANCELLING) service.Move(job, {v1::CANCELLED});
  if (now.state() != v1::RUNNING) return false;
  service.Write([&](store::Transaction& transaction) -> absl::Status {
    if (auto status = transaction.AppendMetrics(job, DemoMetrics(2, step)); !status.ok()) return status;
    return transaction.AppendLog(job, MakeLine(2, 0, "info", absl::StrCat("step ", step, " loss ", DemoMetrics(2, step).loss())));
  });
  service.Touch(job, [step](v1::Job* row) { SetProgress(row, step); });
  if (step == kSteps) service.Move(job, {v1::SUCCEEDED});
  return step < kSteps;
}

// As a planner of its own would answer that has looked at a few recipes and tells of each.
absl::StatusOr<v1::PlanResult> DemoPlanning(const v1::PlanRequest& request,
                                            const std::function<void(const v1::PlanningProgress&)>& progress,
                                            const std::function<bool()>& cancel) {
  const v1::PlanResult whole = DemoPlan(kSlots);
  for (int captured = 1; captured <= 8; ++captured) {
    v1::PlanningProgress now;
    for (int i = 0; i < std::min(captured / 2, whole.ranked_size()); ++i) {
      *now.add_best() = whole.ranked(i);
      now.mutable_best(i)->clear_recipe_toml();
    }
    now.set_space(1152);
    now.set_to_capture(8);
    now.set_captured(captured);
    now.set_best_step_seconds(0.5 - 0.01 * captured);
    now.set_elapsed_seconds(0.1 * captured);
    progress(now);
    if (cancel()) return absl::CancelledError("the client has left");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  v1::PlanResult plan = DemoPlan(kSlots);
  plan.set_model(request.model().name());
  plan.set_cluster(request.cluster().name());
  plan.set_global_batch(request.global_batch());
  plan.set_seq_len(request.seq_len());
  return plan;
}

int Main(const Flags& flags) {
  server::SetLogSink([](std::string_view) {});
  TestService service;
  service.fleet().plan = DemoPlanning;
  FillOldJobs(service, flags.jobs);
  MakeOthers(service);
  const std::string running = MakeRunning(service);
  auto workers = DemoWorkers(running);
  for (size_t i = 0; i < workers.size(); ++i) workers[i].set_last_seen_time_us(Now() - (i == 3 ? 340'000'000 : 400'000));
  service.fleet().SetWorkers(workers);
  server::Metrics metrics;
  const auto before_scrape = [&] {
    (void)server::SetJobGauges(service.store(), &metrics);
    server::SetWorkerGauges(service.fleet().Workers(), &metrics);
  };
  server::HttpOptions options;
  options.port = flags.port;
  options.web_directory = flags.web;
  auto http = server::HttpServer::Start(options, server::ControlPlaneHandlers(&service.control(), before_scrape),
                                        &service.notifier(), &metrics);
  if (!http.ok()) {
    std::fprintf(stderr, "demo_server: %s\n", http.status().ToString().c_str());
    return 1;
  }
  std::printf("{\"port\": %d, \"running\": \"%s\"}\n", (*http)->port(), running.c_str());
  std::fflush(stdout);
  std::atomic<bool> ended{false};
  std::thread steps([&] {
    for (int64_t step = 151; !ended && Advance(service, running, step); ++step) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
  });
  for (std::string line; std::getline(std::cin, line);) {
  }
  ended = true;
  steps.join();
  return ::testing::Test::HasFailure() ? 1 : 0;
}

}  // namespace
}  // namespace legoai::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest();
  return legoai::testing::Main(legoai::testing::ParseFlags(argc, argv));
}
