#include <string>

#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/output.h"
#include "server/cli/whatif/trace_comparison.h"
#include "server/cli/whatif/trace_reader.h"

namespace legoai::cli {
namespace {

absl::StatusOr<int> Run(const Arguments& arguments) {
  constexpr int64_t kRows = 15;
  ASSIGN_OR_RETURN(const auto rows, arguments.Integer("rows", 1));
  ASSIGN_OR_RETURN(const auto predicted, ReadStepTrace("PREDICTED", arguments.positional()[0]));
  ASSIGN_OR_RETURN(const auto measured, ReadStepTrace("MEASURED", arguments.positional()[1]));
  ASSIGN_OR_RETURN(const auto comparison, CompareTraces(predicted, measured));
  Print(arguments.format() == Format::kTable ? TraceComparisonText(comparison, static_cast<size_t>(rows.value_or(kRows)))
                                             : TreeText(arguments.format(), TraceComparisonTree(comparison)));
  return kDone;
}

}  // namespace

Command CompareTraceCommand() {
  CommandSpec spec;
  spec.name = "compare-trace";
  spec.summary = "Compares the traces of a predicted and a measured step: where they part.";
  spec.positional = "PREDICTED MEASURED";
  spec.least_positional = spec.most_positional = 2;
  spec.options = {{"rows", "N", "streams, phases and modules that are shown (15); -o json has all"}};
  spec.details =
      "PREDICTED is a file of `lego simulate --trace`, MEASURED one of traces/ in a run's folder, which the recipe's "
      "metrics.trace_steps asks for, of the same recipe. The rows of the compute stream, and what has no phase, add up to the "
      "step; other streams run beside it.";
  spec.example = "lego compare-trace step.json.gz runs/job/traces/step-3-rank-0.json.gz";
  return {spec, Run};
}

}  // namespace legoai::cli
