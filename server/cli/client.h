// A client of the server for commands: one call at a time, with a time limit each, retried where that is safe. Hides gRPC. Not
// thread-safe.
//
// Errors: those of the server, with their FieldViolation; Unavailable with the address and a remedy if no server answers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/channel.h"
#include "proto/legoai/v1/access.pb.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "proto/server_list.h"

namespace legoai::cli {

class Client {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(3);

  // `address`: HOST:PORT. Connects at the first call. `patience`: how long a call is retried while the server does not answer.
  explicit Client(const std::string& address, absl::Duration patience = kPatience);
  // One after the other is asked until one answers, for so long that another leads where the leader was lost. `call_limit`: for
  // each try, but of a plan or a simulation. Errors: those of MakeChannel (proto/channel.h).
  static absl::StatusOr<std::unique_ptr<Client>> Open(ServerList servers, ChannelSecurity security,
                                                      std::optional<absl::Duration> patience = std::nullopt,
                                                      std::optional<absl::Duration> call_limit = std::nullopt);
  ~Client();

  // Retried only with a request_id, because they might be done twice.
  absl::StatusOr<v1::Job> CreateJob(const v1::CreateJobRequest& request);
  absl::StatusOr<v1::Job> RetryJob(const v1::RetryJobRequest& request);

  absl::StatusOr<v1::Job> GetJob(const v1::GetJobRequest& request);
  absl::StatusOr<v1::Job> CancelJob(const v1::CancelJobRequest& request);
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request);
  // These fetch all pages and return the whole list, without a token.
  absl::StatusOr<v1::ListAttemptsResponse> ListAttempts(const v1::ListAttemptsRequest& request);
  absl::StatusOr<v1::ListCheckpointsResponse> ListCheckpoints(const v1::ListCheckpointsRequest& request);
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers(const v1::ListWorkersRequest& request);

  absl::StatusOr<v1::PlanResult> GetPlan(const v1::GetPlanRequest& request);
  absl::StatusOr<v1::ListLogsResponse> ListLogs(const v1::ListLogsRequest& request);
  absl::StatusOr<v1::QueryMetricsResponse> QueryMetrics(const v1::QueryMetricsRequest& request);
  absl::StatusOr<v1::ListStepTracesResponse> ListStepTraces(const v1::ListStepTracesRequest& request);
  absl::StatusOr<v1::TraceFile> GetStepTrace(const v1::GetStepTraceRequest& request);
  absl::StatusOr<v1::FlightRecord> GetFlightRecord(const v1::GetFlightRecordRequest& request);
  absl::StatusOr<v1::ServerInfo> GetServerInfo();
  absl::StatusOr<v1::Worker> GetWorker(const v1::GetWorkerRequest& request);
  absl::StatusOr<v1::Worker> DrainWorker(const v1::DrainWorkerRequest& request);
  absl::StatusOr<v1::Worker> CheckWorker(const v1::CheckWorkerRequest& request);
  // `interrupted` is polled, here and below; then Cancelled.
  absl::StatusOr<v1::Estimate> Simulate(const v1::SimulateRequest& request, const std::function<bool()>& interrupted);
  absl::StatusOr<v1::TraceFile> GetPredictedTrace(const v1::GetPredictedTraceRequest& request,
                                                  const std::function<bool()>& interrupted);
  absl::StatusOr<v1::PlanResult> Plan(const v1::PlanRequest& request,
                                      const std::function<void(const v1::PlanningProgress&)>& progress,
                                      const std::function<bool()>& interrupted);

  // To make a token is not tried again, since it might be made twice; the others are.
  absl::StatusOr<v1::CreateTokenResponse> CreateToken(const v1::CreateTokenRequest& request);
  absl::StatusOr<v1::ListTokensResponse> ListTokens(const v1::ListTokensRequest& request);
  absl::StatusOr<v1::Token> RevokeToken(const v1::RevokeTokenRequest& request);
  absl::StatusOr<v1::ListAuditRecordsResponse> ListAuditRecords(const v1::ListAuditRecordsRequest& request);

  struct WatchCallbacks {
    std::function<void(const v1::WatchJobResponse&)> news;
    std::function<void(const absl::Status&)> away;  // the server does not answer; the watch retries
    std::function<bool()> interrupted;
  };
  // Watches until the job is in a final state; then OK. If the server becomes unavailable after it has answered once, the watch
  // resumes from the last version when the server is back.
  absl::Status WatchJob(const std::string& name, const WatchCallbacks& callbacks);

  const std::string& address() const;  // as it was given: all of them

  // Whose jobs are meant where only an id or a name is given: "projects/default" unless it is set.
  const std::string& project() const { return project_; }
  void set_project(std::string project) { project_ = std::move(project); }

 private:
  struct Connection;
  explicit Client(std::unique_ptr<Connection> connection);

  const std::unique_ptr<Connection> connection_;
  std::string project_ = "projects/default";
};

}  // namespace legoai::cli
