#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/job_text.h"
#include "server/cli/output.h"
#include "server/cli/plan_text.h"
#include "server/cli/server_call.h"

namespace legoai::cli {
namespace {

constexpr int64_t kListed = 50;
constexpr int64_t kMostPage = 1000;

absl::StatusOr<v1::ListJobsResponse> ListSome(Client& client, const std::string& filter, int64_t limit) {
  v1::ListJobsResponse all;
  v1::ListJobsRequest request;
  request.set_parent("projects/default");
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
  if (!arguments.Has("plan")) return kDone;
  v1::GetPlanRequest plan_request;
  plan_request.set_name(name);
  ASSIGN_OR_RETURN(const auto plan, client.GetPlan(plan_request));
  Print("\n" + PlanText(plan, /*all_rejected=*/true));
  return kDone;
}

absl::StatusOr<int> Cancel(Client& client, const std::string& name, const Arguments& arguments) {
  v1::CancelJobRequest request;
  request.set_name(name);
  request.set_reason(arguments.Text("reason"));
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
                  {{"plan", "", "also the ranking of recipes, what was rejected, and why the winner wins"}}, Get);
}

Command CancelCommand() {
  return OfOneJob("cancel", "Ends a job; one that has ended stays as it is.", {{"reason", "TEXT", "kept with the job"}}, Cancel);
}

Command RetryCommand() {
  return OfOneJob("retry", "Goes on with a job that failed or was cancelled, as a new one: from its last good checkpoint.",
                  {{"from", "STEP", "from the checkpoint of this step instead"},
                   {"fresh", "", "from the beginning"},
                   {"request-id", "ID", "the same id gives the same new job again; 8 to 64 characters"}},
                  Retry);
}

}  // namespace legoai::cli
