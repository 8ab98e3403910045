#include "tests/bench/endless_job.h"

#include <cstdio>
#include <stdexcept>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/enum_text.h"

ABSL_FLAG(bool, json, false, "rows as JSON");
ABSL_FLAG(int32_t, rounds, 0, "of each kind");

namespace legoai::integration {
namespace {

constexpr int kInterval = 20;             // steps between checkpoints
constexpr int kSteps = 10'000'000;        // never done
constexpr double kPatienceSeconds = 120;  // beyond it the benchmark ends with a message

}  // namespace

EndlessJob::EndlessJob(const service::ServiceProcesses& service, Stub& stub, int slots,
                       const std::function<void(v1::JobSpec&)>& arrange)
    : service_(service) {
  auto spec = service.TinyJob(slots, kSteps, kInterval);
  if (!spec.ok()) throw std::runtime_error(std::string(spec.status().message()));
  if (arrange) arrange(*spec);
  v1::CreateJobRequest request;
  request.set_parent("projects/default");
  *request.mutable_spec() = *spec;
  v1::Job job;
  const grpc::Status status = service::Ask(stub, &Stub::CreateJob, request, &job);
  if (!status.ok()) throw std::runtime_error("CreateJob: " + status.error_message());
  name_ = job.name();
}

v1::Job EndlessJob::Get(Stub& stub) const {
  v1::GetJobRequest request;
  request.set_name(name_);
  v1::Job job;
  service::Ask(stub, &Stub::GetJob, request, &job);
  return job;
}

bool EndlessJob::HasStepAfter(Stub& stub, int64_t step, double unix_seconds) const {
  v1::QueryMetricsRequest request;
  request.set_name(name_);
  request.set_after_step(step);
  v1::QueryMetricsResponse response;
  service::Ask(stub, &Stub::QueryMetrics, request, &response);
  // The last one is always among them.
  return !response.points().empty() && response.points().rbegin()->time_unix_seconds() > unix_seconds;
}

v1::Job EndlessJob::Await(Stub& stub, const std::string& what, const std::function<bool(const v1::Job&)>& wanted) const {
  v1::Job job;
  const bool came = service::Within(kPatienceSeconds, [&] {
    job = Get(stub);
    return wanted(job);
  });
  if (came) return job;
  throw std::runtime_error("waited in vain for " + what + ": the job is " + EnumText(job.state()) + ", " + job.reason() + "\n" +
                           service_.LastWords(2000));
}

v1::Job EndlessJob::AwaitNewCheckpoint(Stub& stub, const std::string& what) const {
  const int64_t committed = Get(stub).committed_step();
  return Await(stub, what, [&](const v1::Job& job) { return job.state() == v1::RUNNING && job.committed_step() > committed; });
}

void EndlessJob::Cancel(Stub& stub) const {
  v1::CancelJobRequest request;
  request.set_name(name_);
  v1::Job job;
  const grpc::Status status = service::Ask(stub, &Stub::CancelJob, request, &job);
  if (!status.ok()) throw std::runtime_error("CancelJob: " + status.error_message());
  Await(stub, "the end of a job that was cancelled", [](const v1::Job& now) { return now.state() == v1::CANCELLED; });
}

double UnixSeconds() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

void NoteTimes(Rows& rows) {
  rows.Note(absl::StrFormat("%-22s %6s %12s %12s %12s %14s", "what", "rounds", "p50_seconds", "p90_seconds", "p95_seconds",
                            "worst_seconds"));
}

void AddTimes(Rows& rows, const std::string& what, const std::vector<double>& seconds) {
  const double p50 = Quantile(seconds, 0.5), p90 = Quantile(seconds, 0.9), p95 = Quantile(seconds, 0.95);
  const double worst = Quantile(seconds, 1);
  rows.Add(absl::StrFormat("\"what\": \"%s\", \"rounds\": %d, \"p50_seconds\": %.3f, \"p90_seconds\": %.3f, "
                           "\"p95_seconds\": %.3f, \"worst_seconds\": %.3f",
                           what, seconds.size(), p50, p90, p95, worst),
           absl::StrFormat("%-22s %6d %12.3f %12.3f %12.3f %14.3f", what, seconds.size(), p50, p90, p95, worst));
}

void TellProgress(const std::string& what, int round, int rounds, double seconds) {
  std::fprintf(stderr, "%s: round %d of %d, %.3f s\n", what.c_str(), round, rounds, seconds);
}

int RoundsMain(int argc, char** argv, int rounds, const std::function<void(Rows& rows, int rounds)>& measure) {
  absl::SetFlag(&FLAGS_rounds, rounds);
  absl::ParseCommandLine(argc, argv);
  return AddRows(argv[0], absl::GetFlag(FLAGS_json), [&](Rows& rows) {
    const int asked = absl::GetFlag(FLAGS_rounds);
    if (asked < 1) throw std::runtime_error("--rounds must be at least 1");
    NoteTimes(rows);
    measure(rows, asked);
  });
}

}  // namespace legoai::integration
