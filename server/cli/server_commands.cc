#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/interrupt.h"
#include "server/cli/job_text.h"
#include "server/cli/output.h"
#include "server/cli/prediction_text.h"
#include "server/cli/server_call.h"
#include "server/cli/worker_text.h"
#include "server/jobs/transition.h"

namespace legoai::cli {
namespace {

constexpr int64_t kListed = 50;
constexpr int64_t kMostPage = 1000;

absl::StatusOr<v1::ListJobsResponse> ListSome(Client& client, const std::string& filter, int64_t limit) {
  v1::ListJobsResponse all;
  v1::ListJobsRequest request;
  request.set_parent(client.project());
  request.set_filter(filter);
  do {
    request.set_page_size(std::min(limit - all.jobs_size(), kMostPage));
    ASSIGN_OR_RETURN(auto page, client.ListJobs(request));
    for (v1::Job& job : *page.mutable_jobs()) *all.add_jobs() = std::move(job);
    all.set_total_size(page.total_size());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && all.jobs_size() < limit);
  return all;
}

absl::StatusOr<int> List(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto limit, arguments.Integer("limit", 1));
  ASSIGN_OR_RETURN(const auto client, ConnectTo(arguments));
  ASSIGN_OR_RETURN(const auto jobs, ListSome(*client, arguments.Text("filter"), limit.value_or(kListed)));
  if (arguments.format() != Format::kTable) {
    Tree list = Tree::array();
    for (const v1::Job& job : jobs.jobs()) list.push_back(ToTree(job));
    Print(TreeText(arguments.format(), list));
    return kDone;
  }
  if (jobs.jobs().empty()) {
    Print(arguments.Has("filter") ? "no job matches\n" : "no jobs; submit one: lego submit examples/job.toml\n");
    return kDone;
  }
  Print(JobsTable(jobs.jobs()));
  if (jobs.total_size() > jobs.jobs_size()) {
    std::fprintf(stderr, "the latest %d of %lld; --limit gives more\n", jobs.jobs_size(),
                 static_cast<long long>(jobs.total_size()));
  }
  return kDone;
}

// The latest report that tells of them.
absl::StatusOr<std::string> RanksOf(Client& client, const std::string& name) {
  v1::QueryMetricsRequest request;
  request.set_name(name);
  request.set_max_points(2);
  request.set_max_rank_reports(1);
  ASSIGN_OR_RETURN(const auto metrics, client.QueryMetrics(request));
  if (metrics.rank_reports().empty()) return std::string("\nno report of this job says how its ranks spent their time\n");
  return RanksText(*metrics.rank_reports().rbegin());
}

absl::StatusOr<int> Get(Client& client, const std::string& name, const Arguments& arguments) {
  v1::GetJobRequest request;
  request.set_name(name);
  ASSIGN_OR_RETURN(const auto job, client.GetJob(request));
  if (arguments.format() != Format::kTable) {
    Print(TreeText(arguments.format(), ToTree(job)));
    return kDone;
  }
  v1::ListAttemptsRequest attempts_request;
  attempts_request.set_parent(name);
  ASSIGN_OR_RETURN(const auto attempts, client.ListAttempts(attempts_request));
  Print(JobText(job, attempts.attempts()));
  if (!attempts.attempts().empty()) Print(MeasuredText(*attempts.attempts().rbegin()));
  if (arguments.Has("ranks")) {
    ASSIGN_OR_RETURN(const auto ranks, RanksOf(client, name));
    Print(ranks);
  }
  if (!arguments.Has("plan")) return kDone;
  v1::GetPlanRequest plan_request;
  plan_request.set_name(name);
  ASSIGN_OR_RETURN(const auto plan, client.GetPlan(plan_request));
  Print("\n" + PlanText(plan, /*all_rejected=*/true));
  return kDone;
}

// Of --grace, which goes with `option`; 0: the server's own.
absl::StatusOr<double> GraceOf(const Arguments& arguments, const char* option) {
  ASSIGN_OR_RETURN(const auto grace, arguments.Integer("grace", 1));
  if (grace && !arguments.Has(option)) return FieldError("--grace", absl::StrCat(*grace), absl::StrCat("goes with --", option));
  return static_cast<double>(grace.value_or(0));
}

absl::StatusOr<int> Cancel(Client& client, const std::string& name, const Arguments& arguments) {
  v1::CancelJobRequest request;
  request.set_name(name);
  request.set_reason(arguments.Text("reason"));
  request.set_save(arguments.Has("save"));
  ASSIGN_OR_RETURN(const double grace, GraceOf(arguments, "save"));
  request.set_grace_seconds(grace);
  ASSIGN_OR_RETURN(const auto job, client.CancelJob(request));
  Print(arguments.format() == Format::kTable ? OutcomeText(job) + "\n" : TreeText(arguments.format(), ToTree(job)));
  return kDone;
}

absl::StatusOr<int> Retry(Client& client, const std::string& name, const Arguments& arguments) {
  v1::RetryJobRequest request;
  ASSIGN_OR_RETURN(const auto from, arguments.Integer("from", 1));
  request.set_name(name);
  request.set_request_id(arguments.Text("request-id"));
  request.set_fresh(arguments.Has("fresh"));
  if (from) request.set_from_step(*from);
  ASSIGN_OR_RETURN(const auto job, client.RetryJob(request));
  // Where the same was asked before, the job may have gone on meanwhile.
  const std::string does = job.version() == 1 ? job.reason() : absl::StrCat("tries ", name, " again");
  Print(arguments.format() == Format::kTable ? absl::StrCat("submitted ", job.name(), ", which ", does, "\n")
                                             : TreeText(arguments.format(), ToTree(job)));
  return kDone;
}

Command OfOneJob(const std::string& name, const std::string& summary, std::vector<Option> options,
                 std::function<absl::StatusOr<int>(Client&, const std::string&, const Arguments&)> run) {
  CommandSpec spec;
  spec.name = name;
  spec.summary = summary;
  spec.positional = "JOB";
  spec.least_positional = spec.most_positional = 1;
  spec.options = std::move(options);
  spec.options.push_back(ServerOption());
  spec.details = "JOB is a resource name, an id, the beginning or end of one, or the job's name.";
  spec.example = absl::StrCat("lego ", name, " 01JD5W");
  return {spec, [run = std::move(run)](const Arguments& arguments) -> absl::StatusOr<int> {
            ASSIGN_OR_RETURN(const auto client, ConnectTo(arguments));
            ASSIGN_OR_RETURN(const auto job, FindJobName(*client, arguments.positional()[0]));
            return run(*client, job, arguments);
          }};
}

constexpr int64_t kLogPage = 1000;
constexpr absl::Duration kPause = absl::Milliseconds(500);
constexpr absl::Duration kLook = absl::Milliseconds(50);

void PrintLine(Format format, const v1::LogLine& line) {
  format == Format::kTable ? Print(LogText(line) + "\n") : PrintMessage(format, line);
}

absl::StatusOr<bool> IsOver(Client& client, const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  ASSIGN_OR_RETURN(const auto job, client.GetJob(request));
  return server::IsFinal(job.state());
}

// Reads page after page. Lines that come after the look at the job's state are read once more, so that none of the last is
// missed.
class Follower {
 public:
  Follower(Client& client, const v1::ListLogsRequest& request, Format format)
      : client_(client), request_(request), format_(format) {}

  // All there are now.
  absl::Status ReadAll() {
    for (;;) {
      ASSIGN_OR_RETURN(const auto page, client_.ListLogs(request_));
      for (const v1::LogLine& line : page.lines()) PrintLine(format_, line);
      const bool tail = request_.tail();
      request_.set_after_sequence(page.last_sequence());
      request_.set_tail(false);
      request_.set_page_size(kLogPage);
      if (tail || page.lines_size() == 0) return absl::OkStatus();
    }
  }

  absl::StatusOr<int> Follow(const InterruptGuard& guard) {
    while (!guard.interrupted()) {
      const auto over = IsOver(client_, request_.parent());
      if (!over.ok() && !absl::IsUnavailable(over.status())) return over.status();
      const absl::Status status = ReadAll();
      if (!status.ok() && !absl::IsUnavailable(status)) return status;
      if (over.ok() && *over && status.ok()) return kDone;
      for (absl::Time end = absl::Now() + kPause; absl::Now() < end && !guard.interrupted();) absl::SleepFor(kLook);
    }
    return kInterrupted;
  }

 private:
  Client& client_;
  v1::ListLogsRequest request_;
  const Format format_;
};

absl::StatusOr<v1::ListLogsRequest> ReadLogsRequest(Client& client, const Arguments& arguments) {
  v1::ListLogsRequest request;
  ASSIGN_OR_RETURN(const auto tail, arguments.Integer("tail", 1));
  ASSIGN_OR_RETURN(const auto rank, arguments.Integer("rank", 0));
  ASSIGN_OR_RETURN(const auto attempt, arguments.Integer("attempt", 1));
  ASSIGN_OR_RETURN(const auto name, FindJobName(client, arguments.positional()[0]));
  request.set_parent(name);
  request.set_tail(tail.has_value());
  request.set_page_size(tail.value_or(kLogPage));
  if (rank) request.set_rank(*rank);
  if (attempt) request.set_attempt(*attempt);
  return request;
}

absl::StatusOr<int> Logs(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto client, ConnectTo(arguments));
  ASSIGN_OR_RETURN(const auto request, ReadLogsRequest(*client, arguments));
  Follower follower(*client, request, arguments.format());
  RETURN_IF_ERROR(follower.ReadAll());
  if (!arguments.Has("follow")) return kDone;
  InterruptGuard guard(InterruptGuard::ClosedOutput::kEndsProcess);
  return follower.Follow(guard);
}

// An agent's own is an hour for each of two parts, and a check may run already.
constexpr absl::Duration kCheckLimit = absl::Hours(5);

absl::StatusOr<v1::Worker> OneWorker(Client& client, const std::string& name, const Arguments& arguments) {
  if (arguments.Has("drain") || arguments.Has("undrain")) {
    v1::DrainWorkerRequest request;
    request.set_name(name);
    request.set_undo(arguments.Has("undrain"));
    request.set_let_finish(arguments.Has("let-finish"));
    ASSIGN_OR_RETURN(const double grace, GraceOf(arguments, "drain"));
    request.set_grace_seconds(grace);
    return client.DrainWorker(request);
  }
  v1::GetWorkerRequest request;
  request.set_name(name);
  return client.GetWorker(request);
}

bool HasEnded(const v1::Worker& worker, int64_t after) {
  return !worker.health().checking() && worker.health().check().number() > after;
}

bool AllPassed(const v1::WorkerHealth& health) {
  const auto& results = health.check().results();
  return std::all_of(results.begin(), results.end(), [](const v1::CheckResult& result) { return result.passed(); });
}

// Waits until its agent has checked the machine. An agent that is started anew meanwhile counts its checks anew.
absl::StatusOr<v1::Worker> CheckedWorker(Client& client, const std::string& name) {
  v1::CheckWorkerRequest check;
  check.set_name(name);
  ASSIGN_OR_RETURN(const auto before, client.CheckWorker(check));
  const int64_t others = before.health().check().number() + (before.health().checking() ? 1 : 0);  // that were not asked for here
  v1::GetWorkerRequest request;
  request.set_name(name);
  const InterruptGuard guard(InterruptGuard::ClosedOutput::kEndsProcess);
  for (const absl::Time end = absl::Now() + kCheckLimit; absl::Now() < end && !guard.interrupted(); absl::SleepFor(kPause)) {
    ASSIGN_OR_RETURN(auto now, client.GetWorker(request));
    const bool same = now.instance() == before.instance();
    if (HasEnded(now, same ? others : 0)) return now;
    if (!now.connected()) return absl::UnavailableError(absl::StrCat(name, " has disconnected before its check had ended"));
  }
  if (!guard.interrupted())
    return absl::DeadlineExceededError(absl::StrCat(name, " has not ended its check in ", absl::FormatDuration(kCheckLimit)));
  return absl::CancelledError(absl::StrCat("is not waited for: `lego workers ", name, "` shows the check once it has ended"));
}

absl::Status CheckWorkersCall(const Arguments& arguments) {
  if (arguments.Has("drain") && arguments.Has("undrain")) return FieldError("--drain", "", "and --undrain exclude each other");
  for (const char* option : {"drain", "undrain"}) {
    if (arguments.Has("check") && arguments.Has(option))
      return FieldError("--check", "", absl::StrCat("and --", option, " exclude each other"));
  }
  if (arguments.Has("let-finish") && !arguments.Has("drain")) return FieldError("--let-finish", "", "goes with --drain");
  if (arguments.Has("let-finish") && arguments.Has("grace"))
    return FieldError("--grace", arguments.Text("grace"), "goes without --let-finish: those jobs are not stopped");
  if (arguments.Has("grace") && !arguments.Has("drain"))
    return FieldError("--grace", arguments.Text("grace"), "goes with --drain");
  if (arguments.positional().empty()) {
    for (const char* option : {"drain", "undrain", "check"}) {
      if (arguments.Has(option)) return FieldError("NAME", "", absl::StrCat("is needed with --", option));
    }
  } else if (arguments.Has("filter")) {
    return FieldError("--filter", arguments.Text("filter"), "goes without a NAME");
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Workers(const Arguments& arguments) {
  RETURN_IF_ERROR(CheckWorkersCall(arguments));
  ASSIGN_OR_RETURN(const auto client, ConnectTo(arguments));
  const bool table = arguments.format() == Format::kTable;
  if (arguments.positional().empty()) {
    v1::ListWorkersRequest request;
    request.set_filter(arguments.Text("filter"));
    ASSIGN_OR_RETURN(const auto workers, client->ListWorkers(request));
    Tree list = Tree::array();
    for (const v1::Worker& worker : workers.workers()) list.push_back(ToTree(worker));
    if (table && workers.workers().empty()) {
      Print("no workers; start legoai-agent on the machines that train\n");
    } else {
      Print(table ? WorkersTable(workers.workers()) : TreeText(arguments.format(), list));
    }
    return kDone;
  }
  const std::string text = arguments.positional()[0], name = absl::StartsWith(text, "workers/") ? text : "workers/" + text;
  ASSIGN_OR_RETURN(const auto worker,
                   arguments.Has("check") ? CheckedWorker(*client, name) : OneWorker(*client, name, arguments));
  v1::ListWorkersResponse one;
  *one.add_workers() = worker;
  Print(table ? WorkersTable(one.workers()) + WorkerText(worker) : TreeText(arguments.format(), ToTree(worker)));
  return arguments.Has("check") && !AllPassed(worker.health()) ? kFailed : kDone;
}

}  // namespace

Command ListCommand() {
  CommandSpec spec;
  spec.name = "list";
  spec.summary = "Lists the jobs of a server, the latest first.";
  spec.options = {{"filter", "FILTER", "terms joined by AND: state = running, state = active, display_name : \"llama\""},
                  {"limit", "N", absl::StrCat("how many (", kListed, ")")},
                  ServerOption()};
  spec.example = "lego list --filter 'state = active'";
  return {spec, List};
}

Command GetCommand() {
  return OfOneJob("get", "Shows a job: state and why, recipe, progress, attempts.",
                  {{"plan", "", "also the ranking of recipes, what was rejected, and why the winner wins"},
                   {"ranks", "", "also where each rank's time went, and which collectives no computation hid, as last reported"}},
                  Get);
}

Command CancelCommand() {
  return OfOneJob("cancel", "Ends a job; one that has ended stays as it is.",
                  {{"reason", "TEXT", "kept with the job"},
                   {"save", "", "its trainers save the step at which they stop; once more without it ends them at once"},
                   {"grace", "SECONDS", "for that, before they are killed (60)"}},
                  Cancel);
}

Command RetryCommand() {
  return OfOneJob("retry", "Goes on with a job that failed or was cancelled, as a new one: from its last good checkpoint.",
                  {{"from", "STEP", "from the checkpoint of this step instead"},
                   {"fresh", "", "from the beginning"},
                   {"request-id", "ID", "the same id gives the same new job again; 8 to 64 characters"}},
                  Retry);
}

Command LogsCommand() {
  CommandSpec spec;
  spec.name = "logs";
  spec.summary = "Prints what trainers, agents and the server have to say about a job.";
  spec.positional = "JOB";
  spec.least_positional = spec.most_positional = 1;
  spec.options = {{"follow", "", "goes on until the job has ended; Ctrl-C leaves"},
                  {"tail", "N", "begins with the last N lines, at most 1000"},
                  {"rank", "R", "of this rank only"},
                  {"attempt", "A", "of this attempt only"},
                  ServerOption()};
  spec.details = "As JSON one line is one object, as YAML one document.";
  spec.example = "lego logs 01JD5W --follow --rank 0";
  return {spec, Logs};
}

Command WorkersCommand() {
  CommandSpec spec;
  spec.name = "workers";
  spec.summary = "Lists the machines that train, with what they are doing; checks one, or takes it out of use.";
  spec.positional = "NAME";
  spec.most_positional = 1;
  spec.options = {{"drain", "", "gives NAME nothing new; its jobs save, and go on from there on other workers"},
                  {"let-finish", "", "with --drain: its jobs stay to their end"},
                  {"grace", "SECONDS", "with --drain: for saving, before their trainers are killed (60)"},
                  {"undrain", "", "makes NAME ready again"},
                  {"check", "",
                   "has NAME check the disk of its runs, the devices of slots that no job holds, and what connects these; what "
                   "passes gets jobs again. The exit code is 1 if something fails"},
                  {"filter", "FILTER", "terms joined by AND: state = ready, pool = default"},
                  ServerOption()};
  spec.example = "lego workers node-7 --drain";
  return {spec, Workers};
}

}  // namespace legoai::cli
