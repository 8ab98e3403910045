// The lower bound of the step time by which plans leave recipes out, beside simulations: of recipes all over the spaces of
// models of each architecture on GPUs and CPUs, with what a base recipe or a constraint may ask for, and of these recipes as a
// plan varies them last. The simulations are lego-sim's, in this process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "planner/last_choices.h"
#include "planner/legal.h"
#include "proto/testing/assert_ok.h"
#include "proto/testing/seeded_random.h"
#include "proto/toml/toml.h"
#include "simulator/estimate/estimate.h"

namespace legoai::integration {
namespace {

struct Job {
  std::string model, cluster;
  int64_t batch = 0, seq = 8192;
  int recipes = 12;
  std::vector<std::string> constraints = {};
  double least_share = 0;  // of the simulated step, in the median: a bound that is no trifle
  double efficiency = 1;   // times the device's: of measured peaks some operators reach more
  int64_t cores = 0;       // of the host of CPU ranks; 0: as the catalog says
  bool untied = false;     // embedding and head
  int64_t layers = 0;      // 0: all of the model's
  std::vector<std::pair<std::string, std::string>> base = {};  // keys that need each other
};

std::string Text(const Job& job) {
  std::string text = absl::StrCat(job.model, job.untied ? ", untied" : "", " on ", job.cluster, ", batch ", job.batch, ", seq ",
                                  job.seq);
  if (job.layers > 0) absl::StrAppend(&text, ", layers ", job.layers);
  if (job.efficiency != 1) absl::StrAppend(&text, ", efficiency x", job.efficiency);
  if (job.cores > 0) absl::StrAppend(&text, ", cores ", job.cores);
  for (const auto& [key, value] : job.base) absl::StrAppend(&text, ", ", key, " ", value);
  return absl::StrCat(text, job.constraints.empty() ? "" : ", ", absl::StrJoin(job.constraints, ", "));
}

void PrintTo(const Job& job, std::ostream* out) { *out << Text(job); }

v1::PlanRequest RequestFor(const Job& job) {
  v1::PlanRequest request;
  *request.mutable_model() = model::ResolveModel(job.model).value();
  if (job.untied) request.mutable_model()->set_tie_word_embeddings(false);
  if (job.layers > 0) request.mutable_model()->set_num_hidden_layers(job.layers);
  v1::Cluster& cluster = *request.mutable_cluster();
  cluster = sim::ParseCluster(job.cluster).value();
  for (v1::Efficiency& one : *cluster.mutable_device()->mutable_efficiencies()) one.set_fraction(one.fraction() * job.efficiency);
  if (job.cores > 0) cluster.set_host_cores(job.cores);
  request.set_global_batch(job.batch);
  request.set_seq_len(job.seq);
  for (const std::string& constraint : job.constraints) request.add_constraints(constraint);
  for (const auto& [key, value] : job.base) EXPECT_TRUE(ApplyOverride(request.mutable_base(), key, value).ok()) << key;
  return request;
}

// The recipe itself, and what a plan would make of it last.
std::vector<v1::Recipe> Variants(const v1::PlanRequest& request, const v1::Recipe& recipe) {
  std::vector<v1::Recipe> variants(2, recipe);
  variants[1].mutable_parallelism()->set_fsdp_prefetch_depth(2);
  if (request.cluster().device().kind() == v1::CPU) {
    v1::Recipe& fused = variants.emplace_back(recipe);
    fused.mutable_compile()->set_enable(true);
    fused.mutable_compile()->set_fuse(true);
    fused.mutable_parallelism()->set_enable_async_tensor_parallel(recipe.parallelism().tensor_parallel_degree() > 1);
    if (planner::HasShards(recipe)) {
      v1::Recipe& bucketed = variants.emplace_back(recipe);
      bucketed.mutable_compile()->set_enable(true);
      bucketed.mutable_compile()->set_fsdp_bucketing(v1::BUCKET_BY_PLAN);
    }
  } else if (recipe.training().mixed_precision_param() == v1::BFLOAT16) {
    v1::Recipe& masters = variants.emplace_back(recipe);
    masters.mutable_training()->set_dtype(v1::BFLOAT16);
    masters.mutable_optimizer()->set_master_weights(true);
  }
  const int64_t world = request.cluster().devices_per_node() * request.cluster().nodes();
  std::erase_if(variants, [&](const v1::Recipe& one) {
    return !parallel::ResolvedRecipe::Create(one, request.model(), world).ok();
  });
  return variants;
}

// What of it the bound must know of.
std::set<std::string> Techniques(const v1::Recipe& recipe) {
  const v1::Parallelism& p = recipe.parallelism();
  std::set<std::string> found;
  const auto add = [&](bool has, const std::string& name) {
    if (has) found.insert(name);
  };
  add(p.tensor_parallel_degree() > 1, "tensor parallel");
  add(p.tensor_parallel_degree() > 1 && !p.sequence_parallel(), "tensor parallel without split tokens");
  add(p.enable_async_tensor_parallel(), "asynchronous tensor parallel");
  add(p.context_parallel_degree() > 1, "context parallel");
  add(p.data_parallel_shard_degree() > 1, "shards");
  add(p.data_parallel_replicate_degree() > 1, "replicas");
  add(p.zero_stage() < 3, "ZeRO 1 or 2");
  add(p.pipeline_parallel_degree() > 1, v1::PipelineSchedule_Name(p.pipeline_parallel_schedule()));
  add(recipe.activation_checkpoint().mode() != v1::AC_NONE,
      recipe.activation_checkpoint().mode() == v1::AC_FULL ? "full checkpointing"
                                                            : recipe.activation_checkpoint().selective_ac_option());
  add(true, recipe.optimizer().name());
  add(recipe.optimizer().master_weights(), "masters");
  add(true, v1::DType_Name(recipe.training().mixed_precision_param()));
  add(recipe.compile().enable(), "graph mode");
  add(recipe.compile().fuse(), "fusion");
  add(recipe.compile().enable() && recipe.compile().fsdp_bucketing() == v1::BUCKET_BY_PLAN, "planned buckets");
  return found;
}

// Beside the simulation, for the recipe and its variants. Adds the shares of the bound and what was met; a recipe that does not
// fit has no step.
void Compare(const v1::PlanRequest& request, const v1::Recipe& recipe, std::vector<double>* shares,
             std::map<std::string, int>* met) {
  ASSERT_OK_AND_ASSIGN(const double bound, planner::BoundTime(request, recipe));
  for (const v1::Recipe& variant : Variants(request, recipe)) {
    v1::SimRequest sim;
    *sim.mutable_model() = request.model();
    *sim.mutable_cluster() = request.cluster();
    *sim.mutable_recipe() = variant;
    sim.set_cost_mode(v1::COST_ROOFLINE);
    const auto estimate = sim::EstimateRecipe(sim);
    ASSERT_TRUE(estimate.ok()) << estimate.status() << "\n" << variant.DebugString();
    if (!estimate->fits()) return;
    EXPECT_LE(bound, estimate->step_time_seconds() * (1 + 1e-9)) << request.model().name() << "\n" << variant.DebugString();
    shares->push_back(bound / estimate->step_time_seconds());
    for (const std::string& technique : Techniques(variant)) ++(*met)[technique];
  }
}

std::string Text(const std::map<std::string, int>& met) {
  std::string text;
  for (const auto& [technique, count] : met) text += (text.empty() ? "" : ", ") + technique + " " + std::to_string(count);
  return text;
}

class StepBound : public testing::TestWithParam<Job> {};

TEST_P(StepBound, IsNeverAboveTheSimulatedStep) {
  SeededRandom random;
  const Job& job = GetParam();
  const v1::PlanRequest request = RequestFor(job);
  ASSERT_OK_AND_ASSIGN(const auto space, planner::PruneSpace(request));
  ASSERT_FALSE(space.survivors.empty());
  std::vector<double> shares;
  std::map<std::string, int> met;
  for (int tries = 0; tries < 200 && static_cast<int>(shares.size()) < job.recipes; ++tries) {
    // Half of them are among those that a plan simulates.
    const size_t most = tries % 2 == 0 ? std::min<size_t>(64, space.survivors.size()) : space.survivors.size();
    Compare(request, space.survivors[random() % most].recipe, &shares, &met);
    if (HasFailure()) return;
  }
  ASSERT_FALSE(shares.empty());
  std::sort(shares.begin(), shares.end());
  std::printf("%s: bound / simulated step of %zu: %.3f to %.3f, median %.3f; %s\n", Text(job).c_str(), shares.size(),
              shares.front(), shares.back(), shares[shares.size() / 2], Text(met).c_str());
  EXPECT_GT(shares[shares.size() / 2], job.least_share);
}

const char kSchedule[] = "parallelism.pipeline_parallel_schedule=", kStages[] = "parallelism.pipeline_parallel_degree=";

std::vector<Job> Jobs() {
  const std::string node = "h100-sxm-80:8x1", nodes = "h100-sxm-80:8x2", cpus = "cpu:4x1", graph = "compile.enable=true";
  std::vector<Job> jobs = {{"llama3-8b", node, 64, 8192, 12, {}, 0.4},
                           {"llama3-8b", "h100-sxm-80:8x16", 256, 8192, 12, {}, 0.4},
                           {"llama3-70b", "h100-sxm-80:8x32", 256, 8192, 12, {}, 0.4},
                           {"llama3-405b", "h100-sxm-80:8x64", 512, 8192, 12, {}, 0.4},
                           {"llama3-1b", cpus, 8, 512, 8, {}, 0.4}};
  // Architectures.
  for (const char* const model : {"gpt2", "gpt2-large", "gemma-2b", "gemma2-2b", "qwen2.5-1.5b", "qwen3-1.7b"})
    jobs.push_back({model, nodes, 64, 1024, 9});
  for (const char* const model : {"gpt2", "gemma-2b", "gemma2-2b", "qwen2.5-0.5b", "qwen3-0.6b"}) {
    jobs.push_back({model, cpus, 8, 256, 6});
    if (absl::StartsWith(model, "gemma")) jobs.back().layers = 2;  // all do not fit
  }
  jobs.push_back({"mistral-7b-v0.3", nodes, 64, 4096, 6});
  // Schedules.
  for (const char* const schedule :
       {"GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"}) {
    jobs.push_back({"llama3-1b", nodes, 64, 2048, 6, {std::string(kSchedule) + schedule, std::string(kStages) + "4"}});
    jobs.back().untied = true;
    jobs.push_back({"gpt2", cpus, 16, 256, 4, {std::string(kSchedule) + schedule, std::string(kStages) + "2"}});
    jobs.back().untied = true;
  }
  // Context and tensor parallel.
  for (const char* const rotation : {"allgather", "ring"}) {
    const std::string method = std::string("parallelism.context_parallel_rotate_method=") + rotation;
    jobs.push_back({"llama3-8b", nodes, 16, 32768, 6, {"parallelism.context_parallel_degree=4", method}});
    jobs.push_back({"qwen2.5-0.5b", cpus, 8, 512, 6, {"parallelism.context_parallel_degree=2", method}});
  }
  jobs.push_back({"gemma2-2b", nodes, 16, 4096, 6, {"parallelism.context_parallel_degree=2"}});
  for (const std::string& cluster : {nodes, cpus}) {
    const std::string tensor = "parallelism.tensor_parallel_degree=2", model = cluster == nodes ? "llama3-1b" : "qwen2.5-0.5b";
    jobs.push_back({model, cluster, 16, 512, 6, {tensor, "parallelism.sequence_parallel=false"}});
    jobs.push_back({model, cluster, 16, 512, 6, {tensor, "parallelism.disable_loss_parallel=true"}});
    jobs.push_back({"qwen3-0.6b", cluster, 16, 512, 6, {tensor, "parallelism.sequence_parallel_gather_in_backward=true"}});
    // Shards and what is reduced when.
    for (const char* const constraint :
         {"parallelism.zero_stage=1", "parallelism.zero_stage=2", "parallelism.fsdp_reshard_after_forward=never",
          "activation_checkpoint.mode=full", "activation_checkpoint.mode=selective", "optimizer.name=Muon", "optimizer.name=SGD",
          "optimizer.name=Adam", "training.mixed_precision_param=float32"}) {
      jobs.push_back({model, cluster, 16, 512, 5, {constraint}});
    }
    jobs.push_back({"gpt2", cluster, 16, 256, 5,
                    {"activation_checkpoint.mode=selective", "activation_checkpoint.selective_ac_option=op"}});
    jobs.push_back({model, cluster, 16, 512, 5, {"activation_checkpoint.mode=selective"}});
    jobs.back().base = {{"activation_checkpoint.selective_ac_option", "policy"},
                        {"activation_checkpoint.selective_ac_policy", "0-7:* * all; self_attn.* aten::mm all"}};
    // Operators that reach more than the peaks that are known.
    for (const double efficiency : {0.3, 1.7, 4.0}) {
      jobs.push_back({model, cluster, 16, 512, 5});
      jobs.back().efficiency = efficiency;
    }
  }
  jobs.push_back({"llama3-1b", nodes, 16, 512, 5, {"training.mixed_precision_param=float16"}});
  jobs.push_back({"llama3-1b", nodes, 16, 512, 5});
  jobs.back().base = {{"training.dtype", "bfloat16"}, {"optimizer.stochastic_rounding", "true"}};
  // Programs, and ranks that share cores.
  for (const char* const constraint :
       {"compile.fuse=true", "compile.fsdp_bucketing=none", "parallelism.tensor_parallel_degree=2",
        "parallelism.pipeline_parallel_degree=2", "parallelism.zero_stage=2", "activation_checkpoint.mode=full"}) {
    for (const char* const model : {"gpt2", "qwen3-0.6b", "gemma-2b"}) {
      jobs.push_back({model, cpus, 8, 256, 4, {graph, constraint}});
      jobs.back().untied = absl::StrContains(constraint, "pipeline") || absl::StrContains(constraint, "bucketing");
      if (absl::StartsWith(model, "gemma")) jobs.back().layers = 2;
    }
  }
  for (const int64_t cores : {1, 2, 3}) {
    jobs.push_back({"gpt2", cpus, 8, 256, 6});
    jobs.back().cores = cores;
  }
  return jobs;
}

INSTANTIATE_TEST_SUITE_P(Jobs, StepBound, testing::ValuesIn(Jobs()),
                         [](const auto& info) { return "Job" + std::to_string(info.index); });

template <class T>
const T& Pick(SeededRandom& random, const std::vector<T>& choices) {
  return choices[random() % choices.size()];
}

// Anything with anything, some recipes of each.
TEST(StepBoundOfRandomJobs, IsNeverAboveTheSimulatedStep) {
  SeededRandom random;
  std::vector<double> shares;
  std::map<std::string, int> met;
  const std::vector<std::string> keys = {"optimizer.name=Muon",
                                         "optimizer.name=SGD",
                                         "parallelism.sequence_parallel=false",
                                         "parallelism.disable_loss_parallel=true",
                                         "activation_checkpoint.mode=full",
                                         "activation_checkpoint.mode=selective",
                                         "parallelism.zero_stage=1",
                                         "parallelism.zero_stage=2",
                                         "parallelism.pipeline_parallel_degree=2",
                                         "parallelism.pipeline_parallel_schedule=DualPipeV",
                                         "parallelism.pipeline_parallel_schedule=ZBVZeroBubble",
                                         "parallelism.pipeline_parallel_schedule=Interleaved1F1B",
                                         "parallelism.tensor_parallel_degree=2",
                                         "parallelism.context_parallel_degree=2"};
  const std::vector<std::string> models = {"gpt2",      "gpt2-medium",  "llama3-1b", "gemma-2b",
                                           "gemma2-2b", "qwen2.5-0.5b", "qwen3-0.6b"};
  const std::vector<std::string> clusters = {"h100-sxm-80:8x1", "h100-sxm-80:4x2", "a100-sxm-40:2x2",
                                             "cpu:4x1",         "cpu:2x1",         "cpu:1x1"};
  int tried = 0;
  for (int i = 0; i < 400 && tried < 40; ++i) {
    Job job;
    job.model = Pick(random, models), job.cluster = Pick(random, clusters);
    job.untied = random() % 2 == 0;
    if (random() % 3 == 0) job.layers = 2 + static_cast<int64_t>(random() % 3);
    job.batch = int64_t{4} << random() % 4, job.seq = int64_t{128} << random() % 3;
    job.efficiency = Pick<double>(random, {0.5, 1, 1, 2});
    if (random() % 3 == 0) job.cores = static_cast<int64_t>(random() % 4) + 1;
    for (uint64_t more = random() % 4; more > 0; --more) job.constraints.push_back(Pick(random, keys));
    if (job.cluster[0] == 'c' && random() % 2 == 0) job.constraints.push_back("compile.enable=true");
    const v1::PlanRequest request = RequestFor(job);
    const auto space = planner::PruneSpace(request);
    if (!space.ok() || space->survivors.empty()) continue;  // keys that exclude each other
    ++tried;
    SCOPED_TRACE(Text(job));
    for (int recipe = 0; recipe < 2; ++recipe)
      Compare(request, space->survivors[random() % space->survivors.size()].recipe, &shares, &met);
    if (HasFailure()) return;
  }
  std::printf("%d jobs, %zu recipes: %s\n", tried, shares.size(), Text(met).c_str());
  EXPECT_EQ(tried, 40);
  for (const char* const technique :
       {"tensor parallel", "tensor parallel without split tokens", "asynchronous tensor parallel", "shards", "replicas",
        "ZeRO 1 or 2", "full checkpointing", "Muon", "SGD", "AdamW", "masters", "graph mode", "fusion", "planned buckets"}) {
    EXPECT_GT(met[technique], 0) << technique;
  }
}

}  // namespace
}  // namespace legoai::integration
