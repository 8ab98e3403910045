#include "server/http/handlers.h"

#include <utility>

#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/model/model_facts.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/json/json.h"
#include "proto/json/reflect.h"

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

Tree ModelTree(const v1::Model& model) {
  return {{"name", model.name()},
          {"parameters", model::ParameterCount(model)},
          {"architecture", EnumText(model.architecture())},
          {"max_position_embeddings", model.max_position_embeddings()}};
}

Tree DeviceTree(const v1::Device& device) {
  return {{"type", device.type()},
          {"kind", EnumText(device.kind())},
          {"memory_bytes", device.memory_bytes()},
          {"node_link", device.node_link()},
          {"cluster_link", device.cluster_link()}};
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
      {"ListStepTraces", Unary(control, &ControlPlane::ListStepTraces)},
      {"GetStepTrace", Unary(control, &ControlPlane::GetStepTrace)},
      {"ListLogs", Unary(control, &ControlPlane::ListLogs)},
      {"GetFlightRecord", Unary(control, &ControlPlane::GetFlightRecord)},
      {"ListWorkers", Unary(control, &ControlPlane::ListWorkers)},
      {"GetWorker", Unary(control, &ControlPlane::GetWorker)},
      {"DrainWorker", Unary(control, &ControlPlane::DrainWorker)},
      {"CheckWorker", Unary(control, &ControlPlane::CheckWorker)},
      {"GetServerInfo", Unary(control, &ControlPlane::GetServerInfo)},
      {"Simulate",
       [control](const Handlers::Message& request, const Handlers::Cancelled& cancelled, Handlers::Message* response) {
         return Answer(control->Simulate(*DynamicCastToGenerated<const v1::SimulateRequest>(&request), cancelled), response);
       }},
      {"GetPredictedTrace",
       [control](const Handlers::Message& request, const Handlers::Cancelled& cancelled, Handlers::Message* response) {
         const auto& asked = *DynamicCastToGenerated<const v1::GetPredictedTraceRequest>(&request);
         return Answer(control->GetPredictedTrace(asked, cancelled), response);
       }},
  };
  handlers.streams["Plan"] = [control](const Handlers::Message& request,
                                       const std::function<bool(const Handlers::Message&)>& send,
                                       const Handlers::Cancelled& cancelled) {
    return control->Plan(*DynamicCastToGenerated<const v1::PlanRequest>(&request), send, cancelled);
  };
  handlers.slow = {"GetPredictedTrace", "Plan", "Simulate"};
  handlers.poll_job = [control](const v1::WatchJobRequest& request, WatchState* seen) { return control->PollJob(request, seen); };
  handlers.before_scrape = std::move(before_scrape);
  return handlers;
}

std::string CatalogJson() {
  Tree models = Tree::array(), devices = Tree::array();
  for (const v1::Model& model : model::Catalog()) models.push_back(ModelTree(model));
  for (const v1::Device& device : sim::ListDevices()) devices.push_back(DeviceTree(device));
  return Tree({{"models", models}, {"devices", devices}}).dump();
}

absl::StatusOr<std::string> ClusterJson(const std::string& name) {
  // Only a type of the catalog: ParseCluster would take the path of a file, too.
  const auto device = sim::FindDevice(name.substr(0, name.rfind(':')));
  const auto cluster = device.ok() ? sim::ParseCluster(name) : device.status();
  if (cluster.ok()) return ToJson(*cluster, -1);
  const auto violation = GetFieldViolation(cluster.status());
  if (!violation) return cluster.status();
  return FieldError("cluster", name, violation->remedy());
}

}  // namespace legoai::server
