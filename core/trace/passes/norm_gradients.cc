#include "core/trace/passes/norm_gradients.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/trace/effects.h"
#include "core/trace/passes/fusion_groups.h"
#include "core/trace/passes/rewriter.h"

namespace legoai::graph {
namespace {

constexpr char kRmsNorm[] = "lego::rms_norm_backward", kRmsNormWeight[] = "lego::rms_norm_backward.weight";
constexpr char kLayerNorm[] = "aten::native_layer_norm_backward";
constexpr int kRmsRstd = 3, kLayerNormMask = 7;  // argument positions

constexpr Argument kNothing = {Argument::Kind::kUndefined, 0};

struct Parts {
  Instruction input, weights;
};

// lego::rms_norm_backward(grad, x, weight, rstd) -> (grad_x, grad_weight)
std::optional<Parts> PartsOfRmsNorm(const Instruction& whole, Rewriter* rewriter) {
  const Trace& trace = rewriter->trace();
  const InstructionView op(trace, whole);
  if (op.Input(kRmsRstd) == nullptr || op.Result(1) == nullptr) return std::nullopt;
  // As one number of each row it has a last dimension.
  Geometry column = op.GeometryOf(*op.Input(kRmsRstd));
  column.sizes.push_back(1), column.strides.push_back(1);
  const uint32_t storage = op.Input(kRmsRstd)->storage, grad_weight = trace.results[whole.first_result + 1].index;
  std::vector<Argument> read;
  for (const int position : FindNormGradient(kRmsNorm)->weight_reads)
    read.push_back(trace.arguments[whole.first_argument + position]);
  const Argument rstd = {Argument::Kind::kValue, rewriter->AddValue(storage, std::move(column))};
  Parts parts;
  parts.input = rewriter->Again(whole, {{.argument = kRmsRstd, .to = rstd}, {.result = 1, .to = kNothing}});
  parts.weights = rewriter->Make(whole, kRmsNormWeight, 0, read, {grad_weight}, whole.stream);
  return parts;
}

// aten::native_layer_norm_backward(grad, x, shape, mean, rstd, weight, bias, mask) -> (grad_x, grad_weight, grad_bias): the mask
// says what it gives.
std::optional<Parts> PartsOfLayerNorm(const Instruction& whole, Rewriter* rewriter) {
  const InstructionView op(rewriter->trace(), whole);
  const auto mask = op.Constant<std::vector<bool>>(kLayerNormMask);
  if (!mask || mask->size() != 3 || !(*mask)[0] || op.Result(0) == nullptr) return std::nullopt;
  if (op.Result(1) == nullptr && op.Result(2) == nullptr) return std::nullopt;
  const auto constant = [&](std::vector<bool> flags) {
    return Argument{Argument::Kind::kConstant, rewriter->AddConstant(std::move(flags))};
  };
  Parts parts;
  const Argument first = constant({true, false, false}), second = constant({false, (*mask)[1], (*mask)[2]});
  parts.input = rewriter->Again(whole, {{.argument = kLayerNormMask, .to = first},
                                        {.result = 1, .to = kNothing},
                                        {.result = 2, .to = kNothing}});
  parts.weights = rewriter->Again(whole, {{.argument = kLayerNormMask, .to = second}, {.result = 0, .to = kNothing}});
  return parts;
}

}  // namespace

const NormGradient* FindNormGradient(std::string_view name) {
  static const auto* const gradients = new std::vector<NormGradient>{
      {.name = kRmsNorm, .weight_name = kRmsNormWeight, .weight_reads = {0, 1, kRmsRstd}, .reads_once = false},
      {.name = kLayerNorm, .weight_name = {}, .weight_reads = {0, 1, 3, 4}, .reads_once = true},
  };
  const auto found = std::find_if(gradients->begin(), gradients->end(),
                                  [&](const NormGradient& of) { return of.name == name || of.weight_name == name; });
  return found == gradients->end() ? nullptr : &*found;
}

SplitTrace SplitNormGradients(const Trace& trace, const std::set<uint32_t>& whole) {
  Rewriter rewriter(trace);
  SplitTrace split;
  for (uint32_t i = 0; i < rewriter.size(); ++i) {
    const Instruction instruction = rewriter.At(i);
    if (instruction.kind != Instruction::Kind::kOperator || whole.count(i) > 0) continue;
    const std::string& name = rewriter.trace().OperatorName(instruction);
    if (name != kRmsNorm && name != kLayerNorm) continue;
    const auto parts = name == kRmsNorm ? PartsOfRmsNorm(instruction, &rewriter) : PartsOfLayerNorm(instruction, &rewriter);
    if (!parts || !FusionCandidateOf(rewriter.trace(), parts->input)) continue;
    rewriter.Remove(i);
    rewriter.Insert(i, parts->input);
    rewriter.Insert(i, parts->weights);
    const auto added = static_cast<uint32_t>(split.input_parts.size());  // one instruction more for each before
    split.input_parts[i] = i + added;
  }
  split.trace = rewriter.Finish();
  return split;
}

}  // namespace legoai::graph
