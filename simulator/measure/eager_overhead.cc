#include "simulator/measure/eager_overhead.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "core/model/catalog.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/status.h"
#include "simulator/capture/capture.h"
#include "simulator/measure/lone_runtime.h"
#include "worker/comm/runtime.h"
#include "worker/comm/status_error.h"
#include "worker/train/train_step.h"

namespace legoai::sim {
namespace {

v1::Model TinyLlama() {
  return model::Llama({.vocab = 32, .hidden = 16, .intermediate = 32, .layers = 8, .heads = 2, .kv_heads = 2, .positions = 16});
}

v1::Recipe TinyRecipe() {
  v1::Recipe recipe = parallel::DefaultRecipe();
  recipe.mutable_training()->set_local_batch_size(1);
  recipe.mutable_training()->set_seq_len(8);
  recipe.mutable_training()->set_mixed_precision_param(v1::FLOAT32);
  return recipe;
}

// The step of the tiny model, as it is captured.
struct TinyStep {
  v1::Model model;
  v1::Recipe recipe;
  parallel::ResolvedRecipe resolved;
  graph::Trace trace;
  double shares = 0;  // DispatchShare of all its instructions
};

absl::StatusOr<double> DispatchShares(const graph::Trace& trace) {
  ASSIGN_OR_RETURN(auto rows, ResolveOperators(trace));
  double shares = 0;
  for (const graph::Instruction& instruction : trace.instructions) {
    if (instruction.kind != graph::Instruction::Kind::kOperator) continue;
    shares += DispatchShare(rows[instruction.operator_index]->op_class);
  }
  return shares;
}

absl::StatusOr<TinyStep> CaptureTinyStep() {
  v1::Model model = TinyLlama();
  v1::Recipe recipe = TinyRecipe();
  ASSIGN_OR_RETURN(auto resolved, parallel::ResolvedRecipe::Create(recipe, model, /*world_size=*/1));
  ASSIGN_OR_RETURN(auto captured, CaptureStep(resolved, 0));
  ASSIGN_OR_RETURN(const auto shares, DispatchShares(captured.trace));
  return TinyStep{std::move(model), std::move(recipe), std::move(resolved), std::move(captured.trace), shares};
}

// A typical run of the step of the Runtime's rank.
absl::StatusOr<double> EagerSeconds(const parallel::ResolvedRecipe& resolved, c10::Device device, comm::Runtime& runtime,
                                    Replays runs, const std::function<void()>& ran_once = {}) {
  comm::RuntimeScope scope(&runtime);
  ASSIGN_OR_RETURN(auto step, train::TrainStep::Build(resolved, device, /*materialize=*/true));
  std::vector<std::vector<double>> seconds;
  for (int i = 0; i < runs.all(); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(auto ran, step->Run());
    RETURN_IF_ERROR(runtime.Drain());
    if (i >= runs.warm_up) seconds.push_back({std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()});
    if (ran_once) ran_once();
  }
  return TypicalSeconds(std::move(seconds)).front();
}

absl::StatusOr<double> EagerSeconds(const TinyStep& tiny, c10::Device device, std::unique_ptr<comm::Streams> streams) {
  ASSIGN_OR_RETURN(auto runtime, comm::Runtime::Create(0, tiny.resolved.mesh().Groups(0), std::move(streams), nullptr));
  return EagerSeconds(tiny.resolved, device, *runtime, {.warm_up = 5, .timed = 40});
}

}  // namespace

absl::StatusOr<double> MeasureEagerOverhead() {
  constexpr int kTries = 3;
  ASSIGN_OR_RETURN(const auto tiny, CaptureTinyStep());
  for (int i = 0; i < kTries; ++i) {
    ASSIGN_OR_RETURN(auto eager, EagerSeconds(tiny, c10::kCPU, comm::MakeThreadStreams()));
    ASSIGN_OR_RETURN(auto replayed, ReplayStep(tiny.trace, 0));
    const double operators = std::accumulate(replayed.begin(), replayed.end(), 0.0);
    if (eager > operators) return (eager - operators) / tiny.shares;  // otherwise other processes were in the way
  }
  return absl::UnavailableError("what an eager step costs cannot be measured: the machine is too busy; measure again");
}

absl::StatusOr<double> MeasureEagerOverhead(const parallel::ResolvedRecipe& resolved, const std::vector<StageTrace>& stages,
                                            const std::vector<double>& replayed, Replays replays, std::atomic<int64_t>* done) {
  ASSIGN_OR_RETURN(const double least, MeasureEagerOverhead());
  double overhead = 0, shares = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    ASSIGN_OR_RETURN(auto runtime, MakeLoneRuntime(stages[i].rank, resolved.mesh().Groups(stages[i].rank)));
    const int64_t instructions = static_cast<int64_t>(stages[i].trace->instructions.size());
    ASSIGN_OR_RETURN(const double eager,
                     EagerSeconds(resolved, c10::kCPU, *runtime, replays, [&] { *done += instructions; }));
    ASSIGN_OR_RETURN(const double of_stage, DispatchShares(*stages[i].trace));
    overhead += eager - replayed[i];
    shares += of_stage;
  }
  return shares > 0 ? std::max(least, overhead / shares) : least;
}

absl::StatusOr<double> MeasureEagerDispatch(c10::Device device, std::unique_ptr<comm::Streams> streams) {
  ASSIGN_OR_RETURN(const auto tiny, CaptureTinyStep());
  absl::StatusOr<double> eager;
  const absl::Status status = comm::CatchStatus([&] {
    eager = EagerSeconds(tiny, device, std::move(streams));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  if (!eager.ok()) return eager.status();
  return *eager / tiny.shares;
}

}  // namespace legoai::sim
