#include "simulator/measure/step_efficiency.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/status.h"
#include "simulator/capture/capture_stages.h"
#include "simulator/cost/compute_cost.h"
#include "simulator/cost/op_facts.h"
#include "simulator/measure/operator_benchmark.h"

namespace legoai::sim {
namespace {

constexpr OpClass kClasses[] = {OpClass::kMatmul,    OpClass::kAttention, OpClass::kElementwise,
                                OpClass::kReduction, OpClass::kCopy,      OpClass::kOptimizer};

// As large as models are that somebody trains on a CPU.
v1::Model SmallLlama() {
  v1::Model model;
  model.set_architecture(v1::LLAMA);
  model.set_hidden_size(256);
  model.set_num_attention_heads(8);
  model.set_num_key_value_heads(4);
  model.set_head_dim(32);
  model.set_intermediate_size(768);
  model.set_num_hidden_layers(2);
  model.set_vocab_size(1024);
  model.set_max_position_embeddings(256);
  model.set_norm_eps(1e-5);
  model.set_rope_theta(10000);
  model.set_initializer_range(0.02);
  return model;
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
