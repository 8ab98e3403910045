#include "server/http/control_plane_handlers.h"

#include <utility>

namespace legoai::server {
namespace {

using google::protobuf::DynamicCastToGenerated;

template <typename Response>
absl::Status Answer(absl::StatusOr<Response> answer, Handlers::Message* response) {
  if (!answer.ok()) return answer.status();
  *DynamicCastToGenerated<Response>(response) = *std::move(answer);
  return absl::OkStatus();
}

template <typename Request, typename Response>
Handlers::Unary Unary(ControlPlane* control, absl::StatusOr<Response> (ControlPlane::*method)(const Request&)) {
  return [control, method](const Handlers::Message& request, const Handlers::Cancelled&, Handlers::Message* response) {
    return Answer((control->*method)(*DynamicCastToGenerated<const Request>(&request)), response);
  };
}

}  // namespace

Handlers ControlPlaneHandlers(ControlPlane* control, std::function<void()> before_scrape) {
  Handlers handlers;
  handlers.unary = {
      {"CreateJob", Unary(control, &ControlPlane::CreateJob)},
      {"GetJob", Unary(control, &ControlPlane::GetJob)},
      {"ListJobs", Unary(control, &ControlPlane::ListJobs)},
      {"CancelJob", Unary(control, &ControlPlane::CancelJob)},
      {"RetryJob", Unary(control, &ControlPlane::RetryJob)},
      {"ListTransitions", Unary(control, &ControlPlane::ListTransitions)},
      {"ListAttempts", Unary(control, &ControlPlane::ListAttempts)},
      {"ListCheckpoints", Unary(control, &ControlPlane::ListCheckpoints)},
      {"GetPlan", Unary(control, &ControlPlane::GetPlan)},
      {"QueryMetrics", Unary(control, &ControlPlane::QueryMetrics)},
      {"ListLogs", Unary(control, &ControlPlane::ListLogs)},
      {"GetFlightRecord", Unary(control, &ControlPlane::GetFlightRecord)},
      {"ListWorkers", Unary(control, &ControlPlane::ListWorkers)},
      {"GetWorker", Unary(control, &ControlPlane::GetWorker)},
      {"DrainWorker", Unary(control, &ControlPlane::DrainWorker)},
      {"GetServerInfo", Unary(control, &ControlPlane::GetServerInfo)},
      {"Simulate",
       [control](const Handlers::Message& request, const Handlers::Cancelled& cancelled, Handlers::Message* response) {
         return Answer(control->Simulate(*DynamicCastToGenerated<const v1::SimulateRequest>(&request), cancelled), response);
       }},
  };
  handlers.streams["Plan"] = [control](const Handlers::Message& request,
                                       const std::function<bool(const Handlers::Message&)>& send,
                                       const Handlers::Cancelled& cancelled) {
    return control->Plan(*DynamicCastToGenerated<const v1::PlanRequest>(&request), send, cancelled);
  };
  handlers.slow = {"Plan", "Simulate"};
  handlers.look_at_job = [control](const v1::WatchJobRequest& request, LiveSeen* seen) {
    return control->LookAtJob(request, seen);
  };
  handlers.before_scrape = std::move(before_scrape);
  return handlers;
}

}  // namespace legoai::server
