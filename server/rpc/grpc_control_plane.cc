#include "server/rpc/grpc_control_plane.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/legoai/v1/control_plane.grpc.pb.h"
#include "proto/status.h"
#include "server/rpc/admission.h"
#include "server/rpc/grpc_access_control.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/job_watch.h"
#include "server/rpc/stream_reactors.h"
#include "server/rpc/thread_pool.h"

namespace legoai::server {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

class GrpcControlPlane::Service : public v1::ControlPlane::CallbackService {
 public:
  Service(ControlPlane* control, ThreadPool* pool, const GrpcLimits& limits, Metrics* metrics, access::Gate* gate,
          LeaderCalls* leader)
      : control_(control),
        metrics_(metrics),
        gate_(gate),
        leader_(leader),
        source_{.poll = [control](const auto& request, WatchState* seen) { return control->PollJob(request, seen); },
                .notifier = &control->notifier(),
                .post = [this](auto work, auto after) { polls_.Post(std::move(work), after); }},
        watches_(limits.watches, limits.watches_per_client),
        calls_(pool, limits.calls_running, limits.calls_waiting),
        polls_(pool, limits.polls_running, std::numeric_limits<size_t>::max()),  // a watch has at most one poll waiting
        plans_(pool, limits.plans_running, limits.plans_waiting),
        revocations_(gate == nullptr ? nullptr : gate->AfterRefresh([this] { watches_.EndOthers(*gate_); })) {}

  void EndWatches() { watches_.EndAll(); }

// One handler like the other.
#define LEGOAI_CALL(Name, Answer)                                                                                             \
  ServerUnaryReactor* Name(CallbackServerContext* context, const v1::Name##Request* request, v1::Answer* response) override { \
    return Call(#Name, &calls_, context, request, response, [this](const auto& asked) { return control_->Name(asked); });     \
  }
  LEGOAI_CALL(CreateJob, Job)
  LEGOAI_CALL(GetJob, Job)
  LEGOAI_CALL(ListJobs, ListJobsResponse)
  LEGOAI_CALL(CancelJob, Job)
  LEGOAI_CALL(RetryJob, Job)
  LEGOAI_CALL(ListTransitions, ListTransitionsResponse)
  LEGOAI_CALL(ListAttempts, ListAttemptsResponse)
  LEGOAI_CALL(ListCheckpoints, ListCheckpointsResponse)
  LEGOAI_CALL(GetPlan, PlanResult)
  LEGOAI_CALL(QueryMetrics, QueryMetricsResponse)
  LEGOAI_CALL(ListStepTraces, ListStepTracesResponse)
  LEGOAI_CALL(GetStepTrace, TraceFile)
  LEGOAI_CALL(ListLogs, ListLogsResponse)
  LEGOAI_CALL(GetFlightRecord, FlightRecord)
  LEGOAI_CALL(ListWorkers, ListWorkersResponse)
  LEGOAI_CALL(GetWorker, Worker)
  LEGOAI_CALL(DrainWorker, Worker)
  LEGOAI_CALL(CheckWorker, Worker)
  LEGOAI_CALL(GetServerInfo, ServerInfo)
#undef LEGOAI_CALL

  ServerUnaryReactor* Simulate(CallbackServerContext* context, const v1::SimulateRequest* request,
                               v1::Estimate* response) override {
    return Call("Simulate", &plans_, context, request, response, [this, context](const auto& asked) {
      return control_->Simulate(asked, [context] { return context->IsCancelled(); });
    });
  }

  ServerUnaryReactor* GetPredictedTrace(CallbackServerContext* context, const v1::GetPredictedTraceRequest* request,
                                        v1::TraceFile* response) override {
    return Call("GetPredictedTrace", &plans_, context, request, response, [this, context](const auto& asked) {
      return control_->GetPredictedTrace(asked, [context] { return context->IsCancelled(); });
    });
  }

  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(CallbackServerContext* context,
                                                           const v1::WatchJobRequest* request) override {
    const auto who = Admit("WatchJob", *context, *request);
    auto* watch = new WatchReactor(&source_, &watches_, ClientOf(context->peer()), *request, CountStream("WatchJob"),
                                   who.ok() ? *who : access::Identity());
    watch->Begin(who.status());
    return watch;
  }

  grpc::ServerWriteReactor<v1::PlanResponse>* Plan(CallbackServerContext* context, const v1::PlanRequest* request) override {
    const auto who = Admit("Plan", *context, *request);
    const auto make = [this, passed = PassedBy(context), remote = context->peer(), who](
                          const v1::PlanRequest& asked, const PlanReactor::Send& send, const std::function<bool()>& cancelled) {
      std::optional<absl::Status> status;
      if (leader_ != nullptr) status = leader_->PassOnPlan({passed.authorization, passed.passed_on, cancelled}, asked, send);
      if (!status) status = control_->Plan(asked, send, cancelled);
      AuditCall({"grpc", remote, *who, gate_}, "Plan", asked, *status);
      return *status;
    };
    auto* plan = new PlanReactor(make, *request, CountStream("Plan"));
    plan->Begin(&plans_, who.status());
    return plan;
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Runs `handler` as work of `queue`; request, response and context are there until Finish.
  template <typename Request, typename Response, typename Handler>
  ServerUnaryReactor* Call(const char* method, WorkQueue* queue, CallbackServerContext* context, const Request* request,
                           Response* response, Handler handler) {
    ServerUnaryReactor* reactor = context->DefaultReactor();
    const Clock::time_point begun = Clock::now();
    auto end = [this, method, begun, reactor](const absl::Status& status) {
      // Counted first: who has the answer finds it counted.
      Count(method, status.code(), std::chrono::duration<double>(Clock::now() - begun).count());
      reactor->Finish(ToGrpcStatus(status));
    };
    const bool taken = queue->Post([=, this] {
      if (context->IsCancelled()) return end(absl::CancelledError("the client has left"));
      const auto who = Admit(method, *context, *request);
      absl::Status status = who.status();
      if (status.ok()) {
        std::optional<absl::Status> passed;
        if (leader_ != nullptr) passed = leader_->PassOn(method, PassedBy(context), *request, response);
        status = passed ? *passed : Answer(handler, *request, response);
        if (status.ok()) access::HideOthers(*who, response);
        AuditCall({"grpc", context->peer(), *who, gate_}, method, *request, status);
      }
      end(status);
    });
    if (!taken) end(BusyError("too many calls wait on this server", absl::Seconds(1)));
    return reactor;
  }

  template <typename Request, typename Response, typename Handler>
  static absl::Status Answer(const Handler& handler, const Request& request, Response* response) {
    ASSIGN_OR_RETURN(*response, handler(request));
    return absl::OkStatus();
  }

  absl::StatusOr<access::Identity> Admit(const char* method, const CallbackServerContext& context,
                                         const google::protobuf::Message& request) const {
    ASSIGN_OR_RETURN(auto who, IdentityOf(gate_, context, absl::StrCat("legoai.v1.ControlPlane/", method)));
    RETURN_IF_ERROR(AdmitCall({"grpc", context.peer(), who, gate_}, method, request));
    return who;
  }
  // Only as long as there is the context.
  static PassedCall PassedBy(const CallbackServerContext* context) {
    const auto& metadata = context->client_metadata();
    const auto authorization = metadata.find(kAuthorization);
    return {.authorization = authorization == metadata.end()
                                 ? ""
                                 : std::string(authorization->second.data(), authorization->second.size()),
            .passed_on = metadata.count(kPassedOn) > 0,
            .cancelled = [context] { return context->IsCancelled(); }};
  }
  void Count(const char* method, absl::StatusCode code, std::optional<double> seconds) {
    if (metrics_ != nullptr) metrics_->GrpcRequest(method, absl::StatusCodeToString(code), seconds);
  }
  std::function<void(absl::StatusCode)> CountStream(const char* method) {
    return [this, method](absl::StatusCode code) { Count(method, code, std::nullopt); };
  }

  ControlPlane* const control_;
  Metrics* const metrics_;
  access::Gate* const gate_;
  LeaderCalls* const leader_;
  const JobWatchSource source_;
  WatchSet watches_;
  // Gone before what they work on.
  WorkQueue calls_, polls_, plans_;
  const std::shared_ptr<void> revocations_;  // ends watches whose token does not count any more
};

GrpcControlPlane::GrpcControlPlane(ControlPlane* control, ThreadPool* pool, const GrpcLimits& limits, Metrics* metrics,
                                   access::Gate* gate, LeaderCalls* leader)
    : service_(std::make_unique<Service>(control, pool, limits, metrics, gate, leader)) {}

GrpcControlPlane::~GrpcControlPlane() = default;

grpc::Service* GrpcControlPlane::service() { return service_.get(); }

void GrpcControlPlane::EndWatches() { service_->EndWatches(); }

}  // namespace legoai::server
