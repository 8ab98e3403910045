// The handlers of the service ControlPlane (proto/legoai/v1/control_plane.proto), shared by gRPC and JSON over HTTP and
// independent of both. Thread-safe. They block as long as the store does; Plan, Simulate and GetPredictedTrace take seconds, so
// the front ends run them in queues of their own.
//
// Errors: FieldError with the path in the request ("spec.recipe.training.seq_len"); NotFound with the resource name;
// AlreadyExists for a request_id that was used with other content; FailedPrecondition; ResourceExhausted.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "server/fleet/fleet.h"
#include "server/jobs/notifier.h"
#include "server/rpc/predicted_traces.h"
#include "server/store/store.h"
#include "server/store/ulid.h"

namespace legoai::server {

// What a watch has already sent of the parts of a job that have no version.
struct WatchState {
  double planning_seconds = -1;  // of planning's progress
  std::string wait;              // why the job waits
  bool config_json = false;      // sent once: it may be a megabyte and never changes
};

class ControlPlane {
 public:
  // Owns none of the pointers; all must outlive it. `now_us`: microseconds since 1970, UTC.
  ControlPlane(store::Store* store, Fleet* fleet, Notifier* notifier, std::function<int64_t()> now_us);

  absl::StatusOr<v1::Job> CreateJob(const v1::CreateJobRequest& request);
  absl::StatusOr<v1::Job> GetJob(const v1::GetJobRequest& request);
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request);
  absl::StatusOr<v1::Job> CancelJob(const v1::CancelJobRequest& request);
  absl::StatusOr<v1::Job> RetryJob(const v1::RetryJobRequest& request);
  absl::StatusOr<v1::ListTransitionsResponse> ListTransitions(const v1::ListTransitionsRequest& request);
  absl::StatusOr<v1::ListAttemptsResponse> ListAttempts(const v1::ListAttemptsRequest& request);
  absl::StatusOr<v1::ListCheckpointsResponse> ListCheckpoints(const v1::ListCheckpointsRequest& request);
  absl::StatusOr<v1::PlanResult> GetPlan(const v1::GetPlanRequest& request);
  absl::StatusOr<v1::QueryMetricsResponse> QueryMetrics(const v1::QueryMetricsRequest& request);
  absl::StatusOr<v1::ListStepTracesResponse> ListStepTraces(const v1::ListStepTracesRequest& request);
  absl::StatusOr<v1::TraceFile> GetStepTrace(const v1::GetStepTraceRequest& request);
  absl::StatusOr<v1::TraceFile> GetPredictedTrace(const v1::GetPredictedTraceRequest& request,
                                                  const std::function<bool()>& cancelled);
  absl::StatusOr<v1::ListLogsResponse> ListLogs(const v1::ListLogsRequest& request);
  absl::StatusOr<v1::FlightRecord> GetFlightRecord(const v1::GetFlightRecordRequest& request);
  absl::StatusOr<v1::ListProjectsResponse> ListProjects(const v1::ListProjectsRequest& request);
  // Of the checks of their machines only what has not passed; GetWorker has all of it.
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers(const v1::ListWorkersRequest& request);
  absl::StatusOr<v1::Worker> GetWorker(const v1::GetWorkerRequest& request);
  absl::StatusOr<v1::Worker> DrainWorker(const v1::DrainWorkerRequest& request);
  absl::StatusOr<v1::Worker> CheckWorker(const v1::CheckWorkerRequest& request);
  absl::StatusOr<v1::ServerInfo> GetServerInfo(const v1::GetServerInfoRequest& request);
  absl::StatusOr<v1::Estimate> Simulate(const v1::SimulateRequest& request, const std::function<bool()>& cancelled);
  // `send` returns false once the client has left.
  absl::Status Plan(const v1::PlanRequest& request, const std::function<bool(const v1::PlanResponse&)>& send,
                    const std::function<bool()>& cancelled);

  // One poll of a watch: what a client that has `after_version` does not have yet, or nothing. The front end polls again when the
  // Notifier wakes it, but not within kMinPollInterval: a job with short steps would cause hundreds of messages a second. It ends
  // the stream after a final state. The caller keeps `seen` from poll to poll; null: changes of what has no version do not count.
  absl::StatusOr<std::optional<v1::WatchJobResponse>> PollJob(const v1::WatchJobRequest& request, WatchState* seen);
  static constexpr std::chrono::milliseconds kMinPollInterval{200};

  Notifier& notifier() { return *notifier_; }

 private:
  // Stores the job that `make` returns under the next id. If the request_id was used before, returns that job instead, provided
  // its content has the same digest.
  absl::StatusOr<v1::Job> Submit(const std::string& parent, const std::string& request_id, const std::string& digest,
                                 const std::function<absl::StatusOr<v1::Job>(store::Transaction&)>& make);
  // Calls `read` with the job that `name`, the request's field `field`, names.
  absl::Status ReadJob(const std::string& field, const std::string& name,
                       const std::function<absl::Status(store::ReadTransaction&, v1::Job&)>& read);

  store::Store* const store_;
  Fleet* const fleet_;
  Notifier* const notifier_;
  const std::function<int64_t()> now_us_;
  const int64_t start_time_us_;
  store::UlidSource ids_;
  PredictedTraces predicted_traces_;
};

// The job that a request names; `field`: the field of the request that holds `name`. Errors: InvalidArgument if `name` is not a
// job's name; NotFound.
absl::StatusOr<v1::Job> FindJob(store::ReadTransaction& transaction, const std::string& field, const std::string& name);

}  // namespace legoai::server
