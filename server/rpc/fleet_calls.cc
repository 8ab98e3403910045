// The calls of ControlPlane that the fleet answers: workers, and planning without a job.
#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/hardware/catalog.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/jobs/names.h"
#include "server/jobs/request_checks.h"
#include "server/rpc/control_plane.h"
#include "server/rpc/list_query.h"

namespace legoai::server {
namespace {

constexpr int64_t kWorkersPage = 200;
constexpr int64_t kMostCount = 1'000'000'000;
constexpr int64_t kMostDevices = 1 << 20;
constexpr double kDefaultBudgetSeconds = 300;  // as `lego plan`

absl::Status CheckCount(const char* field, int64_t value) {
  if (value >= 1 && value <= kMostCount) return absl::OkStatus();
  return FieldError(field, absl::StrCat(value), absl::StrCat("must lie between 1 and ", kMostCount));
}

absl::Status CheckCluster(const std::string& path, const v1::Cluster& cluster) {
  if (absl::Status status = sim::CheckCluster(cluster); !status.ok()) return Under(path, status);
  if (cluster.nodes() <= kMostDevices / cluster.devices_per_node()) return absl::OkStatus();
  return FieldError(path, cluster.name(), absl::StrCat("has more than ", kMostDevices, " devices"));
}

// What has passed is dozens of figures of each worker: GetWorker has them.
void LeaveOutWhatHasPassed(v1::Worker* worker) {
  if (!worker->health().has_check()) return;
  auto* const results = worker->mutable_health()->mutable_check()->mutable_results();
  results->erase(std::remove_if(results->begin(), results->end(), [](const v1::CheckResult& result) { return result.passed(); }),
                 results->end());
}

absl::Status NoSuchWorker(const std::string& name) {
  return FieldError("name", name, "there is no such worker; `lego workers` shows those that are", absl::StatusCode::kNotFound);
}

absl::StatusOr<v1::PlanRequest> CheckPlanRequest(v1::PlanRequest request) {
  absl::Status status = CheckKnown(request, "");
  if (status.ok()) status = CheckModel("model", request.mutable_model());
  if (status.ok()) status = CheckCluster("cluster", request.cluster());
  if (status.ok()) status = CheckCount("global_batch", request.global_batch());
  if (status.ok()) status = CheckCount("seq_len", request.seq_len());
  // The batch of the request is the one that counts; constraints are held against it.
  request.mutable_base()->mutable_training()->set_global_batch_size(request.global_batch());
  request.mutable_base()->mutable_training()->set_seq_len(request.seq_len());
  if (status.ok()) status = CheckBase("base", request.mutable_base());
  if (status.ok() && request.has_resume_from()) status = CheckRecipe("resume_from", request.mutable_resume_from());
  if (status.ok())
    status = CheckConstraints("constraints", {request.constraints().begin(), request.constraints().end()}, request.base());
  if (!status.ok()) return status;
  if (request.budget_seconds() == 0) request.set_budget_seconds(kDefaultBudgetSeconds);
  if (!(request.budget_seconds() > 0 && request.budget_seconds() <= kMostBudgetSeconds))
    return FieldError("budget_seconds", absl::StrCat(request.budget_seconds()),
                      absl::StrCat("must be above 0 and at most ", kMostBudgetSeconds));
  if (request.top() < 0 || request.top() > kMostTop)
    return FieldError("top", absl::StrCat(request.top()), absl::StrCat("must lie between 0 and ", kMostTop));
  return request;
}

absl::StatusOr<v1::SimRequest> CheckSimRequest(v1::SimRequest request) {
  constexpr char kPath[] = "must be empty: files would be written on the server";
  if (!request.chrome_trace_path().empty()) return FieldError("request.chrome_trace_path", request.chrome_trace_path(), kPath);
  if (!request.dump_passes_directory().empty())
    return FieldError("request.dump_passes_directory", request.dump_passes_directory(), kPath);
  if (!request.stages_directory().empty()) return FieldError("request.stages_directory", request.stages_directory(), kPath);
  if (!request.memory_timeline_path().empty())
    return FieldError("request.memory_timeline_path", request.memory_timeline_path(), kPath);
  if (request.cost_mode() == v1::COST_BENCHMARK)
    return FieldError("request.cost_mode", "COST_BENCHMARK",
                      "is not done by a server, whose cores others use; simulate without a server on the machine that is meant");
  absl::Status status = CheckKnown(request, "request");
  if (status.ok()) status = CheckModel("request.model", request.mutable_model());
  if (status.ok()) status = CheckCluster("request.cluster", request.cluster());
  if (status.ok()) status = CheckRecipe("request.recipe", request.mutable_recipe());
  if (!status.ok()) return status;
  request.set_cost_mode(v1::COST_ROOFLINE);
  return request;
}

}  // namespace

absl::StatusOr<v1::ListWorkersResponse> ControlPlane::ListWorkers(const v1::ListWorkersRequest& request) {
  ASSIGN_OR_RETURN(const auto filter, ParseWorkerFilter(request.filter()));
  ASSIGN_OR_RETURN(const auto size, PageSize(request.page_size(), kWorkersPage));
  ASSIGN_OR_RETURN(const auto cursor, ReadPageToken({"workers", request.filter()}, request.page_token()));
  v1::ListWorkersResponse response;
  for (v1::Worker& worker : fleet_->Workers()) {
    if (worker.name() <= cursor || !Matches(filter, worker)) continue;
    if (response.workers_size() == size) {
      response.set_next_page_token(MakePageToken({"workers", request.filter()}, response.workers().rbegin()->name()));
      break;
    }
    LeaveOutWhatHasPassed(&worker);
    *response.add_workers() = std::move(worker);
  }
  return response;
}

absl::StatusOr<v1::Worker> ControlPlane::GetWorker(const v1::GetWorkerRequest& request) {
  if (const auto name = ParseWorkerName("name", request.name()); !name.ok()) return name.status();
  for (v1::Worker& worker : fleet_->Workers()) {
    if (worker.name() == request.name()) return std::move(worker);
  }
  return NoSuchWorker(request.name());
}

absl::StatusOr<v1::Worker> ControlPlane::DrainWorker(const v1::DrainWorkerRequest& request) {
  if (const auto name = ParseWorkerName("name", request.name()); !name.ok()) return name.status();
  auto worker = fleet_->Drain(request);
  if (absl::IsNotFound(worker.status())) return NoSuchWorker(request.name());
  return worker;
}

absl::StatusOr<v1::Worker> ControlPlane::CheckWorker(const v1::CheckWorkerRequest& request) {
  if (const auto name = ParseWorkerName("name", request.name()); !name.ok()) return name.status();
  auto worker = fleet_->CheckWorker(request);
  if (absl::IsNotFound(worker.status())) return NoSuchWorker(request.name());
  return worker;
}

absl::StatusOr<v1::Estimate> ControlPlane::Simulate(const v1::SimulateRequest& request, const std::function<bool()>& cancelled) {
  if (!request.has_request()) return FieldError("request", "", "is needed: what is to be simulated");
  ASSIGN_OR_RETURN(const auto checked, CheckSimRequest(request.request()));
  return fleet_->Simulate(checked, cancelled);
}

absl::Status ControlPlane::Plan(const v1::PlanRequest& request, const std::function<bool(const v1::PlanResponse&)>& send,
                                const std::function<bool()>& cancelled) {
  ASSIGN_OR_RETURN(const auto checked, CheckPlanRequest(request));
  std::atomic<bool> left = false;
  auto progress = [&](const v1::PlanningProgress& at) {
    v1::PlanResponse response;
    *response.mutable_progress() = at;
    if (!send(response)) left = true;
  };
  v1::PlanResponse response;
  ASSIGN_OR_RETURN(*response.mutable_result(), fleet_->Plan(checked, progress, [&] { return left || cancelled(); }));
  return send(response) ? absl::OkStatus() : absl::CancelledError("the client has left");
}

}  // namespace legoai::server
