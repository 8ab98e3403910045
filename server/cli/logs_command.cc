#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/interrupt.h"
#include "server/cli/job_text.h"
#include "server/cli/output.h"
#include "server/cli/server_call.h"
#include "server/jobs/transition.h"

namespace legoai::cli {
namespace {

constexpr int64_t kPage = 1000;
constexpr absl::Duration kPause = absl::Milliseconds(500);
constexpr absl::Duration kLook = absl::Milliseconds(50);

void PrintLine(Format format, const v1::LogLine& line) {
  if (format == Format::kTable) return Print(LogText(line) + "\n");
  const Tree tree = ToTree(line);
  Print(format == Format::kYaml ? "---\n" + TreeText(format, tree) : tree.dump() + "\n");
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
      request_.set_page_size(kPage);
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

absl::StatusOr<v1::ListLogsRequest> ReadRequest(Client& client, const Arguments& arguments) {
  v1::ListLogsRequest request;
  ASSIGN_OR_RETURN(const auto tail, arguments.Integer("tail", 1));
  ASSIGN_OR_RETURN(const auto rank, arguments.Integer("rank", 0));
  ASSIGN_OR_RETURN(const auto attempt, arguments.Integer("attempt", 1));
  ASSIGN_OR_RETURN(const auto name, FindJobName(client, arguments.positional()[0]));
  request.set_parent(name);
  request.set_tail(tail.has_value());
  request.set_page_size(tail.value_or(kPage));
  if (rank) request.set_rank(*rank);
  if (attempt) request.set_attempt(*attempt);
  return request;
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto client, ConnectTo(arguments));
  ASSIGN_OR_RETURN(const auto request, ReadRequest(*client, arguments));
  Follower follower(*client, request, arguments.format());
  RETURN_IF_ERROR(follower.ReadAll());
  if (!arguments.Has("follow")) return kDone;
  InterruptGuard guard(InterruptGuard::ClosedOutput::kEndsProcess);
  return follower.Follow(guard);
}

}  // namespace

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
  return {spec, Run};
}

}  // namespace legoai::cli
