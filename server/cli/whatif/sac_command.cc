// `lego sac`: which activations to keep for a budget of memory.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/checkpoint/files.h"
#include "planner/auto_sac.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/interrupt.h"
#include "server/cli/job.h"
#include "server/cli/output.h"
#include "server/cli/whatif/sac_output.h"

namespace legoai::cli {
namespace {

absl::StatusOr<planner::SacOptions> ReadOptions(const Arguments& arguments, const v1::SimRequest& request) {
  planner::SacOptions options;
  const v1::Device& device = request.cluster().device();
  const std::string text = arguments.Text("budget");
  const auto budget = ReadBytes(text, static_cast<double>(device.memory_bytes()));
  if (!budget || *budget < 1)
    return FieldError("--budget", text, "give the memory that a rank may take, as 20GiB, 512MiB or 85% of a device's");
  options.budget_bytes = static_cast<int64_t>(*budget);
  const std::string solver = arguments.Text("solver", planner::LocalSolverNames().front());
  const auto& names = planner::LocalSolverNames();
  const auto found = std::find(names.begin(), names.end(), solver);
  if (found == names.end()) return FieldError("--solver", solver, absl::StrCat("must be one of ", absl::StrJoin(names, ", ")));
  options.solver = static_cast<planner::LocalSolver>(found - names.begin());
  return options;
}

absl::Status WriteOutputs(const planner::SacResult& result, const std::string& svg, const std::string& out) {
  for (const auto& [file, text] : {std::pair(svg, SacSvg(result)), {out, SacToml(result)}}) {
    if (file.empty()) continue;
    RETURN_IF_ERROR(checkpoint::WriteFile(file, text));
    std::fprintf(stderr, "wrote %s\n", file.c_str());
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto svg, OutputPath(arguments, "svg"));
  ASSIGN_OR_RETURN(const auto out, OutputPath(arguments, "out"));
  ASSIGN_OR_RETURN(const auto request, ReadSimRequest(arguments.Text("recipe"), arguments));
  ASSIGN_OR_RETURN(auto options, ReadOptions(arguments, request));
  InterruptGuard guard;
  options.cancel = [&guard] { return guard.interrupted(); };
  ASSIGN_OR_RETURN(const auto processes, SimProcesses());
  ProgressLine line;
  line.ShowPassing("the step is captured, and policies are simulated");
  const auto result = planner::AutoSac(request, options, *processes);
  line.Clear();
  if (absl::IsResourceExhausted(result.status()) && GetFieldViolation(result.status())) {
    std::fprintf(stderr, "lego sac: nothing fits: %s\n", std::string(result.status().message()).c_str());
    return kNothingFits;
  }
  RETURN_IF_ERROR(result.status());
  Print(arguments.format() == Format::kTable ? SacText(*result, options.budget_bytes)
                                             : TreeText(arguments.format(), SacTree(*result, options.budget_bytes)));
  RETURN_IF_ERROR(WriteOutputs(*result, svg, out));
  return kDone;
}

}  // namespace

Command SacCommand() {
  CommandSpec spec;
  spec.name = "sac";
  spec.summary = "Chooses which activations to keep and which to compute again, for a budget of memory. Exit code 3: none fits.";
  spec.options = {
      {"model", "M", "config.json, its folder, or a name of `lego models`; the recipe's [model] name if it is not given"},
      {"cluster", "C", "TYPE:DEVICES_PER_NODExNODES[@LINK] (`lego hardware`), or a Cluster as a text-format file", false, true},
      {"recipe", "R.toml", "the recipe; its activation_checkpoint is replaced", false, true},
      {"budget", "BYTES", "peak memory of a rank: 20GiB, 512MiB, or 85% of a device's", false, true},
      {"solver", "NAME", "of a block's operators: greedy, knapsack or ilp (greedy)"},
      {"svg", "FILE", "draws a block's memory against its recomputation"},
      {"out", "FILE", "writes the policy, as lines of a recipe"}};
  spec.recipe_keys = true;
  spec.details =
      "The step is captured with all blocks recomputed; a linear program over blocks and an algorithm over the operators of each "
      "choose what is kept. Every policy is simulated before it is believed.";
  spec.example = "lego sac --model llama3-8b --cluster h100-sxm-80:8x1 --recipe recipe.toml --budget 40GiB --svg curve.svg";
  return {spec, Run};
}

}  // namespace legoai::cli
