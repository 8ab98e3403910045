// One lease: the slots that the server has given to an attempt of a job, and the training that runs on them, on a thread of the
// same lifetime (a trainer dies with the thread that started it). Thread-safe.
//
// What happens goes into the telemetry: that it began, progress, metrics, log lines, traces of steps, at a failure every rank's
// flight record, and how it ended. Checkpoints are put to the server by way of CommitRequests, and the trainers continue while
// they wait for its word (worker/launch/pending_commits.h). Trainers that fail leave what is pending whole: its verdicts are
// waited for before the end is told, so that the next attempt resumes from the last that the server commits.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/child_process.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/hardware.pb.h"
#include "proto/legoai/v1/worker_service.pb.h"
#include "worker/agent/attempt_log.h"
#include "worker/agent/commit_requests.h"
#include "worker/agent/options.h"
#include "worker/agent/slots.h"
#include "worker/agent/telemetry_buffer.h"
#include "worker/launch/prepare_training.h"
#include "worker/launch/run_training.h"

namespace legoai::agent {

// What the leases of an agent share. All outlive the leases.
struct LeaseServices {
  const AgentOptions& options;
  Slots& slots;
  TelemetryBuffer& telemetry;
  CommitRequests& commits;
  const JsonLog& log;
  std::function<void()> ended;  // called last, on a thread of the lease
};

class Lease {
 public:
  // Starts at once; waits for its slots if they are still taken.
  Lease(v1::StartAttempt start, const LeaseServices& services);
  // Kills what is still running and waits for its end.
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  const v1::LeaseId& id() const { return start_.lease(); }
  // Asks the trainers to stop at the next step, `save`: after a checkpoint, for which they have `grace` from now on, whatever an
  // earlier call gave. A later call without `save` takes the place of one with it; after that none with it does anything. On the
  // agent's thread, as is EndGrace().
  void Stop(bool save, absl::Duration grace, const std::string& reason);
  // Trainers whose grace is over by `now` are to stop without a checkpoint; those that do not are killed (launcher.h).
  void EndGrace(std::chrono::steady_clock::time_point now);
  std::chrono::steady_clock::time_point grace_ends() const { return grace_ends_; }  // max(): no grace is under way
  // Kills the trainers at once, because this worker has lost the lease. Nothing more about it is reported to the server.
  void Revoke(const std::string& reason);
  // Sends the flight records of the ranks, even of stopped or hung ones. Reads on another thread.
  void CollectFlight(const std::string& reason);

  bool revoked() const { return revoked_; }
  // Its end is known to whom it matters only when the server revokes the lease: until then it is listed.
  bool is_member() const { return IsMember(); }
  bool ended() const { return ended_ && background_running_ == 0; }  // its threads are done
  int64_t ended_fact() const { return ended_fact_; }              // number of the telemetry fact of its end; 0: none

 private:
  void Run();
  absl::StatusOr<launch::TrainOutcome> Train();
  absl::Status ActAsTrainers() const;
  absl::Status GiveJobFolder() const;
  absl::Status MakeDirectory(const std::string& directory);
  bool IsMember() const { return start_.gang().index() > 0; }  // of a gang, whose first worker tells how it goes
  absl::Status JoinFolder(const std::string& directory);
  launch::TrainOutcome NothingHadBegun() const;
  launch::TrainCallbacks Callbacks();
  std::optional<absl::Status> Commit(int64_t step, const std::vector<std::string>& digests);
  std::optional<absl::Status> ApplyVerdict(int64_t step, const CommitVerdict& verdict);
  void Committed(int64_t step);
  void AwaitVerdicts();
  void PutInPlace(const std::string& directory, int64_t committed_step);
  void ReportKeptCheckpoints(const std::string& directory);
  void ReportKeptWithoutWaiting();
  void JoinListing();
  void ReportStarted(const launch::PreparedTraining& prepared);
  void ReportProgress(const v1::Progress& progress);
  void ReportLog(const std::string& level, const std::string& text, std::optional<int64_t> rank, int64_t time_us);
  void ReportStepTrace(int64_t rank, const v1::StepTraceWritten& written);
  void ReportFlight(const std::string& reason);
  void ReportDump(v1::FlightDump dump);
  void ReportLastLines();
  absl::Status BlameSlots(const absl::Status& error) const;
  void ReportEnd(const absl::StatusOr<launch::TrainOutcome>& outcome);
  void ReportMemberEnd(const absl::StatusOr<launch::TrainOutcome>& outcome);
  int64_t Report(v1::Telemetry fact);
  void Log(const std::string& level, const std::string& text) const;
  void RunInBackground(std::function<void()> work);

  const v1::StartAttempt start_;
  const LeaseServices services_;
  std::string directory_;    // set before the thread starts; empty if invalid
  std::string checkpoints_;  // where its checkpoints are kept: in it or in an object store; as above
  launch::StopPipe stop_;
  bool discards_ = false;  // the trainers were asked to stop without saving; for the agent's thread
  std::chrono::steady_clock::time_point grace_ends_ = std::chrono::steady_clock::time_point::max();  // for the agent's thread
  std::atomic<bool> stopping_{false}, revoked_{false}, ended_{false};
  std::atomic<int64_t> ended_fact_{0};
  // Only for the lease's thread.
  std::vector<int64_t> slots_;            // that it had last
  std::map<int64_t, int64_t> questions_;  // in CommitRequests, by step
  int64_t commits_ = 0, committed_step_ = -1, last_step_ = 0;
  bool kept_changes_ = false;   // a checkpoint was committed; its trainers may still be removing older ones
  std::string killed_because_;  // why the lease killed its trainers; empty: it did not
  bool gang_ended_ = false;     // the first worker has said how it ended
  StepLines step_lines_;
  v1::Progress told_progress_;
  int64_t told_progress_us_ = 0;
  std::thread listing_thread_;  // of checkpoints in an object store
  std::atomic<bool> listing_{false};
  std::atomic<int> background_running_{0};
  Mutex background_mutex_;
  std::vector<std::jthread> background_threads_ ABSL_GUARDED_BY(background_mutex_);
  std::thread thread_;
};

// Converts the server's StartAttempt to a request for RunTraining. Thread-safety: a pure function.

// `run_directory` replaces the recipe's job.dump_folder. The caller sets the processors. Errors: FieldError for what one worker
// cannot run: ranks elsewhere, a placement that does not fit the world size.
absl::StatusOr<launch::TrainRequest> AttemptRequest(const v1::StartAttempt& start, const std::string& run_directory,
                                                    const std::string& trainer, const v1::Device& device);

}  // namespace legoai::agent
