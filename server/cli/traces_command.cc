// `lego traces`: the measured traces of a job's steps, and the predicted one, listed and fetched.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/files.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/interrupt.h"
#include "server/cli/job.h"
#include "server/cli/job_text.h"
#include "server/cli/output.h"
#include "server/cli/server_call.h"

namespace legoai::cli {
namespace {

absl::Status CheckCall(const Arguments& arguments) {
  const bool out = arguments.Has("out");
  for (const char* option : {"step", "predicted"}) {
    if (arguments.Has(option) && !out) return FieldError(absl::StrCat("--", option), "", "goes with --out FILE");
  }
  for (const char* option : {"rank", "attempt"}) {
    if (arguments.Has(option) && !arguments.Has("step"))
      return FieldError(absl::StrCat("--", option), arguments.Text(option), "goes with --step");
  }
  if (out && arguments.Has("step") == arguments.Has("predicted"))
    return FieldError("--out", arguments.Text("out"), "needs one of --step S and --predicted");
  return absl::OkStatus();
}

absl::StatusOr<v1::ListStepTracesResponse> ListAll(Client& client, const std::string& job) {
  v1::ListStepTracesRequest request;
  request.set_parent(job);
  return client.ListStepTraces(request);
}

// The one that is asked for: of several attempts the latest, of several ranks the first.
absl::StatusOr<v1::TraceFile> FetchMeasured(Client& client, const std::string& job, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto step, arguments.Integer("step", 1));
  ASSIGN_OR_RETURN(const auto rank, arguments.Integer("rank", 0));
  ASSIGN_OR_RETURN(const auto attempt, arguments.Integer("attempt", 1));
  ASSIGN_OR_RETURN(const auto all, ListAll(client, job));
  std::optional<v1::StepTraceInfo> chosen;
  for (const v1::StepTraceInfo& trace : all.step_traces()) {
    const bool asked = trace.step() == *step && trace.rank() == rank.value_or(trace.rank()) &&
                       trace.attempt() == attempt.value_or(trace.attempt());
    if (asked && (!chosen || trace.attempt() > chosen->attempt())) chosen = trace;
  }
  if (!chosen) {
    return FieldError("--step", absl::StrCat(*step),
                      absl::StrCat("has no such trace; `lego traces ", IdOf(job), "` lists those that are"),
                      absl::StatusCode::kNotFound);
  }
  v1::GetStepTraceRequest request;
  request.set_name(chosen->name());
  return client.GetStepTrace(request);
}

absl::StatusOr<v1::TraceFile> FetchPredicted(Client& client, const std::string& job) {
  v1::GetPredictedTraceRequest request;
  request.set_name(job);
  InterruptGuard guard;
  ProgressLine line;
  line.ShowPassing("the server captures the step and simulates it");
  auto file = client.GetPredictedTrace(request, [&guard] { return guard.interrupted(); });
  line.Clear();
  return file;
}

absl::StatusOr<int> Fetch(Client& client, const std::string& job, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto out, OutputPath(arguments, "out"));
  ASSIGN_OR_RETURN(const auto file, arguments.Has("step") ? FetchMeasured(client, job, arguments) : FetchPredicted(client, job));
  RETURN_IF_ERROR(checkpoint::WriteFile(out, file.trace_gzip()));
  std::fprintf(stderr, "wrote %s, %s (open it in ui.perfetto.dev or chrome://tracing)\n", arguments.Text("out").c_str(),
               BytesText(static_cast<double>(file.trace_gzip().size())).c_str());
  return kDone;
}

absl::StatusOr<int> List(Client& client, const std::string& job, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto all, ListAll(client, job));
  Tree list = Tree::array();
  Table table({"attempt", "step", "rank", "size", "<traced"});
  for (const v1::StepTraceInfo& trace : all.step_traces()) {
    list.push_back(ToTree(trace));
    table.Add({std::to_string(trace.attempt()), WithCommas(trace.step()), std::to_string(trace.rank()),
               BytesText(static_cast<double>(trace.bytes())), TimeText(trace.time_us())});
  }
  if (arguments.format() != Format::kTable) {
    Print(TreeText(arguments.format(), list));
  } else if (table.empty()) {
    Print("no step of " + job + " was traced; the recipe's metrics.trace_steps names steps to trace, and --predicted --out FILE "
          "gives the predicted one\n");
  } else {
    Print(table.Text());
  }
  return kDone;
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  RETURN_IF_ERROR(CheckCall(arguments));
  ASSIGN_OR_RETURN(const auto client, ConnectTo(arguments));
  ASSIGN_OR_RETURN(const auto job, FindJobName(*client, arguments.positional()[0]));
  return arguments.Has("out") ? Fetch(*client, job, arguments) : List(*client, job, arguments);
}

}  // namespace

Command TracesCommand() {
  CommandSpec spec;
  spec.name = "traces";
  spec.summary = "Lists the steps of a job that were traced, and fetches a trace: of a step, or the predicted one.";
  spec.positional = "JOB";
  spec.least_positional = spec.most_positional = 1;
  spec.options = {{"out", "FILE.json.gz", "writes the trace of --step, or --predicted, for ui.perfetto.dev"},
                  {"step", "S", "which step"},
                  {"rank", "R", "of this rank; else of the first that was traced"},
                  {"attempt", "A", "of this attempt; else of the latest"},
                  {"predicted", "", "the step as it is predicted for the slots that the job was planned for"},
                  ServerOption()};
  spec.details =
      "A server keeps the latest 256 traces of a job, and of these 32 MiB at most. Which steps and ranks are traced is in the "
      "recipe:\nmetrics.trace_steps and metrics.trace_ranks.";
  spec.example = "lego traces 01JD5W --step 100 --out step-100.json.gz";
  return {spec, Run};
}

}  // namespace legoai::cli
