// One rank of what tests/bench/pytorch.py compares with PyTorch: it trains as the trainer does, some steps whenever it is asked.
//
// Usage: pytorch_bench FOLDER RANK WORLD PORT THREADS. FOLDER has config.json, recipe.toml and tokens.bin, int64
// [batches, global_batch, seq + 1]. It writes the weights that it begins with into FOLDER/weights if the world is one rank, and
// "ready PARAMETERS" on standard output; for each line "N" on standard input it makes N steps and writes one line of JSON:
// seconds and processor's seconds of all of them, and their losses.
#include <ATen/Parallel.h>
#include <ATen/ops/fill.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/model/hf_config.h"
#include "core/model/model_facts.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/read_file.h"
#include "proto/status.h"
#include "worker/comm/cpu_tensors.h"
#include "worker/comm/gloo_communicator.h"
#include "worker/comm/runtime.h"
#include "worker/comm/streams.h"
#include "worker/model/hf_weights.h"
#include "worker/train/step_program.h"
#include "worker/train/train_step.h"

namespace legoai {
namespace {

constexpr int64_t kMostTokenBytes = int64_t{1} << 30;

double ProcessorSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

absl::StatusOr<std::unique_ptr<comm::Runtime>> Connect(const parallel::ResolvedRecipe& resolved, int64_t rank, int port) {
  comm::RendezvousOptions options;
  options.port = port;
  options.rank = rank;
  options.world_size = resolved.mesh().world();
  comm::CommunicatorFactory factory = comm::NoCommunicator;
  if (options.world_size > 1) {
    ASSIGN_OR_RETURN(factory, comm::MakeGlooFactory(options));
  }
  return comm::Runtime::Create(rank, resolved.mesh().Groups(rank), comm::MakeThreadStreams(), factory);
}

absl::Status WriteWeights(const std::string& folder, train::TrainStep& step) {
  return model::ExportHfFolder(step.model().config(), folder,
                               [&](const std::string& name, const std::vector<int64_t>&, float* out) -> absl::Status {
                                 for (const model::Parameter* parameter : step.model().Parameters()) {
                                   if (parameter->name() != name) continue;
                                   std::memcpy(out, parameter->master.const_data_ptr<float>(), parameter->master.nbytes());
                                   return absl::OkStatus();
                                 }
                                 return absl::NotFoundError(name);
                               });
}

// This rank's rows of the batch of a step: tokens, and as targets the tokens after them.
void FillBatch(train::StepInputs& inputs, const parallel::ResolvedRecipe& resolved, int64_t rank, int64_t step,
               const std::vector<int64_t>& tokens) {
  const int64_t rows = inputs.tokens.size(0), seq = resolved.seq_len(), global = resolved.global_batch();
  const int64_t batches = static_cast<int64_t>(tokens.size()) / (global * (seq + 1));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t sample = (step % batches) * global + rank * rows + row;
    const int64_t* from = tokens.data() + sample * (seq + 1);
    std::memcpy(inputs.tokens.mutable_data_ptr<int64_t>() + row * seq, from, seq * sizeof(int64_t));
    std::memcpy(inputs.targets.mutable_data_ptr<int64_t>() + row * seq, from + 1, seq * sizeof(int64_t));
    inputs.samples.mutable_data_ptr<int64_t>()[row] = sample;
  }
  inputs.rng[1].fill_(step);
}

// The step's program where the recipe has compile.enable, or none.
absl::StatusOr<std::unique_ptr<train::StepProgram>> Program(train::TrainStep& step, const parallel::ResolvedRecipe& resolved) {
  if (!resolved.recipe().compile().enable()) return nullptr;
  ASSIGN_OR_RETURN(auto program, train::StepProgram::Capture(resolved, train::StepProgram::Part::kStep, at::kCPU));
  RETURN_IF_ERROR(program->Bind(step));
  return program;
}

absl::Status Serve(train::TrainStep& step, const parallel::ResolvedRecipe& resolved, int64_t rank,
                   const std::vector<int64_t>& tokens) {
  ASSIGN_OR_RETURN(const auto program, Program(step, resolved));
  step.inputs().learning_rate.fill_(resolved.recipe().optimizer().lr());
  step.inputs().rng[0].fill_(resolved.recipe().training().seed());
  int64_t done = 0;
  for (int64_t count = 0; std::cin >> count;) {
    std::vector<float> losses;
    const double processor = ProcessorSeconds();
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < count; ++i) {
      FillBatch(step.inputs(), resolved, rank, done++, tokens);
      ASSIGN_OR_RETURN(const auto result, program ? program->Run() : step.Run());
      losses.push_back(result.loss.item<float>());
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::cout << absl::StrFormat("{\"seconds\": %.6f, \"processor_seconds\": %.6f, \"losses\": [%s]}", seconds,
                                 ProcessorSeconds() - processor, absl::StrJoin(losses, ", "))
              << std::endl;
  }
  return absl::OkStatus();
}

absl::Status Run(const std::string& folder, int64_t rank, int64_t world, int port) {
  ASSIGN_OR_RETURN(const v1::Model model, model::ReadHfConfig(folder));
  ASSIGN_OR_RETURN(const v1::Recipe recipe, parallel::LoadRecipe(folder + "/recipe.toml"));
  ASSIGN_OR_RETURN(const auto resolved, parallel::ResolvedRecipe::Create(recipe, model, world));
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(folder + "/tokens.bin", kMostTokenBytes));
  std::vector<int64_t> tokens(bytes.size() / sizeof(int64_t));
  std::memcpy(tokens.data(), bytes.data(), tokens.size() * sizeof(int64_t));
  ASSIGN_OR_RETURN(const auto runtime, Connect(resolved, rank, port));
  const comm::RuntimeScope scope(runtime.get());
  ASSIGN_OR_RETURN(const auto step, train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
  if (world == 1) RETURN_IF_ERROR(WriteWeights(folder + "/weights", *step));
  std::cout << "ready " << model::ParameterCount(model) << std::endl;
  return Serve(*step, resolved, rank, tokens);
}

}  // namespace
}  // namespace legoai

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: pytorch_bench FOLDER RANK WORLD PORT THREADS (started by tests/bench/pytorch.py)\n");
    return 2;
  }
  // As the trainer does.
  legoai::comm::UseKnownCpuKernels();
  legoai::comm::KeepFreedMemory();
  legoai::comm::InstallCpuMemoryCounter();
  at::set_num_threads(std::atoi(argv[5]));
  const absl::Status status = legoai::Run(argv[1], std::atoll(argv[2]), std::atoll(argv[3]), std::atoi(argv[4]));
  if (!status.ok()) std::fprintf(stderr, "pytorch_bench: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
