// The service's durable state: a contract for every back end. SQLite is the embedded one (sqlite_store.h), PostgreSQL the other
// (postgres_store.h); contract_test.h is the suite that each must pass.
//
// A Store is thread-safe. A transaction may be used only by the function it is passed to, on one thread, and not kept. A write
// transaction becomes durable atomically or not at all; once Write() has returned OK it survives a crash of the process and of
// the machine. Writes of several threads may be made durable together.
//
// Errors: Aborted if another transaction changed a row meanwhile (run the whole function again); AlreadyExists,
// FailedPrecondition as described below; ResourceExhausted for a full disk, with path and remedy: the transaction is undone and
// the store stays usable; Unavailable, Internal for errors of the back end.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/access.pb.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/metrics.pb.h"
#include "proto/legoai/v1/plan.pb.h"
#include "proto/legoai/v1/worker.pb.h"

namespace legoai::store {

// A query for jobs of a project, latest first. Ids are ULIDs, so their order is that of creation.
struct JobQuery {
  std::string project = {};                // resource name: "projects/default"
  std::vector<v1::JobState> states = {};   // empty: all
  std::string display_name_contains = {};  // ASCII letters are case-insensitive; empty: all
  std::string text_contains = {};          // the same, in the display name or the id
  int64_t created_from_us = 0;             // inclusive
  int64_t created_until_us = 0;            // exclusive; 0: no limit
  std::string before_id = {};              // a job's ULID: only jobs created before it; empty: from the latest
  int64_t limit = 50;                      // none if not positive
};

// A job's log keeps at least kLogLines of its latest lines, and less than kLogPiece more. Older lines are removed a piece at a
// time, and a line in place of the last removed one says so.
constexpr int64_t kLogLines = 100'000, kLogPiece = 1'000;

// Of the latest attempt that reports rows of ranks so many reports keep all of them; all others keep the first alone, without its
// collectives, since a large job has many ranks and many steps.
constexpr int64_t kRankReports = 16;

// Of a job's traces of steps the latest are kept: at most so many, of at most so many bytes.
constexpr int64_t kStepTraces = 256, kStepTraceBytes = int64_t{32} << 20;

// So many of the plans that were made last are kept for others.
constexpr int64_t kCachedPlans = 512;

struct LogQuery {
  std::string job = {};  // resource name, here and below
  int64_t after_sequence = 0;
  int64_t limit = 200;
  bool tail = false;  // the last `limit` lines instead of the first, still ascending
  std::optional<int64_t> attempt = {}, rank = {};
};

// A submission's digest is stored with its request_id, to detect reuse of the id with different content.
struct Submission {
  std::string project = {};  // resource name
  std::string request_id = {}, content_sha256 = {};
};

class ReadTransaction {
 public:
  virtual ~ReadTransaction() = default;

  virtual absl::StatusOr<std::optional<v1::Job>> GetJob(const std::string& name) = 0;
  virtual absl::StatusOr<std::vector<v1::Job>> ListJobs(const JobQuery& query) = 0;
  virtual absl::StatusOr<int64_t> CountJobs(const JobQuery& query) = 0;  // ignores before_id and limit
  // Of all projects; a state that is left out has none.
  virtual absl::StatusOr<std::map<v1::JobState, int64_t>> CountJobsByState() = 0;
  // Of the projects that have jobs, by name: "projects/default".
  virtual absl::StatusOr<std::vector<std::string>> ListProjects() = 0;
  // All jobs of all projects in one of the states, earliest first, for the controller.
  virtual absl::StatusOr<std::vector<v1::Job>> JobsInStates(const std::vector<v1::JobState>& states) = 0;
  // The job and content of an earlier submission with this request_id.
  struct EarlierSubmission {
    std::string job, content_sha256;
  };
  virtual absl::StatusOr<std::optional<EarlierSubmission>> FindSubmission(const std::string& project,
                                                                          const std::string& request_id) = 0;
  virtual absl::StatusOr<std::vector<v1::Transition>> ListTransitions(const std::string& job, int64_t after_version,
                                                                      int64_t limit) = 0;
  virtual absl::StatusOr<std::vector<v1::Attempt>> ListAttempts(const std::string& job) = 0;        // ascending
  virtual absl::StatusOr<std::vector<v1::Checkpoint>> ListCheckpoints(const std::string& job) = 0;  // by step, then epoch
  // Those without remove_time_us. The cost does not depend on the others, except those marked by a server of schema version 1.
  virtual absl::StatusOr<std::vector<v1::Checkpoint>> ListKeptCheckpoints(const std::string& job) = 0;
  virtual absl::StatusOr<std::optional<v1::PlanResult>> GetPlan(const std::string& job) = 0;
  // Nothing also where what is there cannot be read: it is made anew.
  virtual absl::StatusOr<std::optional<v1::CachedPlan>> GetCachedPlan(const std::string& key) = 0;
  // Of every step the report of the latest attempt that did it, where no later attempt began again before it; ascending, with
  // the first of its rows of ranks without collectives. One after the other, since there may be millions.
  virtual absl::Status ForEachMetrics(const std::string& job, int64_t after_step,
                                      const std::function<void(const v1::StepMetrics&)>& take) = 0;
  // The latest `limit` reports that have kept the rows of all their ranks, ascending by step.
  virtual absl::StatusOr<std::vector<v1::StepMetrics>> ListRankReports(const std::string& job, int64_t limit) = 0;
  virtual absl::StatusOr<std::vector<v1::StepTraceInfo>> ListStepTraces(const std::string& job) = 0;  // by attempt, step, rank
  virtual absl::StatusOr<std::optional<v1::TraceFile>> GetStepTrace(const std::string& job, int64_t attempt, int64_t step,
                                                                    int64_t rank) = 0;
  virtual absl::StatusOr<std::vector<v1::LogLine>> ListLogs(const LogQuery& query) = 0;
  virtual absl::StatusOr<std::optional<v1::FlightRecord>> GetFlightRecord(
      const std::string& job) = 0;                                    // of the latest attempt with one
  virtual absl::StatusOr<std::vector<v1::Worker>> ListWorkers() = 0;  // by name
  virtual absl::StatusOr<std::optional<v1::Worker>> GetWorker(const std::string& name) = 0;
  // The largest telemetry number of an agent's instance that is durable; 0: none.
  virtual absl::StatusOr<int64_t> TelemetrySequence(const std::string& instance) = 0;
  virtual absl::StatusOr<std::vector<v1::StoredToken>> ListTokens() = 0;  // by name
  virtual absl::StatusOr<std::optional<v1::StoredToken>> GetToken(const std::string& name) = 0;
};

// Refused operations change nothing. Operations on a missing job are refused with NotFound.
class Transaction : public ReadTransaction {
 public:
  // Errors: AlreadyExists for an existing name or submission; InvalidArgument for a name that is not "projects/P/jobs/ID".
  virtual absl::Status InsertJob(const v1::Job& job, const std::optional<Submission>& submission) = 0;
  // Replaces the job if the stored one has version `expected_version`, and job.version is larger. Errors: Aborted;
  // FailedPrecondition if job.version is not larger than `expected_version`.
  virtual absl::Status UpdateJob(const v1::Job& job, int64_t expected_version) = 0;
  virtual absl::Status AppendTransition(const v1::Transition& transition) = 0;              // AlreadyExists: this version has one
  virtual absl::Status PutAttempt(const std::string& job, const v1::Attempt& attempt) = 0;  // by attempt
  virtual absl::Status PutCheckpoint(const std::string& job, const v1::Checkpoint& checkpoint) = 0;  // by (epoch, step)
  virtual absl::Status PutPlan(const std::string& job, const v1::PlanResult& plan) = 0;
  // By key, which begins with "plan:"; one that takes the place of another is the latest. The oldest go, beyond kCachedPlans.
  virtual absl::Status PutCachedPlan(const v1::CachedPlan& plan) = 0;
  // By (attempt, step); an existing report stays.
  virtual absl::Status AppendMetrics(const std::string& job, const v1::StepMetrics& metrics) = 0;
  // By (attempt, step, rank); a later one takes the place of an earlier one. The oldest go, beyond kStepTraces and
  // kStepTraceBytes.
  virtual absl::Status PutStepTrace(const std::string& job, const v1::StepTraceInfo& info, const v1::TraceFile& file) = 0;
  // Gives it the job's next sequence. The oldest lines beyond kLogLines go.
  virtual absl::Status AppendLog(const std::string& job, v1::LogLine line) = 0;
  // Adds one rank's dump to the record of an attempt, and replaces its reason, time and analysis; `dump` may be null. A rank's
  // later dump replaces its earlier one. Dumps in `head` are ignored.
  virtual absl::Status PutFlightRecord(const std::string& job, const v1::FlightRecord& head, const v1::FlightDump* dump) = 0;
  virtual absl::Status PutWorker(const v1::Worker& worker) = 0;
  virtual absl::Status DeleteWorker(const std::string& name) = 0;  // OK if it does not exist
  // Stores the larger of `sequence` and the current value.
  virtual absl::Status SetTelemetrySequence(const std::string& instance, int64_t sequence) = 0;
  virtual absl::Status PutToken(const v1::StoredToken& token) = 0;      // by token.name
  virtual absl::Status DeleteToken(const std::string& name) = 0;        // OK if it does not exist
};

class Store {
 public:
  virtual ~Store() = default;

  // Runs `work` in a transaction and makes it durable; blocks until then. An error of `work` undoes all its changes and is
  // returned. Aborted is retried a few times. The function may run more than once, and on another thread: its earlier changes in
  // the store are undone, but not its other side effects. Of a run that is undone a change may have been answered with OK that
  // was refused after all. It should be short, because others wait. Neither it nor the function of Read() may call the store:
  // FailedPrecondition.
  virtual absl::Status Write(const std::function<absl::Status(Transaction&)>& work) = 0;
  // `work` sees one consistent snapshot, as of some moment after the call.
  virtual absl::Status Read(const std::function<absl::Status(ReadTransaction&)>& work) = 0;

  virtual std::string Backend() const = 0;  // "sqlite", "postgresql"
  virtual int64_t SchemaVersion() const = 0;
};

}  // namespace legoai::store
