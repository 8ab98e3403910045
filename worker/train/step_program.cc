#include "worker/train/step_program.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/trace/device_results.h"
#include "core/trace/passes/pipeline.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "worker/comm/runtime.h"
#include "worker/comm/status_error.h"
#include "worker/graph/fused_operator.h"
#include "worker/train/agreement.h"
#include "worker/train/capture_step.h"

namespace legoai::train {

namespace {

// The same recipe, whose programs need no compiler.
absl::StatusOr<parallel::ResolvedRecipe> WithoutFusion(const parallel::ResolvedRecipe& resolved) {
  v1::Recipe recipe = resolved.recipe();
  recipe.mutable_compile()->set_fuse(false);
  return parallel::ResolvedRecipe::Create(recipe, resolved.model(), resolved.mesh().world());
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepProgram>> StepProgram::Capture(const parallel::ResolvedRecipe& resolved, Part part,
                                                                 c10::Device device, const graph::GoesOn& goes_on) {
  graph::Trace trace;
  std::optional<graph::Trace> unfused;
  const v1::CompileSection& compile = resolved.recipe().compile();
  const int64_t rank = comm::CurrentRuntime().rank();
  RETURN_IF_ERROR(comm::CatchStatus([&] {
    ASSIGN_OR_RETURN(auto result, part == Part::kStep ? CaptureStep(resolved, rank) : CaptureEvaluation(resolved, rank));
    trace = std::move(result.trace);
    graph::PassOptions options;
    options.device = device.is_cpu() ? v1::CPU : v1::CUDA;
    if (part == Part::kEvaluation) {  // it has no backward, which passes look for
      trace = graph::ProgramFor(options.device, std::move(trace));
      return absl::OkStatus();
    }
    options.check = options.check || compile.fuse();  // it writes new programs; a wrong one must not train
    if (compile.fuse() && compile.fall_back_to_eager()) {
      ASSIGN_OR_RETURN(const auto plain, WithoutFusion(resolved));
      ASSIGN_OR_RETURN(unfused, graph::RunPasses(trace, plain, options));
    }
    ASSIGN_OR_RETURN(trace, graph::RunPasses(std::move(trace), resolved, options));
    return absl::OkStatus();
  }));
  // A host value, or memory that nobody named, would be that of the capture for ever.
  if (!trace.warnings.empty()) return absl::UnimplementedError(trace.warnings.front());
  auto program = std::unique_ptr<StepProgram>(new StepProgram(std::move(trace), device));
  program->unfused_ = std::move(unfused);
  const absl::Status prepared = program->PrepareKernels(goes_on);
  if (!program->unfused_) RETURN_IF_ERROR(prepared);
  program->kernels_fault_ = std::string(prepared.message());
  return program;
}

absl::Status StepProgram::PrepareKernels(const graph::GoesOn& goes_on) {
  graph::KernelCounts counts;
  const absl::Status prepared = graph::PrepareKernels(trace_, device_, &counts, &notes_, goes_on);
  if (!prepared.ok()) return Annotate(prepared, "compile.fuse");
  if (counts.compiled == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string built_by, graph::KernelsAreBuiltBy(device_));
  notes_.push_back(absl::StrFormat("%d fused kernels were compiled in %.1f s by %s; %d came from the cache", counts.compiled,
                                   counts.seconds, built_by, counts.loaded));
  return absl::OkStatus();
}

void StepProgram::LeaveUnfused() {
  trace_ = *std::move(unfused_);
  unfused_.reset();
  notes_.clear();
}

absl::Status StepProgram::Bind(TrainStep& step) {
  ASSIGN_OR_RETURN(executor_, graph::Executor::Create(trace_, device_));
  unfused_.reset();
  RETURN_IF_ERROR(step.GatherParameters());
  for (const NamedTensor& state : step.State()) RETURN_IF_ERROR(executor_->Bind(state.name, state.tensor));
  return absl::OkStatus();
}

absl::StatusOr<TrainStep::Result> StepProgram::Run(bool traced) {
  RETURN_IF_ERROR(traced ? executor_->RunTraced() : executor_->Run());
  TrainStep::Result result;
  ASSIGN_OR_RETURN(result.loss, executor_->Output("loss"));
  if (trace_.outputs.count("grad_norm") > 0) {
    ASSIGN_OR_RETURN(result.grad_norm, executor_->Output("grad_norm"));
  }
  return result;
}

absl::StatusOr<StepPrograms> CapturePrograms(const parallel::ResolvedRecipe& resolved, c10::Device device,
                                             const graph::GoesOn& goes_on) {
  StepPrograms programs;
  if (!resolved.recipe().compile().enable()) return programs;
  ASSIGN_OR_RETURN(programs.step, StepProgram::Capture(resolved, StepProgram::Part::kStep, device, goes_on));
  if (resolved.recipe().validation().enable()) {
    ASSIGN_OR_RETURN(programs.evaluation, StepProgram::Capture(resolved, StepProgram::Part::kEvaluation, device, goes_on));
  }
  return programs;
}

namespace {

// All ranks call it at once. Kernels of another compiler, processor or card round otherwise.
absl::Status CheckKernelsAreOfOneKind(c10::Device device) {
  const auto built_by = graph::KernelsAreBuiltBy(device);
  const std::string mine = built_by.ok() ? *built_by : std::string(built_by.status().message());
  ASSIGN_OR_RETURN(const std::string difference, CompareTexts(mine, device));
  if (difference.empty()) return absl::OkStatus();
  return FieldError("compile.fuse", "true",
                    absl::StrCat("the ranks' kernels are built by different compilers, or for different processors or cards (",
                                 difference, "): give all hosts the same, or leave it at false"),
                    absl::StatusCode::kFailedPrecondition);
}

}  // namespace

absl::StatusOr<StepPrograms> AdoptPrograms(absl::StatusOr<StepPrograms> captured, const v1::CompileSection& section,
                                           TrainStep& step, c10::Device device, std::string* warning) {
  if (!section.enable()) return StepPrograms();
  ASSIGN_OR_RETURN(const std::string fault, AgreeOnFault(std::string(captured.status().message()), device));
  if (!fault.empty() && section.fall_back_to_eager()) {
    *warning = absl::StrCat("compile.enable: the step cannot be captured, and is trained as without it: ", fault);
    return StepPrograms();
  }
  if (!fault.empty()) {
    return FieldError("compile.enable", "true",
                      absl::StrCat("the step cannot be captured (", fault,
                                   "): leave it at false, or let compile.fall_back_to_eager train it so"),
                      absl::StatusCode::kUnimplemented);
  }
  if (section.fuse()) {
    ASSIGN_OR_RETURN(std::string no_kernels, AgreeOnFault(captured->step->kernels_fault(), device));
    if (no_kernels.empty()) {
      const absl::Status one_kind = CheckKernelsAreOfOneKind(device);
      if (!section.fall_back_to_eager() || !absl::IsFailedPrecondition(one_kind)) RETURN_IF_ERROR(one_kind);
      no_kernels = std::string(one_kind.message());
    }
    if (!no_kernels.empty()) {
      *warning = absl::StrCat("the step is trained as a program without fused operators: ", no_kernels);
      captured->step->LeaveUnfused();
    }
  }
  for (StepProgram* const program : {captured->step.get(), captured->evaluation.get()}) {
    if (program == nullptr) continue;
    ASSIGN_OR_RETURN(const std::string difference, CompareCollectives(program->trace(), device));
    if (!difference.empty()) return FieldError("compile.enable", "true", difference, absl::StatusCode::kInternal);
    RETURN_IF_ERROR(program->Bind(step));
  }
  return captured;
}

}  // namespace legoai::train
