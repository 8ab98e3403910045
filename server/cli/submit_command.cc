// A job to its end: `lego submit`, which may follow it, `lego watch` and `lego wait`.
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "core/recipe/recipe.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/interrupt.h"
#include "server/cli/job.h"
#include "server/cli/job_file.h"
#include "server/cli/job_text.h"
#include "server/cli/output.h"
#include "server/cli/prediction_text.h"
#include "server/cli/server_call.h"

namespace legoai::cli {
namespace {

int CodeOf(const v1::Job& job) { return job.state() == v1::SUCCEEDED ? kDone : kFailed; }

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

// Shows the job on standard error until its end: changes of state, and a line of progress. As JSON or YAML every message of the
// watch goes to standard output, one a line or document. The exit code is that of the job; kInterrupted where the user has left,
// which the job does not notice.
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

// Waits for the end without a word, then prints how it ended, or the job as JSON or YAML. The same exit codes.
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

template <typename Follow>
absl::StatusOr<int> RunFollow(const Arguments& arguments, Follow follow) {
  ASSIGN_OR_RETURN(const auto client, ConnectTo(arguments));
  ASSIGN_OR_RETURN(const auto name, NameOf(*client, arguments));
  return follow(*client, name, arguments.format());
}

Command FollowCommand(const char* name, const char* summary, const char* details,
                      absl::StatusOr<int> (*follow)(Client&, const std::string&, Format)) {
  CommandSpec spec;
  spec.name = name;
  spec.summary = summary;
  spec.positional = "JOB";
  spec.least_positional = spec.most_positional = 1;
  spec.options = {ServerOption()};
  spec.details = details;
  spec.example = absl::StrCat("lego ", name, " 01JD5W");
  return {spec, [follow](const Arguments& arguments) { return RunFollow(arguments, follow); }};
}

// One of its own for every call of the command, so that asking again after a broken connection makes no second job.
std::string NewRequestId() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&id, absl::StrFormat("%08x", static_cast<uint32_t>(random())));
  return id;
}

// The server's errors name fields of the request; who wrote JOB.toml knows its keys.
absl::Status InTermsOfFile(const absl::Status& status, const std::string& path) {
  const auto violation = GetFieldViolation(status);
  if (!violation || KeyOf(violation->field()) == violation->field()) return status;
  return Annotate(FieldError(KeyOf(violation->field()), violation->value(), violation->remedy(), status.code()), path);
}

absl::StatusOr<v1::CreateJobRequest> ReadRequest(const Arguments& arguments) {
  v1::CreateJobRequest request;
  ASSIGN_OR_RETURN(auto spec, ReadJobFile(arguments.positional()[0], arguments.recipe_keys()));
  if (arguments.Has("name")) spec.set_display_name(arguments.Text("name"));
  ASSIGN_OR_RETURN(const auto project, ProjectOf(arguments));
  request.set_parent(project);
  request.set_request_id(arguments.Has("request-id") ? arguments.Text("request-id") : NewRequestId());
  request.set_validate_only(arguments.Has("check"));
  *request.mutable_spec() = std::move(spec);
  v1::Recipe recipe = request.spec().recipe();
  parallel::FillDefaults(&recipe);
  for (const std::string& note : {WarmUpNote(recipe), ContextNote(recipe, request.spec().model())}) {
    if (!note.empty()) std::fprintf(stderr, "%s\n", note.c_str());
  }
  if (request.spec().dataset().sha256().empty()) {
    std::fprintf(stderr, "note: %s is not visible here; the workers look for it\n", request.spec().dataset().uri().c_str());
  }
  if (request.spec().recipe().job().has_dump_folder()) {
    std::fprintf(stderr, "note: job.dump_folder is for `lego train`; a submitted job's folders are in --runs of the agents\n");
  }
  return request;
}

absl::StatusOr<int> RunSubmit(const Arguments& arguments) {
  if (arguments.Has("wait") && arguments.Has("watch")) return FieldError("--wait", "", "and --watch exclude each other");
  if (arguments.Has("check") && (arguments.Has("wait") || arguments.Has("watch")))
    return FieldError("--check", "", "submits nothing that could be waited for");
  ASSIGN_OR_RETURN(const auto client, ConnectTo(arguments));
  ASSIGN_OR_RETURN(const auto request, ReadRequest(arguments));
  const auto job = client->CreateJob(request);
  if (!job.ok()) return InTermsOfFile(job.status(), arguments.positional()[0]);
  const bool table = arguments.format() == Format::kTable, follow = arguments.Has("wait") || arguments.Has("watch");
  if (request.validate_only()) {
    Print(table ? std::string("everything that can be checked before is in order; nothing was submitted\n")
                : TreeText(arguments.format(), ToTree(*job)));
    return kDone;
  }
  if (follow) {
    std::fprintf(stderr, "submitted %s\n", job->name().c_str());
    return arguments.Has("wait") ? WaitForEnd(*client, job->name(), arguments.format())
                                 : WatchToEnd(*client, job->name(), arguments.format());
  }
  if (!table) {
    Print(TreeText(arguments.format(), ToTree(*job)));
    return kDone;
  }
  Print(absl::StrCat("submitted ", job->name(), "\n"));
  std::fprintf(stderr, "watch it: lego watch %s\n", IdOf(job->name()).c_str());
  return kDone;
}

}  // namespace

Command SubmitCommand() {
  CommandSpec spec;
  spec.name = "submit";
  spec.summary = "Submits a job to a server, which plans it, and trains it as soon as there is room.";
  spec.positional = "JOB.toml";
  spec.least_positional = spec.most_positional = 1;
  spec.options = {{"request-id", "ID", "the same id with the same content gives the same job again; 8 to 64 characters"},
                  {"name", "NAME", "for people; job.description, or the model's name, if it is not given"},
                  {"wait", "", "waits for the end; the exit code is 0 if the job succeeded, 1 otherwise"},
                  {"watch", "", "the same, and shows it live"},
                  {"check", "", "checks everything that can be checked before, and submits nothing"},
                  ServerOption()};
  spec.recipe_keys = true;
  spec.details =
      "JOB.toml has the sections of a recipe beside [resources], [planning] and [policy]; paths in it are made absolute.\n"
      "A list on the command line has commas: --planning.constraints=parallelism.tensor_parallel_degree=1,"
      "training.local_batch_size=4";
  spec.example = "lego submit examples/job.toml --watch";
  return {spec, RunSubmit};
}

Command WatchCommand() {
  return FollowCommand(
      "watch", "Shows a job live, to its end. Ctrl-C leaves it running. The exit code is 0 if it succeeded, 1 otherwise.",
      "JOB is a resource name, an id, the beginning or end of one, or the job's name. When the server goes away, "
      "the watch\ngoes on as soon as it is back. As JSON each message is a line, as YAML a document.",
      WatchToEnd);
}

Command WaitCommand() {
  return FollowCommand("wait", "Waits for the end of a job. The exit code is 0 if it succeeded, 1 otherwise.",
                       "JOB is a resource name, an id, the beginning or end of one, or the job's name.", WaitForEnd);
}

}  // namespace legoai::cli
