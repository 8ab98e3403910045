#include "server/cli/client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/legoai/v1/access.grpc.pb.h"
#include "proto/legoai/v1/control_plane.grpc.pb.h"
#include "proto/not_leader.h"
#include "proto/rpc.h"
#include "proto/status.h"
#include "server/jobs/transition.h"
#include "server/rpc/grpc_status.h"

namespace legoai::cli {
namespace {

using Stub = v1::ControlPlane::Stub;

constexpr absl::Duration kCallLimit = absl::Seconds(30);
// Of several servers one that stands still is not waited for, but for what a plan or a simulation takes.
constexpr absl::Duration kCallLimitAmongSeveral = absl::Seconds(5);
constexpr absl::Duration kFailover = absl::Seconds(20);
constexpr absl::Duration kSimulateLimit = absl::Minutes(30);
constexpr absl::Duration kShortestPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(1);
constexpr absl::Duration kLook = absl::Milliseconds(50);
constexpr int64_t kPage = 1000;  // rows, the most that a server gives at once
// Records of all ranks of a large job.
constexpr int kMostReceived = 512 << 20;

void Limit(absl::Duration limit, grpc::ClientContext* context) { context->set_deadline(absl::ToChronoTime(absl::Now() + limit)); }

// An answer of the server itself has details; without them it is gRPC that could not reach it.
bool IsAway(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE && status.error_details().empty();
}

// A server that ends cuts calls off that it has not taken yet, and gRPC calls them cancelled.
bool IsCutOff(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::CANCELLED && status.error_details().empty();
}

// gRPC wraps the system's word several times: "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:7420:
// Failed to connect to remote host: Connection refused".
std::string SystemsWord(const std::string& message) {
  const size_t at = message.rfind(": ");
  return at == std::string::npos ? message : message.substr(at + 2);
}

absl::Status ToStatus(const grpc::Status& status, const std::string& address) {
  if (!IsAway(status)) return server::FromGrpcStatus(status);
  if (absl::StrContains(status.error_message(), "handshake failed")) {
    return absl::UnavailableError(absl::StrCat("the server at ", address,
                                               " and this caller do not agree on TLS: check --tls-ca, the name by which the "
                                               "server is called, and --tls-cert (",
                                               SystemsWord(status.error_message()), ")"));
  }
  return absl::UnavailableError(absl::StrCat("no server at ", address, ": start one with `lego up`, or give --server ADDRESS (",
                                             SystemsWord(status.error_message()), ")"));
}

// Cancels a call as soon as `interrupted` says so, for as long as it lives.
class Interrupter {
 public:
  Interrupter(grpc::ClientContext* context, const std::function<bool()>& interrupted)
      : thread_([this, context, &interrupted] {
          while (!done_) {
            if (interrupted && interrupted()) return context->TryCancel();
            absl::SleepFor(kLook);
          }
        }) {}
  ~Interrupter() {
    done_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

// Growing pauses between attempts.
class Backoff {
 public:
  absl::Duration Next() { return std::exchange(pause_, std::min(2 * pause_, kLongestPause)); }

 private:
  absl::Duration pause_ = kShortestPause;
};

grpc::ChannelArguments ClientArguments() {
  setenv("GRPC_VERBOSITY", "NONE", 0);  // what goes wrong is in the status; the library's own lines would stand between ours
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMostReceived);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // Not GRPC_ARG_MIN_RECONNECT_BACKOFF_MS: it also is the time that a connection may take to be made on a busy machine.
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  SetKeepalive(Keepalive(), &arguments);
  return arguments;
}

}  // namespace

struct Client::Connection {
  template <typename S, typename Request, typename Response>
  using MethodOf = grpc::Status (S::*)(grpc::ClientContext*, const Request&, Response*);
  template <typename Request, typename Response>
  using Method = MethodOf<Stub, Request, Response>;

  Connection(ServerList its_servers, ChannelSecurity its_security, absl::Duration its_patience,
             std::optional<absl::Duration> its_call_limit = std::nullopt)
      : servers(std::move(its_servers)),
        security(std::move(its_security)),
        patience(its_patience),
        call_limit(its_call_limit.value_or(servers.has_others() ? kCallLimitAmongSeveral : kCallLimit)) {}

  // To the current server. Where it is refused the channel stays as it was.
  absl::Status Dial() {
    ASSIGN_OR_RETURN(auto made, MakeChannel(servers.current(), security, ClientArguments()));
    channel = std::move(made);
    stub = v1::ControlPlane::NewStub(channel);
    tokens = v1::AccessControl::NewStub(channel);
    return absl::OkStatus();
  }

  // To the leader that `status` names, or the next of several.
  absl::Status MoveOn(const grpc::Status& status) {
    const std::string before = servers.current();
    servers.MoveOn(server::FromGrpcStatus(status));
    return servers.current() == before ? absl::OkStatus() : Dial();
  }

  // Of a call to the current server that is not tried again.
  absl::Status ErrorOf(const grpc::Status& status) const {
    if (IsCutOff(status))
      return absl::UnavailableError(absl::StrCat("the server at ", servers.current(), " ended before it had answered"));
    const bool is_late = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && status.error_details().empty();
    if (!is_late) return ToStatus(status, servers.text());
    return absl::DeadlineExceededError(absl::StrCat("the server at ", servers.current(), " did not answer within ",
                                                    absl::FormatDuration(call_limit),
                                                    servers.has_others() ? ", as long as each of several is waited for" : ""));
  }

  // Whether another try, elsewhere if there are several, may do.
  bool MayPass(const grpc::Status& status) const {
    return status.error_code() == grpc::StatusCode::UNAVAILABLE || IsCutOff(status) ||
           (servers.has_others() && status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  }

  // Between two attempts: until there is a connection (true), or the pause is over. Waiting for the connection is what makes it:
  // between calls nobody else looks after it. A server that answered `status` itself is given the whole pause.
  bool Pause(const grpc::Status& status, absl::Duration pause) {
    const absl::Time end = absl::Now() + pause;
    absl::SleepFor(std::min(pause, kLook));
    if (IsAway(status)) return channel->WaitForConnected(absl::ToChronoTime(end));
    absl::SleepFor(end - absl::Now());
    return false;
  }

  // Tried again while the server does not answer, where that harms nothing.
  template <typename S, typename Request, typename Response>
  absl::StatusOr<Response> Call(MethodOf<S, Request, Response> method, const Request& request, bool repeatable = true) {
    const absl::Time give_up = absl::Now() + patience;
    Backoff backoff;
    for (;;) {
      grpc::ClientContext context;
      Limit(call_limit, &context);
      Response response;
      const grpc::Status status = (StubOf<S>()->*method)(&context, request, &response);
      if (status.ok()) return response;
      const absl::Duration left = give_up - absl::Now();
      const bool harmless = repeatable || GetNotLeader(server::FromGrpcStatus(status)).has_value();
      if (!MayPass(status) || !harmless || left <= absl::ZeroDuration()) return ErrorOf(status);
      RETURN_IF_ERROR(MoveOn(status));
      Pause(status, std::min(backoff.Next(), left));
    }
  }

  // Once, for as long as a simulation may take, by the first of several that answers.
  template <typename Request, typename Response>
  absl::StatusOr<Response> LongCall(Method<Request, Response> method, const Request& request,
                                    const std::function<bool()>& interrupted) {
    Response response;
    const grpc::Status status = Long(interrupted, [&](grpc::ClientContext* context) {
      Limit(kSimulateLimit, context);
      return (stub.get()->*method)(context, request, &response);
    });
    if (IsCutOff(status) && !(interrupted && interrupted())) return ErrorOf(status);
    if (!status.ok()) return ToStatus(status, servers.text());
    return response;
  }

  // Tries `call` once, or, where there are several servers, until one of them has answered.
  grpc::Status Long(const std::function<bool()>& interrupted, const std::function<grpc::Status(grpc::ClientContext*)>& call) {
    const absl::Time give_up = absl::Now() + patience;
    Backoff backoff;
    for (;;) {
      grpc::Status status;
      {
        grpc::ClientContext context;
        const Interrupter interrupter(&context, interrupted);
        status = call(&context);
      }
      const bool is_away = status.error_code() == grpc::StatusCode::UNAVAILABLE || IsCutOff(status);
      const bool again = servers.has_others() && is_away && absl::Now() < give_up;
      if (!again || (interrupted && interrupted()) || !MoveOn(status).ok()) return status;
      Pause(status, backoff.Next());
    }
  }

  // Of all pages, without a token.
  template <typename Request, typename Response>
  absl::StatusOr<Response> CallForAll(Method<Request, Response> method, Request request) {
    Response whole;
    request.set_page_size(kPage);
    do {
      ASSIGN_OR_RETURN(const Response page, Call(method, request));
      request.set_page_token(page.next_page_token());
      whole.MergeFrom(page);
    } while (!request.page_token().empty());
    whole.clear_next_page_token();
    return whole;
  }

  template <typename S>
  S* StubOf() {
    if constexpr (std::is_same_v<S, Stub>) {
      return stub.get();
    } else {
      return tokens.get();
    }
  }

  ServerList servers;
  const ChannelSecurity security;
  const absl::Duration patience;
  const absl::Duration call_limit;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<Stub> stub;
  std::unique_ptr<v1::AccessControl::Stub> tokens;
};

Client::Client(const std::string& address, absl::Duration patience)
    : Client(std::make_unique<Connection>(ServerList::Parse("--server", address).value(), ChannelSecurity(), patience)) {
  connection_->Dial().IgnoreError();  // without a token nothing is refused
}

Client::Client(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}

absl::StatusOr<std::unique_ptr<Client>> Client::Open(ServerList servers, ChannelSecurity security,
                                                     std::optional<absl::Duration> patience,
                                                     std::optional<absl::Duration> call_limit) {
  const absl::Duration limit = patience.value_or(servers.has_others() ? kFailover : kPatience);
  auto connection = std::make_unique<Connection>(std::move(servers), std::move(security), limit, call_limit);
  RETURN_IF_ERROR(connection->Dial());
  return std::unique_ptr<Client>(new Client(std::move(connection)));
}

Client::~Client() = default;

const std::string& Client::address() const { return connection_->servers.text(); }

absl::StatusOr<v1::Job> Client::CreateJob(const v1::CreateJobRequest& request) {
  return connection_->Call(&Stub::CreateJob, request, !request.request_id().empty());
}
absl::StatusOr<v1::Job> Client::RetryJob(const v1::RetryJobRequest& request) {
  return connection_->Call(&Stub::RetryJob, request, !request.request_id().empty());
}
absl::StatusOr<v1::Job> Client::GetJob(const v1::GetJobRequest& request) { return connection_->Call(&Stub::GetJob, request); }
absl::StatusOr<v1::Job> Client::CancelJob(const v1::CancelJobRequest& request) {
  return connection_->Call(&Stub::CancelJob, request);
}
absl::StatusOr<v1::ListJobsResponse> Client::ListJobs(const v1::ListJobsRequest& request) {
  return connection_->Call(&Stub::ListJobs, request);
}
absl::StatusOr<v1::ListAttemptsResponse> Client::ListAttempts(const v1::ListAttemptsRequest& request) {
  return connection_->CallForAll(&Stub::ListAttempts, request);
}
absl::StatusOr<v1::ListCheckpointsResponse> Client::ListCheckpoints(const v1::ListCheckpointsRequest& request) {
  return connection_->CallForAll(&Stub::ListCheckpoints, request);
}
absl::StatusOr<v1::PlanResult> Client::GetPlan(const v1::GetPlanRequest& request) {
  return connection_->Call(&Stub::GetPlan, request);
}
absl::StatusOr<v1::ListLogsResponse> Client::ListLogs(const v1::ListLogsRequest& request) {
  return connection_->Call(&Stub::ListLogs, request);
}
absl::StatusOr<v1::QueryMetricsResponse> Client::QueryMetrics(const v1::QueryMetricsRequest& request) {
  return connection_->Call(&Stub::QueryMetrics, request);
}
absl::StatusOr<v1::ListStepTracesResponse> Client::ListStepTraces(const v1::ListStepTracesRequest& request) {
  return connection_->Call(&Stub::ListStepTraces, request);
}
absl::StatusOr<v1::TraceFile> Client::GetStepTrace(const v1::GetStepTraceRequest& request) {
  return connection_->Call(&Stub::GetStepTrace, request);
}
absl::StatusOr<v1::FlightRecord> Client::GetFlightRecord(const v1::GetFlightRecordRequest& request) {
  return connection_->Call(&Stub::GetFlightRecord, request);
}
absl::StatusOr<v1::ListWorkersResponse> Client::ListWorkers(const v1::ListWorkersRequest& request) {
  return connection_->CallForAll(&Stub::ListWorkers, request);
}
absl::StatusOr<v1::ServerInfo> Client::GetServerInfo() {
  return connection_->Call(&Stub::GetServerInfo, v1::GetServerInfoRequest());
}
absl::StatusOr<v1::Worker> Client::GetWorker(const v1::GetWorkerRequest& request) {
  return connection_->Call(&Stub::GetWorker, request);
}
absl::StatusOr<v1::Worker> Client::CheckWorker(const v1::CheckWorkerRequest& request) {
  return connection_->Call(&Stub::CheckWorker, request);
}

absl::StatusOr<v1::Worker> Client::DrainWorker(const v1::DrainWorkerRequest& request) {
  return connection_->Call(&Stub::DrainWorker, request);
}

absl::StatusOr<v1::CreateTokenResponse> Client::CreateToken(const v1::CreateTokenRequest& request) {
  return connection_->Call(&v1::AccessControl::Stub::CreateToken, request, false);
}
absl::StatusOr<v1::ListTokensResponse> Client::ListTokens(const v1::ListTokensRequest& request) {
  return connection_->Call(&v1::AccessControl::Stub::ListTokens, request);
}
absl::StatusOr<v1::Token> Client::RevokeToken(const v1::RevokeTokenRequest& request) {
  return connection_->Call(&v1::AccessControl::Stub::RevokeToken, request);
}

absl::StatusOr<v1::ListAuditRecordsResponse> Client::ListAuditRecords(const v1::ListAuditRecordsRequest& request) {
  return connection_->Call(&v1::AccessControl::Stub::ListAuditRecords, request);
}

absl::StatusOr<v1::Estimate> Client::Simulate(const v1::SimulateRequest& request, const std::function<bool()>& interrupted) {
  return connection_->LongCall(&Stub::Simulate, request, interrupted);
}

absl::StatusOr<v1::TraceFile> Client::GetPredictedTrace(const v1::GetPredictedTraceRequest& request,
                                                        const std::function<bool()>& interrupted) {
  return connection_->LongCall(&Stub::GetPredictedTrace, request, interrupted);
}

absl::StatusOr<v1::PlanResult> Client::Plan(const v1::PlanRequest& request,
                                            const std::function<void(const v1::PlanningProgress&)>& progress,
                                            const std::function<bool()>& interrupted) {
  v1::PlanResponse response;
  const grpc::Status status = connection_->Long(interrupted, [&](grpc::ClientContext* context) {
    auto reader = connection_->stub->Plan(context, request);
    while (reader->Read(&response)) {
      if (response.has_progress()) progress(response.progress());
    }
    return reader->Finish();
  });
  if (!status.ok()) return ToStatus(status, connection_->servers.text());
  if (!response.has_result()) return absl::InternalError("the server ended the planning without a result");
  return response.result();
}

absl::Status Client::WatchJob(const std::string& name, const WatchCallbacks& callbacks) {
  v1::WatchJobRequest request;
  request.set_name(name);
  bool answered = false, over = false;
  Backoff backoff;
  absl::Time give_up = absl::Now() + connection_->patience;
  while (!over) {
    grpc::Status status;
    {
      grpc::ClientContext context;
      const Interrupter interrupter(&context, callbacks.interrupted);
      auto reader = connection_->stub->WatchJob(&context, request);
      v1::WatchJobResponse response;
      std::string config_json;  // of the first message; others come without
      while (reader->Read(&response)) {
        v1::Model* const model = response.mutable_job()->mutable_spec()->mutable_model();
        if (!model->config_json().empty()) config_json = model->config_json();
        model->set_config_json(config_json);
        answered = true;
        backoff = Backoff();
        request.set_after_version(response.job().version());
        over = server::IsFinal(response.job().state());
        callbacks.news(response);
      }
      status = reader->Finish();
    }
    if (callbacks.interrupted && callbacks.interrupted()) return absl::CancelledError("interrupted");
    if (over) return absl::OkStatus();
    const bool away = status.ok() || status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                      status.error_code() == grpc::StatusCode::CANCELLED ||
                      status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
    if (!away || (!answered && absl::Now() > give_up)) return ToStatus(status, connection_->servers.text());
    if (answered && callbacks.away) callbacks.away(ToStatus(status, connection_->servers.text()));
    RETURN_IF_ERROR(connection_->MoveOn(status));
    for (absl::Time end = absl::Now() + backoff.Next(); absl::Now() < end;) {
      if (connection_->Pause(status, 2 * kLook)) break;
      if (callbacks.interrupted && callbacks.interrupted()) return absl::CancelledError("interrupted");
    }
  }
  return absl::OkStatus();
}

}  // namespace legoai::cli
