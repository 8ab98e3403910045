#include "simulator/measure/replay_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/operators/op_facts.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::sim {
namespace {

// From so much slower than float32 on, a type is said to have no fast kernels here.
constexpr double kSlow = 3;

bool IsProduct(OpClass op_class) { return op_class == OpClass::kMatmul || op_class == OpClass::kAttention; }

double Slower(const CoreSpeed& speed) { return speed.float32_flops_per_second / speed.flops_per_second; }

std::string WhySlow(const CoreSpeed& speed) {
  const std::string dtype(EnumText(speed.dtype));
  return absl::StrFormat("%s without fast kernels on this CPU: about %.0f times slower than float32", dtype, Slower(speed));
}

template <class Use>
absl::Status ForEachOperator(const graph::Trace& trace, Use use) {
  ASSIGN_OR_RETURN(auto rows, ResolveOperators(trace));
  for (size_t i = 0; i < trace.instructions.size(); ++i) {
    const graph::Instruction& instruction = trace.instructions[i];
    if (instruction.kind != graph::Instruction::Kind::kOperator) continue;
    const OperatorRow& row = *rows[instruction.operator_index];
    use(i, FactsOf(graph::InstructionView(trace, instruction), row));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<double>> PredictSeconds(const graph::Trace& trace, const CoreSpeed& speed) {
  std::vector<double> seconds(trace.instructions.size(), 0);
  const absl::Status status = ForEachOperator(trace, [&](size_t i, const OpFacts& facts) {
    const double rate = facts.dtype == speed.dtype ? speed.flops_per_second : speed.float32_flops_per_second;
    const double arithmetic = IsProduct(facts.op_class) ? facts.flops / rate : 0;
    seconds[i] = std::max(arithmetic, static_cast<double>(facts.bytes()) / speed.bytes_per_second);
  });
  if (!status.ok()) return status;
  return seconds;
}

absl::StatusOr<v1::DType> ProductDtype(const std::vector<StageTrace>& stages) {
  std::map<v1::DType, double> flops;
  flops[v1::FLOAT32] = 0;
  for (const StageTrace& stage : stages) {
    const absl::Status status = ForEachOperator(*stage.trace, [&](size_t, const OpFacts& facts) {
      if (IsProduct(facts.op_class)) flops[facts.dtype] += facts.flops;
    });
    if (!status.ok()) return status;
  }
  return std::max_element(flops.begin(), flops.end(), [](auto& a, auto& b) { return a.second < b.second; })->first;
}

absl::StatusOr<Replays> PlanReplays(double seconds_of_one, const CoreSpeed& speed) {
  constexpr int kFewest = 2;
  Replays replays;
  if (seconds_of_one * replays.all() <= kReplaySeconds) return replays;
  if (seconds_of_one * kFewest > kMostReplaySeconds) {
    const bool slow = Slower(speed) >= kSlow;
    return FieldError(
        "--benchmark", std::string(EnumText(speed.dtype)),
        absl::StrFormat(
            "would replay the step %d times, of about %.0f s each%s; %ssimulate without --benchmark, or take a smaller "
            "step",
            kFewest, seconds_of_one, slow ? " (" + WhySlow(speed) + ")" : "",
            slow ? "choose training.mixed_precision_param=float32, " : ""));
  }
  const int all = std::max(kFewest, static_cast<int>(kReplaySeconds / seconds_of_one));
  replays.warm_up = all > 3 ? 2 : 1;
  replays.timed = all - replays.warm_up;
  return replays;
}

std::string ReplayText(const Replays& replays, const CoreSpeed& speed) {
  std::string text = absl::StrCat("replaying the step ", replays.all(), " times");
  if (replays.all() < Replays().all()) absl::StrAppend(&text, " instead of ", Replays().all(), ", as it is slow");
  if (Slower(speed) < kSlow) return text;
  return absl::StrCat(text, " (", WhySlow(speed), "; training.mixed_precision_param=float32 is faster here)");
}

v1::SimProgress ReplayProgress(const std::string& text, const Replays& replays, const PredictedStages& predicted, int64_t done,
                               double elapsed_seconds) {
  constexpr double kTrusted = 0.05;  // of the whole, from which on what it took says more than what was predicted
  double all = 0, past = 0;
  int64_t total = 0, left = done;
  for (const std::vector<double>& stage : predicted) {
    const int64_t round = static_cast<int64_t>(stage.size()), here = std::min(left, round * replays.all());
    const double once = std::accumulate(stage.begin(), stage.end(), 0.0);
    all += once * replays.all();
    total += round * replays.all();
    if (round > 0) {
      past += once * static_cast<double>(here / round);
      past += std::accumulate(stage.begin(), stage.begin() + here % round, 0.0);
    }
    left -= here;
  }
  const double share = all > 0 ? std::min(past / all, 1.0) : 1;
  v1::SimProgress progress;
  progress.set_phase(text);
  progress.set_done(done);
  progress.set_total(total);
  progress.set_elapsed_seconds(elapsed_seconds);
  const double rest = share < kTrusted ? all - elapsed_seconds : elapsed_seconds * (1 - share) / share;
  progress.set_remaining_seconds(std::max(0.0, rest));
  return progress;
}

}  // namespace legoai::sim
