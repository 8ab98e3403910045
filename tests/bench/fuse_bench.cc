// Whole training steps eager, as a program, and as a program with fused operators (compile.fuse), in one process or two and in
// turns: Llama and GPT-2 of some million parameters, one thread a rank. A step's time is that of its slower rank, and of a mode
// the median. Beside it: operators of a program before and after, seconds of the compiler where kernels were not in the cache,
// and by how much the losses of the last step differ.
//
// Usage: fuse_bench [--json | PART_OF_A_NAME]. Asserts nothing about time.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/model/catalog.h"
#include "core/recipe/recipe.h"
#include "core/trace/fused_kernel.h"
#include "core/trace/passes/pipeline.h"
#include "simulator/capture/capture.h"
#include "tests/bench/bench_main.h"
#include "tests/integration/cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/comm/cpu_tensors.h"
#include "worker/graph/executor.h"
#include "worker/graph/fused_operator.h"

namespace legoai::integration {
namespace {

// Modes take turns of some steps each, the first of which finds the memory as the mode before has left it and does not count. Nor
// does the first turn.
constexpr int kTurns = 7, kStepsOfTurn = 4;

enum Mode { kEager, kGraph, kFused, kModes };

struct Measured {
  double seconds[kModes][(kTurns - 1) * (kStepsOfTurn - 1)];
  int64_t operators[kModes];  // of a program: carried out
  int64_t fused = 0, peak_bytes[kModes];
  double compile_seconds = 0, losses[kModes];
};

v1::Recipe RecipeOf(v1::Recipe recipe, Mode mode) {
  recipe.mutable_compile()->set_enable(mode != kEager);
  recipe.mutable_compile()->set_fuse(mode == kFused);
  return recipe;
}

// The three modes of a rank's training.
class Rank {
 public:
  Rank(const Case& test_case, int64_t rank) : case_(test_case), rank_(rank) {
    comm::InstallCpuMemoryCounter();
    resolved_.reserve(kModes);  // they stay where they are
    for (const Mode mode : {kEager, kGraph, kFused}) {
      resolved_.push_back(Must(parallel::ResolvedRecipe::Create(RecipeOf(case_.recipe, mode), case_.model, case_.world_size)));
      steps_[mode] = Must(train::TrainStep::Build(resolved_[mode], at::kCPU, /*materialize=*/true));
      measured_.operators[mode] = 0;
      if (mode != kEager) Prepare(mode);
    }
  }

  Measured Run() {
    for (int turn = 0; turn < kTurns; ++turn) {
      for (const Mode mode : {kEager, kGraph, kFused}) {
        for (int i = 0; i < kStepsOfTurn; ++i) {
          const double seconds = Step(mode, turn * kStepsOfTurn + i);
          if (turn > 0 && i > 0) measured_.seconds[mode][(turn - 1) * (kStepsOfTurn - 1) + i - 1] = seconds;
        }
      }
    }
    return measured_;
  }

 private:
  void Prepare(Mode mode) {
    traces_[mode] = Must(graph::RunPasses(Must(sim::CaptureStep(resolved_[mode], rank_)).trace, resolved_[mode], {}));
    graph::KernelCounts counts;
    std::vector<std::string> notes;
    Must(graph::PrepareKernels(traces_[mode], at::kCPU, &counts, &notes));
    if (mode == kFused) measured_.compile_seconds = counts.seconds;
    for (const graph::Instruction& instruction : traces_[mode].instructions)
      measured_.fused += graph::FusedKernelText(traces_[mode], instruction) != nullptr;
    executors_[mode] = Must(graph::Executor::Create(traces_[mode], at::kCPU));
    measured_.operators[mode] = executors_[mode]->OperatorsPerRun();
    Must(steps_[mode]->GatherParameters());
    for (const auto& state : steps_[mode]->State()) Must(executors_[mode]->Bind(state.name, state.tensor));
  }

  double Step(Mode mode, int64_t step) {
    FillInputs(steps_[mode]->inputs(), case_, resolved_[mode], rank_, step);
    comm::ResetCpuPeakBytes();
    const int64_t before = comm::CpuLiveBytes();
    const auto start = std::chrono::steady_clock::now();
    at::Tensor loss;
    if (mode == kEager) {
      loss = Must(steps_[mode]->Run()).loss;
    } else {
      Must(executors_[mode]->Run());
      loss = Must(executors_[mode]->Output("loss"));
    }
    measured_.losses[mode] = loss.item<float>();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    measured_.peak_bytes[mode] = comm::CpuPeakBytes() - before;
    return seconds;
  }

  const Case& case_;
  const int64_t rank_;
  std::vector<parallel::ResolvedRecipe> resolved_;
  std::unique_ptr<train::TrainStep> steps_[kModes];
  graph::Trace traces_[kModes];
  std::unique_ptr<graph::Executor> executors_[kModes];
  Measured measured_{};
};

std::vector<Case> Cases() {
  const auto make = [](const std::string& name, const v1::Model& model, int64_t batch, int64_t seq, v1::DType dtype,
                       int64_t ranks) {
    Case made{.name = name, .model = model, .recipe = parallel::DefaultRecipe(), .world_size = ranks};
    made.recipe.mutable_training()->set_seq_len(seq);
    made.recipe.mutable_training()->set_local_batch_size(batch);
    made.recipe.mutable_training()->set_mixed_precision_param(dtype);
    return made;
  };
  const v1::Model small = model::Llama(
      {.vocab = 512, .hidden = 256, .intermediate = 688, .layers = 4, .heads = 8, .kv_heads = 4, .positions = 256});
  const v1::Model large = model::Llama(
      {.vocab = 2048, .hidden = 512, .intermediate = 1408, .layers = 6, .heads = 8, .kv_heads = 8, .positions = 512});
  v1::Model gpt2 = TinyGpt2();
  gpt2.set_num_attention_heads(8), gpt2.set_num_key_value_heads(8), gpt2.set_head_dim(32);
  gpt2.set_hidden_size(256), gpt2.set_intermediate_size(1024), gpt2.set_vocab_size(512), gpt2.set_max_position_embeddings(256);
  gpt2.set_num_hidden_layers(4);
  return {make("llama_4m", small, 4, 128, v1::FLOAT32, 1),       make("llama_4m_bf16", small, 4, 128, v1::BFLOAT16, 1),
          make("llama_21m", large, 2, 512, v1::FLOAT32, 1),      make("llama_21m_bf16", large, 2, 512, v1::BFLOAT16, 1),
          make("llama_4m_fsdp2", small, 4, 128, v1::FLOAT32, 2), make("gpt2_3m", gpt2, 4, 128, v1::FLOAT32, 1),
          make("gpt2_3m_bf16", gpt2, 4, 128, v1::BFLOAT16, 1)};
}

void AddRow(Rows& rows, const std::string& name, const std::vector<Measured>& ranks) {
  double seconds[kModes];
  for (const Mode mode : {kEager, kGraph, kFused}) {
    std::vector<double> slowest;
    for (size_t i = 0; i < std::size(ranks[0].seconds[mode]); ++i) {
      slowest.push_back(0);
      for (const Measured& rank : ranks) slowest.back() = std::max(slowest.back(), rank.seconds[mode][i]);
    }
    seconds[mode] = Median(slowest);
  }
  const Measured& first = ranks[0];
  const double difference = std::abs(first.losses[kFused] - first.losses[kEager]) / std::abs(first.losses[kEager]);
  rows.Add(absl::StrFormat(R"("recipe": "%s", "eager_seconds": %.6f, "graph_seconds": %.6f, "fused_seconds": %.6f, )"
                           R"("graph_operators": %d, "fused_program_operators": %d, "fused": %d, "compile_seconds": %.3f, )"
                           R"("graph_peak_bytes": %d, "fused_peak_bytes": %d, "loss_difference": %.3g)",
                           name, seconds[kEager], seconds[kGraph], seconds[kFused], first.operators[kGraph],
                           first.operators[kFused], first.fused, first.compile_seconds, first.peak_bytes[kGraph],
                           first.peak_bytes[kFused], difference),
           absl::StrFormat("%-16s eager %8.2f ms  graph %8.2f ms  fused %8.2f ms  %.3f of graph, %.3f of eager  "
                           "operators %d to %d, %d fused  peak %.2f to %.2f MB  compiled in %.1f s  losses differ by %.1e",
                           name, 1e3 * seconds[kEager], 1e3 * seconds[kGraph], 1e3 * seconds[kFused],
                           seconds[kFused] / seconds[kGraph], seconds[kFused] / seconds[kEager], first.operators[kGraph],
                           first.operators[kFused], first.fused, 1e-6 * static_cast<double>(first.peak_bytes[kGraph]),
                           1e-6 * static_cast<double>(first.peak_bytes[kFused]), first.compile_seconds, difference));
}

void RunAll(Rows& rows, const std::string& part) {
  for (const Case& test_case : Cases()) {
    if (test_case.name.find(part) == std::string::npos) continue;
    const auto results = RunCase(test_case, [&](int64_t rank, comm::Runtime&, const parallel::ResolvedRecipe&) {
      const Measured measured = Rank(test_case, rank).Run();
      return std::string(reinterpret_cast<const char*>(&measured), sizeof measured);
    });
    std::vector<Measured> ranks;
    for (const std::string& bytes : results) {
      if (bytes.size() != sizeof(Measured)) throw std::runtime_error(test_case.name + ": a rank failed");
      std::memcpy(&ranks.emplace_back(), bytes.data(), sizeof(Measured));
    }
    AddRow(rows, test_case.name, ranks);
  }
}

}  // namespace
}  // namespace legoai::integration

int main(int argc, char** argv) { return legoai::integration::BenchMain(argc, argv, legoai::integration::RunAll); }
