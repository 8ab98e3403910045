// demo_server [--jobs N] [--web DIR] [--port P]: the service's HTTP over a real store with rows of every kind, and three jobs in
// another project. A job that runs does two steps a second until it is cancelled or done. Prints {"port": P, ...} when it
// listens; ends when its standard input ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/hardware/catalog.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "server/fleet/offers.h"
#include "server/http/handlers.h"
#include "server/http/http_server.h"
#include "server/metrics/log.h"
#include "server/metrics/store_metrics.h"
#include "server/rpc/testing/test_service.h"
#include "server/store/ulid.h"
#include "tests/browser/demo_steps.h"

namespace legoai::testing {
namespace {

// Rows for a store, as a service that has worked for a while would have them. The same for the same arguments.

constexpr double kStepSeconds = 0.42;
constexpr int64_t kTokens = 16 * 256;

void FillMemory(int64_t scale, v1::MemoryByCategory* memory) {
  memory->set_sharded_parameter(18 * scale);
  memory->set_unsharded_parameter(9 * scale);
  memory->set_sharded_gradient(18 * scale);
  memory->set_activation(41 * scale);
  memory->set_activation_gradient(6 * scale);
  memory->set_optimizer_state(36 * scale);
  memory->set_input(scale / 8);
  memory->set_all_gather_buffer(5 * scale);
  memory->set_workspace(3 * scale);
}

void FillBreakdown(double step_seconds, bool staged, v1::Breakdown* breakdown) {
  breakdown->set_compute_seconds((staged ? 0.5 : 0.71) * step_seconds);
  if (staged) breakdown->set_bubble_seconds(0.21 * step_seconds);
  breakdown->set_exposed_communication_seconds(0.16 * step_seconds);
  breakdown->set_optimizer_seconds(0.09 * step_seconds);
  breakdown->set_launch_seconds(0.04 * step_seconds);
}

void FillRecipe(int64_t shard, int64_t tensor, int64_t pipeline, v1::Recipe* recipe) {
  recipe->mutable_training()->set_local_batch_size(std::max<int64_t>(1, 8 / shard));
  recipe->mutable_training()->set_global_batch_size(16);
  recipe->mutable_training()->set_seq_len(256);
  recipe->mutable_training()->set_mixed_precision_param(v1::FLOAT32);
  recipe->mutable_parallelism()->set_data_parallel_shard_degree(shard);
  recipe->mutable_parallelism()->set_tensor_parallel_degree(tensor);
  recipe->mutable_parallelism()->set_pipeline_parallel_degree(pipeline);
  recipe->mutable_parallelism()->set_pipeline_parallel_schedule(v1::ONE_F_ONE_B);
  recipe->mutable_parallelism()->set_pipeline_parallel_microbatch_size(2);
  recipe->mutable_activation_checkpoint()->set_mode(tensor > 1 ? v1::AC_FULL : v1::AC_NONE);
}

void AddRanked(int64_t rank, int64_t shard, int64_t tensor, int64_t pipeline, double step_seconds, v1::PlanResult* plan) {
  v1::RankedRecipe* ranked = plan->add_ranked();
  ranked->set_rank(rank);
  FillRecipe(shard, tensor, pipeline, ranked->mutable_recipe());
  ranked->set_recipe_toml(absl::StrCat("[training]\nlocal_batch_size = ", std::max<int64_t>(1, 8 / shard),
                                       "\n\n[parallelism]\ndata_parallel_shard_degree = ", shard,
                                       "\ntensor_parallel_degree = ", tensor, "\npipeline_parallel_degree = ", pipeline, "\n"));
  ranked->set_step_time_seconds(step_seconds);
  ranked->set_tokens_per_second_per_gpu(static_cast<double>(kTokens) / step_seconds /
                                        static_cast<double>(shard * tensor * pipeline));
  ranked->set_mfu(0.47 * kStepSeconds / step_seconds);
  ranked->set_peak_memory_bytes((158 - 11 * rank) << 20);
  ranked->set_headroom_bytes((3878 + 11 * rank) << 20);
  FillMemory(1 << 20, ranked->mutable_memory());
  FillBreakdown(step_seconds, pipeline > 1, ranked->mutable_breakdown());
}

void AddRejected(const char* rule, const char* reason, int64_t tensor, int64_t pipeline, v1::PlanResult* plan) {
  v1::RejectedRecipe* rejected = plan->add_rejected();
  FillRecipe(1, tensor, pipeline, rejected->mutable_recipe());
  rejected->set_rule(rule);
  rejected->set_reason(reason);
}

v1::PlanResult DemoPlan(int64_t slots) {
  v1::PlanResult plan;
  plan.set_model("tiny-llama");
  plan.set_cluster(absl::StrCat("cpu:", slots, "x1"));
  plan.set_global_batch(16);
  plan.set_seq_len(256);
  plan.set_space(1152);
  (*plan.mutable_pruned())["tensor_parallel_divides_heads"] = 384;
  (*plan.mutable_pruned())["batch_divides_data_parallel"] = 512;
  plan.set_bounded_out(48);
  plan.set_captured(196);
  plan.set_captured_unfit(7);
  plan.set_not_reached(12);
  plan.set_seconds(9.7);
  AddRanked(1, slots, 1, 1, kStepSeconds, &plan);
  AddRanked(2, slots / 2, 2, 1, 1.13 * kStepSeconds, &plan);
  AddRanked(3, slots / 2, 1, 2, 1.29 * kStepSeconds, &plan);
  AddRanked(4, 1, 2, 2, 1.64 * kStepSeconds, &plan);
  AddRejected("tensor_parallel_divides_heads", "tensor_parallel_degree 8 does not divide the model's 4 key-value heads", 8, 1,
              &plan);
  AddRejected("memory", "the first stage needs more than the slot has", 1, 2, &plan);
  plan.mutable_rejected(1)->set_peak_memory_bytes(int64_t{5} << 30);
  plan.mutable_rejected(1)->set_is_bound(true);
  plan.set_explanation(absl::StrCat(
      "The fastest recipe that fits is shard ", slots,
      ", local batch 2 accumulated 2 times, no checkpointing, float32: 0.42 s a step, of which 71 % compute.\n"
      "- Another tensor parallel degree: shard 2, tp 2, local batch 4, full checkpointing, float32 is 13.0 % slower.\n"
      "- 64 recipes were simulated, the fastest by the closed-form estimate and one for each choice; 12 more may fit "
      "(`lego plan --budget-seconds 0` simulates all)."));
  return plan;
}

v1::StepMetrics DemoMetrics(int64_t attempt, int64_t step) {
  v1::StepMetrics metrics;
  const double x = static_cast<double>(step);
  const double wobble = std::sin(x * 1.7) + std::sin(x * 0.31);
  metrics.set_attempt(attempt);
  metrics.set_step(step);
  metrics.set_loss(1.9 + 3.4 * std::exp(-x / 60) + 0.03 * wobble);
  metrics.set_time_unix_seconds(1.7e9 + kStepSeconds * x);
  metrics.set_grad_norm(0.4 + 2.5 * std::exp(-x / 40) + 0.05 * wobble);
  metrics.set_mfu(0.47 / (1.03 + 0.02 * wobble));
  metrics.set_learning_rate(1e-3 * std::min(1.0, x / 20));
  metrics.set_step_seconds(kStepSeconds * (1.03 + 0.02 * wobble));
  metrics.set_data_seconds(0.004 + 0.001 * wobble);
  metrics.set_tokens_per_second(static_cast<double>(kTokens) / metrics.step_seconds());
  metrics.set_peak_memory_bytes(int64_t{138} << 20);
  if (step % 25 == 0) metrics.set_validation_loss(metrics.loss() + 0.08);
  metrics.set_hfu(1.31 * metrics.mfu());
  AddRanks(4, &metrics);
  return metrics;
}

// A slot whose GPU is ill, and a check that passed before.
v1::WorkerHealth DemoHealth() {
  v1::WorkerHealth health;
  v1::SlotFault& fault = *health.add_slot_faults();
  fault.set_slot(5);
  fault.set_cause(v1::GPU_XID);
  fault.set_reason("its driver told of Xid 79");
  fault.set_time_us(1);
  v1::MachineCheck& check = *health.mutable_check();
  check.set_number(1);
  check.set_start_time_us(1);
  check.set_seconds(9.5);
  for (const v1::CheckKind kind : {v1::DISK_CHECK, v1::DEVICE_CHECK, v1::ALL_GATHER_CHECK}) {
    v1::CheckResult& result = *check.add_results();
    result.set_kind(kind);
    result.set_passed(true);
    result.set_seconds(1.5);
    for (int slot = 0; kind != v1::DISK_CHECK && slot < (kind == v1::DEVICE_CHECK ? 1 : 2); ++slot) result.add_slots(slot);
  }
  check.mutable_results(0)->set_write_bytes_per_second(5e8);
  check.mutable_results(2)->set_received_bytes_per_second(2e11);
  return health;
}

std::vector<v1::Worker> DemoWorkers(const std::string& running_job) {
  std::vector<v1::Worker> workers;
  const v1::WorkerState states[] = {v1::READY, v1::READY, v1::DRAINING, v1::LOST};
  for (int i = 0; i < 4; ++i) {
    v1::Worker& worker = workers.emplace_back();
    worker.set_name(absl::StrCat("workers/node-", i + 1));
    worker.set_host(absl::StrCat("node-", i + 1, ".cluster.example"));
    worker.set_pool("default");
    worker.set_slots(8);
    worker.set_state(states[i]);
    worker.set_connected(states[i] != v1::LOST);
    worker.set_host_memory_bytes(int64_t{64} << 30);
    worker.set_host_cores(8);
    worker.set_build_version("0.4.0");
    worker.set_last_seen_time_us(1);
    worker.mutable_use()->set_processor_share(0.875 - 0.25 * i);
    worker.mutable_use()->set_memory_bytes(int64_t{16} << 30);
    v1::Device* device = worker.mutable_device();
    *device = *sim::FindDevice("cpu");
    device->clear_peak_flops();
    device->set_memory_bytes(int64_t{4} << 30);
    device->set_memory_bandwidth_bytes_per_second(11.3e9);
    device->add_peak_flops()->set_flops_per_second(98e9);
    device->mutable_peak_flops(0)->set_dtype(v1::FLOAT32);
    if (i == 0) {
      v1::SlotUse* use = worker.add_used();
      use->set_job(running_job);
      use->set_epoch(2);
      use->set_slots(4);
    }
  }
  (*workers[1].mutable_labels())["rack"] = "b2";
  *workers[1].mutable_health() = DemoHealth();
  return workers;
}

// Of two ranks of which the second has not entered the last collective.
v1::FlightRecord DemoFlightRecord(int64_t ranks, int64_t time_us) {
  v1::FlightRecord record;
  record.set_attempt(1);
  record.set_reason("no step for 30 s");
  record.set_time_us(time_us);
  v1::FlightAnalysis* analysis = record.mutable_analysis();
  analysis->set_verdict("collective_state_mismatch");
  analysis->add_culprits(1);
  analysis->set_text("rank 1 has not entered all_gather 17 of dp_shard, in which 0, 2, 3 wait");
  analysis->set_matched(51);
  v1::FlightFinding* finding = analysis->add_findings();
  finding->set_process_group("dp_shard");
  finding->set_sequence(17);
  finding->set_profiling_name("gloo:all_gather");
  finding->set_verdict("collective_state_mismatch");
  finding->add_missing_ranks(1);
  finding->add_culprits(1);
  finding->set_text(analysis->text());
  for (int64_t rank = 0; rank < ranks; ++rank) {
    v1::FlightDump* dump = record.add_dumps();
    dump->set_rank(rank);
    dump->set_world_size(ranks);
    dump->set_reason("request");
    const int64_t last = rank == 1 ? 16 : 17;
    for (int64_t i = 1; i <= last; ++i) {
      v1::FlightEntry* entry = dump->add_entries();
      entry->set_process_group("dp_shard");
      entry->set_collective_seq_id(i);
      entry->set_profiling_name("gloo:all_gather");
      entry->set_state(i <= 16 ? "completed" : "started");
    }
  }
  return record;
}

// Submitted `age_us` ago, in a state that follows from `index`.
v1::Job DemoJob(int64_t index, const std::string& id, int64_t now_us) {
  static constexpr v1::JobState kStates[] = {v1::SUCCEEDED, v1::SUCCEEDED, v1::FAILED, v1::SUCCEEDED, v1::CANCELLED};
  static constexpr const char* kReasons[] = {"trained 400 steps", "trained 400 steps",
                                             "rank 2 was killed by signal 9 and no restart is left", "trained 400 steps",
                                             "was cancelled: wrong dataset"};
  v1::Job job;
  job.set_name(absl::StrCat("projects/default/jobs/", id));
  job.mutable_spec()->set_display_name(absl::StrCat(index % 3 ? "llama-" : "gpt2-", "sweep-", index));
  job.mutable_spec()->mutable_model()->set_name(index % 3 ? "tiny-llama" : "gpt2-small");
  job.set_state(kStates[index % 5]);
  job.set_reason(kReasons[index % 5]);
  job.set_version(12);
  job.set_epoch(1);
  job.set_attempts(1);
  job.set_create_time_us(now_us);
  job.set_update_time_us(now_us);
  job.set_start_time_us(now_us + 12'000'000);
  job.set_end_time_us(now_us + 190'000'000);
  job.set_world_size(4);
  const int64_t step = job.state() == v1::SUCCEEDED ? 400 : 60 + index * 37 % 300;
  const v1::StepMetrics metrics = DemoMetrics(1, step);
  v1::JobProgress* progress = job.mutable_progress();
  progress->set_step(step);
  progress->set_steps(400);
  progress->set_loss(metrics.loss());
  progress->set_tokens_per_second(metrics.tokens_per_second());
  progress->set_step_seconds(metrics.step_seconds());
  progress->set_peak_memory_bytes(metrics.peak_memory_bytes());
  return job;
}

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
  v1::PlanResult plan = DemoPlan(kSlots);
  plan.set_cluster(server::ClusterName(server::SlotKind(DemoWorkers("")[0]), kSlots));
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
    for (int64_t step : {60, 120}) {
      const std::string path = service.folder() / "trace.json.gz";
      if (auto status = AddTraces(path, job, step, Now() - 40'000'000, transaction); !status.ok()) return status;
    }
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

void MakeOtherProject(TestService& service) {
  store::UlidSource ids(Now, store::SystemRandom);
  service.Write([&](store::Transaction& transaction) -> absl::Status {
    for (int64_t i = 0; i < 3; ++i) {
      v1::Job job = DemoJob(i, ids.Next(), Now());
      job.set_name(absl::StrCat("projects/speech/jobs/", job.name().substr(job.name().rfind('/') + 1)));
      job.mutable_spec()->set_display_name(absl::StrCat("whisper-", i));
      if (auto status = transaction.InsertJob(job, std::nullopt); !status.ok()) return status;
    }
    return absl::OkStatus();
  });
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
  service.fleet().simulate = DemoSimulation;
  FillOldJobs(service, flags.jobs);
  MakeOthers(service);
  MakeOtherProject(service);
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
                                        &service.pool(), &service.notifier(), &metrics);
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
