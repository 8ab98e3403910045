// Where the service keeps what it must not lose: one contract, to be met by every back end. SQLite is the embedded one
// (sqlite_store.h); contract_test.h is the suite that each must pass.
//
// A Store is thread-safe. A transaction is used by the one function that it was given to, on one thread, and not kept.
// Everything that a write transaction does becomes durable at once, or not at all; when Write() has answered OK it survives the
// end of the process and of the machine. Writes of several threads may be made durable together.
//
// Errors: Aborted where a row was changed by another one meanwhile (the whole function is to be run again); AlreadyExists,
// FailedPrecondition as said below; ResourceExhausted for a full disk, with path and remedy: nothing of the transaction is kept
// and the store goes on; Unavailable, Internal for what the back end says.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/metrics.pb.h"
#include "proto/legoai/v1/plan.pb.h"
#include "proto/legoai/v1/worker.pb.h"

namespace legoai::store {

// A query over jobs of a project, the latest created first. Ids are ULIDs, so their order is that of creation.
struct JobQuery {
  std::string project = {};                // resource name: "projects/default"
  std::vector<v1::JobState> states = {};   // empty: all
  std::string display_name_contains = {};  // without regard to case of ASCII letters; empty: all
  std::string text_contains = {};          // the same, in the display name or in the id
  int64_t created_from_us = 0;             // inclusive
  int64_t created_until_us = 0;            // exclusive; 0: no limit
  std::string before_id = {};              // the ULID of a job: those created before it; empty: from the latest
  int64_t limit = 50;                      // none where it is not positive
};

// Of a job's log the latest lines are kept, at least that many, and fewer than a piece more. Those before them are removed a
// piece at a time, and a line in the place of the last of them says so.
constexpr int64_t kLogLines = 100'000, kLogPiece = 1'000;

// Of the latest attempt that reports rows of ranks so many reports keep all of them; all others keep the first alone, without its
// collectives, since a large job has many ranks and many steps.
constexpr int64_t kRankReports = 16;

// Of a job's traces of steps the latest are kept: at most so many, of at most so many bytes.
constexpr int64_t kStepTraces = 256, kStepTraceBytes = int64_t{32} << 20;

struct LogQuery {
  std::string job = {};  // resource name, here and below
  int64_t after_sequence = 0;
  int64_t limit = 200;
  bool tail = false;  // the last `limit` lines instead of the first; ascending all the same
  std::optional<int64_t> attempt = {}, rank = {};
};

// The bytes of a submission are remembered with its request_id, so that the same id with another content is told apart.
struct Submission {
  std::string project = {};  // resource name
  std::string request_id = {}, content_sha256 = {};
};

class ReadTransaction {
 public:
  virtual ~ReadTransaction() = default;

  virtual absl::StatusOr<std::optional<v1::Job>> GetJob(const std::string& name) = 0;
  virtual absl::StatusOr<std::vector<v1::Job>> ListJobs(const JobQuery& query) = 0;
  virtual absl::StatusOr<int64_t> CountJobs(const JobQuery& query) = 0;  // before_id and limit do not count
  // All jobs of all projects in one of the states, the earliest created first: what the controller works on.
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
  // Those of them without remove_time_us. The cost does not grow with the others, except those that a server of schema version 1
  // had marked.
  virtual absl::StatusOr<std::vector<v1::Checkpoint>> ListKeptCheckpoints(const std::string& job) = 0;
  virtual absl::StatusOr<std::optional<v1::PlanResult>> GetPlan(const std::string& job) = 0;
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
};

// What is refused changes nothing. Everything that belongs to a job is refused with NotFound where the job is not there.
class Transaction : public ReadTransaction {
 public:
  // Errors: AlreadyExists for a name or a submission that is there; InvalidArgument for a name that is not "projects/P/jobs/ID".
  virtual absl::Status InsertJob(const v1::Job& job, const std::optional<Submission>& submission) = 0;
  // Replaces the job if the stored one has version `expected_version`, and job.version is larger. Errors: Aborted;
  // FailedPrecondition where job.version is not larger than `expected_version`.
  virtual absl::Status UpdateJob(const v1::Job& job, int64_t expected_version) = 0;
  virtual absl::Status AppendTransition(const v1::Transition& transition) = 0;  // AlreadyExists: that of this version is there
  virtual absl::Status PutAttempt(const std::string& job, const v1::Attempt& attempt) = 0;           // by attempt
  virtual absl::Status PutCheckpoint(const std::string& job, const v1::Checkpoint& checkpoint) = 0;  // by (epoch, step)
  virtual absl::Status PutPlan(const std::string& job, const v1::PlanResult& plan) = 0;
  // By (attempt, step); a report that is there stays.
  virtual absl::Status AppendMetrics(const std::string& job, const v1::StepMetrics& metrics) = 0;
  // By (attempt, step, rank); a later one takes the place of an earlier one. The oldest go, beyond kStepTraces and
  // kStepTraceBytes.
  virtual absl::Status PutStepTrace(const std::string& job, const v1::StepTraceInfo& info, const v1::TraceFile& file) = 0;
  // Gives it the job's next sequence. The oldest lines beyond kLogLines go.
  virtual absl::Status AppendLog(const std::string& job, v1::LogLine line) = 0;
  // Adds one rank's dump to the record of an attempt, and replaces its reason, time and analysis; `dump` may be null.
  // A rank's later dump replaces its earlier one. Dumps in `head` are left out.
  virtual absl::Status PutFlightRecord(const std::string& job, const v1::FlightRecord& head, const v1::FlightDump* dump) = 0;
  virtual absl::Status PutWorker(const v1::Worker& worker) = 0;
  virtual absl::Status DeleteWorker(const std::string& name) = 0;  // OK if it does not exist
  // The larger one of `sequence` and what is there is kept.
  virtual absl::Status SetTelemetrySequence(const std::string& instance, int64_t sequence) = 0;
};

class Store {
 public:
  virtual ~Store() = default;

  // Runs `work` in a transaction and makes it durable; blocks until then. An error of `work` undoes all of it and is passed on.
  // Aborted is tried again, a few times. The function may run more than once, and on another thread: what it did in the store
  // before is undone, what it did elsewhere is its own matter. It should be short, since others wait. It must not call the store
  // that it runs in, nor must that of Read(): FailedPrecondition.
  virtual absl::Status Write(const std::function<absl::Status(Transaction&)>& work) = 0;
  // One consistent state of everything, as of some moment after the call.
  virtual absl::Status Read(const std::function<absl::Status(ReadTransaction&)>& work) = 0;

  virtual std::string Backend() const = 0;  // "sqlite"
  virtual int64_t SchemaVersion() const = 0;
};

}  // namespace legoai::store
