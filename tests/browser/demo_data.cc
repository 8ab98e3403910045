#include "tests/browser/demo_data.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace legoai::testing {
namespace {

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

}  // namespace

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
  return metrics;
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
    device->set_type("cpu");
    device->set_kind(v1::CPU);
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
  return workers;
}

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

}  // namespace legoai::testing
