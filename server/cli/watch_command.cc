#include "server/cli/watch_command.h"

#include <cstdio>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/interrupt.h"
#include "server/cli/job_text.h"
#include "server/cli/output.h"
#include "server/cli/plan_text.h"
#include "server/cli/progress.h"
#include "server/cli/server_call.h"

namespace legoai::cli {
namespace {

int CodeOf(const v1::Job& job) { return job.state() == v1::SUCCEEDED ? kDone : kFailed; }

// One message of a stream: a line of JSON, or a document of YAML.
void PrintMessage(Format format, const google::protobuf::Message& message) {
  const Tree tree = ToTree(message);
  Print(format == Format::kYaml ? "---\n" + TreeText(format, tree) : tree.dump() + "\n");
}

int Detached(const Client& client, const std::string& name, ProgressLine* line) {
  line->Finish();
  const std::string server = client.address() == kDefaultServer ? "" : " --server " + client.address();
  std::fprintf(stderr, "the job goes on; watch it again: lego watch %s%s\n", IdOf(name).c_str(), server.c_str());
  return kInterrupted;
}

absl::StatusOr<std::string> NameOf(Client& client, const Arguments& arguments) {
  return FindJobName(client, arguments.positional()[0]);
}

// What the planner found, as soon as it has. A plan that cannot be fetched is no reason to end the watch.
void ShowPlan(Client& client, const std::string& name, ProgressLine* line) {
  v1::GetPlanRequest request;
  request.set_name(name);
  const auto plan = client.GetPlan(request);
  line->Note(plan.ok() ? absl::StrCat("\n", PlanText(*plan, /*all_rejected=*/false))
                       : absl::StrCat("the plan cannot be shown: ", plan.status().message()));
}

// Predicted beside measured, of the attempt that ended the job.
void PrintMeasured(Client& client, const std::string& name) {
  v1::ListAttemptsRequest request;
  request.set_parent(name);
  const auto attempts = client.ListAttempts(request);
  if (attempts.ok() && !attempts->attempts().empty()) Print(MeasuredText(*attempts->attempts().rbegin()));
}

std::optional<double> SecondsPerStep(const v1::Job& job, Pace* pace) {
  const v1::JobProgress& progress = job.progress();
  if (job.state() == v1::RUNNING && progress.has_step_seconds())
    return pace->Observe(progress.step(), progress.step_seconds(), absl::Now());
  pace->Forget();
  return std::nullopt;
}

template <typename Follow>
absl::StatusOr<int> Run(const Arguments& arguments, Follow follow) {
  ASSIGN_OR_RETURN(const auto client, ConnectTo(arguments));
  ASSIGN_OR_RETURN(const auto name, NameOf(*client, arguments));
  return follow(*client, name, arguments.format());
}

Command MakeCommand(const char* name, const char* summary, const char* details,
                    absl::StatusOr<int> (*follow)(Client&, const std::string&, Format)) {
  CommandSpec spec;
  spec.name = name;
  spec.summary = summary;
  spec.positional = "JOB";
  spec.least_positional = spec.most_positional = 1;
  spec.options = {ServerOption()};
  spec.details = details;
  spec.example = absl::StrCat("lego ", name, " 01JD5W");
  return {spec, [follow](const Arguments& arguments) { return Run(arguments, follow); }};
}

}  // namespace

absl::StatusOr<int> WatchToEnd(Client& client, const std::string& name, Format format) {
  InterruptGuard guard(InterruptGuard::ClosedOutput::kEndsProcess);
  ProgressLine line;
  Pace pace;
  v1::Job job;
  Client::WatchCallbacks callbacks;
  callbacks.news = [&](const v1::WatchJobResponse& news) {
    job = news.job();
    if (format != Format::kTable) return PrintMessage(format, news);
    for (const v1::Transition& transition : news.transitions()) {
      line.Note(TransitionText(transition));
      if (transition.to() == v1::QUEUED) ShowPlan(client, name, &line);
    }
    line.Show(ProgressText(job, news.has_planning() ? &news.planning() : nullptr, SecondsPerStep(job, &pace)));
  };
  callbacks.away = [&](const absl::Status& status) {
    line.ShowPassing(absl::StrCat(std::string(status.message()), "; trying again"));
  };
  callbacks.interrupted = [&] { return guard.interrupted(); };
  const absl::Status status = client.WatchJob(name, callbacks);
  if (absl::IsCancelled(status) && guard.interrupted()) return Detached(client, name, &line);
  line.Finish();
  if (!status.ok()) return status;
  if (format == Format::kTable) {
    Print(OutcomeText(job) + "\n");
    PrintMeasured(client, name);
  }
  return CodeOf(job);
}

absl::StatusOr<int> WaitForEnd(Client& client, const std::string& name, Format format) {
  InterruptGuard guard(InterruptGuard::ClosedOutput::kEndsProcess);
  ProgressLine line;
  v1::Job job;
  Client::WatchCallbacks callbacks;
  callbacks.news = [&](const v1::WatchJobResponse& news) { job = news.job(); };
  callbacks.interrupted = [&] { return guard.interrupted(); };
  const absl::Status status = client.WatchJob(name, callbacks);
  if (absl::IsCancelled(status) && guard.interrupted()) return Detached(client, name, &line);
  if (!status.ok()) return status;
  Print(format == Format::kTable ? OutcomeText(job) + "\n" : TreeText(format, ToTree(job)));
  return CodeOf(job);
}

Command WatchCommand() {
  return MakeCommand("watch",
                     "Shows a job live, to its end. Ctrl-C leaves it running. The exit code is 0 if it succeeded, 1 otherwise.",
                     "JOB is a resource name, an id, the beginning or end of one, or the job's name. When the server goes away, "
                     "the watch\ngoes on as soon as it is back. As JSON each message is a line, as YAML a document.",
                     WatchToEnd);
}

Command WaitCommand() {
  return MakeCommand("wait", "Waits for the end of a job. The exit code is 0 if it succeeded, 1 otherwise.",
                     "JOB is a resource name, an id, the beginning or end of one, or the job's name.", WaitForEnd);
}

}  // namespace legoai::cli
