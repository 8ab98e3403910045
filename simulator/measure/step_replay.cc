#include "simulator/measure/step_replay.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/model/catalog.h"
#include "core/operators/op_facts.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/status.h"
#include "simulator/capture/capture_stages.h"
#include "simulator/cost/compute_cost.h"
#include "simulator/measure/lone_runtime.h"
#include "simulator/measure/operator_benchmark.h"
#include "worker/comm/runtime.h"
#include "worker/graph/executor.h"
#include "worker/graph/ivalue_constant.h"

namespace legoai::sim {
namespace {

// Memory of the storage's size at the start of a step, which may be none.
at::Tensor MakeInput(const graph::Trace& trace, uint32_t value) {
  const graph::Value& record = trace.values[value];
  const graph::Geometry& geometry = trace.geometries[record.geometry];
  const int64_t bytes = trace.storages[record.storage].bytes;
  const auto options = at::TensorOptions().dtype(graph::ToScalarType(geometry.dtype));
  at::Tensor tensor = at::empty({bytes / static_cast<int64_t>(options.dtype().itemsize())}, options);
  if (tensor.is_floating_point()) {
    tensor.uniform_(0.01, 0.02);  // positive: second moments are among them
  } else {
    tensor.zero_();
  }
  at::Tensor shaped = at::empty({0}, options);
  shaped.unsafeGetTensorImpl()->set_storage_keep_dtype(tensor.storage());
  shaped.unsafeGetTensorImpl()->set_sizes_and_strides(geometry.sizes, geometry.strides, geometry.offset);
  return shaped;
}

absl::StatusOr<std::unique_ptr<graph::Executor>> MakeExecutor(const graph::Trace& trace) {
  auto executor = graph::Executor::Create(trace, c10::kCPU);
  if (!executor.ok()) return executor.status();
  for (const auto& [name, value] : trace.inputs) {
    absl::Status status = (*executor)->Bind(name, MakeInput(trace, value));
    if (!status.ok()) return status;
  }
  return executor;
}

absl::StatusOr<std::vector<double>> TimeRuns(graph::Executor& executor, int64_t instructions, Replays replays,
                                             std::atomic<int64_t>* done) {
  std::vector<std::vector<double>> runs(replays.timed);
  std::vector<double> unused;
  const int64_t before = done->load();
  for (int i = 0; i < replays.all(); ++i) {
    absl::Status status = executor.RunTimed(i < replays.warm_up ? &unused : &runs[i - replays.warm_up], done);
    if (!status.ok()) return status;
    done->store(before + (i + 1) * instructions);  // views and the like are carried out by nobody
  }
  return TypicalSeconds(std::move(runs));
}

constexpr OpClass kClasses[] = {OpClass::kMatmul,    OpClass::kAttention, OpClass::kElementwise,
                                OpClass::kReduction, OpClass::kCopy,      OpClass::kOptimizer};

// As large as models are that somebody trains on a CPU.
v1::Model SmallLlama() {
  return model::Llama(
      {.vocab = 1024, .hidden = 256, .intermediate = 768, .layers = 2, .heads = 8, .kv_heads = 4, .positions = 256});
}

v1::Recipe RecipeIn(v1::DType dtype) {
  v1::Recipe recipe = parallel::DefaultRecipe();
  recipe.mutable_training()->set_local_batch_size(8);
  recipe.mutable_training()->set_seq_len(256);
  recipe.mutable_training()->set_mixed_precision_param(dtype);
  return recipe;
}

absl::StatusOr<graph::Trace> CaptureIn(v1::DType dtype) {
  const v1::Model model = SmallLlama();
  const v1::Recipe recipe = RecipeIn(dtype);
  ASSIGN_OR_RETURN(const auto resolved, parallel::ResolvedRecipe::Create(recipe, model, /*world_size=*/1));
  ASSIGN_OR_RETURN(auto stages, CaptureStages(resolved));
  return stages.front().Flat();
}

void SetFraction(OpClass op_class, v1::DType dtype, double fraction, const std::string& source, v1::Device* device) {
  auto* efficiency = device->add_efficiencies();
  efficiency->set_op_class(OpClassName(op_class));
  efficiency->set_fraction(std::min(fraction, 1.0));
  efficiency->set_source(source);
  efficiency->set_dtype(dtype);
}

// A device that loses nothing.
v1::Device Ideal(v1::Device device) {
  device.clear_efficiencies();
  device.set_kernel_launch_seconds(0);
  for (const OpClass op_class : kClasses) SetFraction(op_class, v1::DTYPE_UNSPECIFIED, 1, "", &device);
  return device;
}

struct Seconds {
  double ideal = 0, taken = 0;
};

// Of the step's operators that compute in `dtype`, by class.
absl::StatusOr<std::map<OpClass, Seconds>> MeasureIn(v1::DType dtype, int64_t busy_cores, const v1::Device& device) {
  ASSIGN_OR_RETURN(const auto trace, CaptureIn(dtype));
  ASSIGN_OR_RETURN(const auto roofline, RooflineModel::Create(Ideal(device)));
  ASSIGN_OR_RETURN(const auto rows, ResolveOperators(trace));
  const auto benchmark = BenchmarkOperators({{&trace, 0, 0}}, busy_cores);
  if (!benchmark.ok()) return benchmark.status();
  std::map<OpClass, Seconds> classes;
  for (const graph::Instruction& instruction : trace.instructions) {
    if (instruction.kind != graph::Instruction::Kind::kOperator) continue;
    const graph::InstructionView op(trace, instruction);
    const OpFacts facts = FactsOf(op, *rows[instruction.operator_index]);
    const double* const taken = benchmark->operators.Find(SignatureOf(op));
    if (facts.dtype != dtype || taken == nullptr) continue;  // views and communication have no time
    ASSIGN_OR_RETURN(const auto ideal, roofline->Seconds(facts));
    classes[facts.op_class].ideal += ideal;
    classes[facts.op_class].taken += *taken;
  }
  return classes;
}

}  // namespace

std::vector<double> TypicalSeconds(std::vector<std::vector<double>> runs) {
  auto whole = [](const std::vector<double>& run) { return std::accumulate(run.begin(), run.end(), 0.0); };
  std::sort(runs.begin(), runs.end(), [&](const auto& a, const auto& b) { return whole(a) < whole(b); });
  const size_t out = runs.size() / 4, in = runs.size() - 2 * out;
  std::vector<double> seconds(runs.front().size());
  for (size_t run = out; run < out + in; ++run) {
    for (size_t i = 0; i < seconds.size(); ++i) seconds[i] += runs[run][i] / static_cast<double>(in);
  }
  return seconds;
}

absl::StatusOr<std::vector<double>> ReplayStep(const graph::Trace& trace, int64_t rank, Replays replays,
                                               std::atomic<int64_t>* done) {
  ASSIGN_OR_RETURN(auto runtime, MakeLoneRuntime(rank, trace.groups));
  comm::RuntimeScope scope(runtime.get());
  ASSIGN_OR_RETURN(auto executor, MakeExecutor(trace));
  std::atomic<int64_t> unread = 0;
  return TimeRuns(*executor, static_cast<int64_t>(trace.instructions.size()), replays, done == nullptr ? &unread : done);
}

absl::Status MeasureEfficiencies(int64_t busy_cores, const std::string& source, v1::Device* device) {
  ASSIGN_OR_RETURN(const auto fp32, MeasureIn(v1::FLOAT32, busy_cores, *device));
  ASSIGN_OR_RETURN(const auto bf16, MeasureIn(v1::BFLOAT16, busy_cores, *device));
  device->clear_efficiencies();
  for (const OpClass op_class : kClasses) {
    const auto found = fp32.find(op_class);
    if (found == fp32.end() || !(found->second.taken > 0))
      return absl::InternalError(absl::StrCat("the step that was measured has no ", OpClassName(op_class), " operators"));
    SetFraction(op_class, v1::DTYPE_UNSPECIFIED, found->second.ideal / found->second.taken, source, device);
  }
  for (const auto& [op_class, seconds] : bf16) {
    if (seconds.taken > 0) SetFraction(op_class, v1::BFLOAT16, seconds.ideal / seconds.taken, source, device);
  }
  return absl::OkStatus();
}

}  // namespace legoai::sim
