// The calls of ControlPlane that give traces of steps: measured ones, and the predicted one.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/fleet/offers.h"
#include "server/jobs/names.h"
#include "server/jobs/transition.h"
#include "server/rpc/control_plane.h"

namespace legoai::server {
namespace {

constexpr char kPredictedTraceEnd[] = "/predictedTrace";

// The slots that the job was planned for, as the planner saw them: those of any worker of that kind.
absl::StatusOr<v1::Cluster> PlannedCluster(const v1::Job& job, const std::string& planned_for,
                                           const std::vector<v1::Worker>& workers) {
  const int64_t count = std::max<int64_t>(1, job.worker_count()), slots = job.world_size() / count;
  const bool in_domain = IsInDomain(planned_for);
  const auto alike = std::find_if(workers.begin(), workers.end(), [&](const v1::Worker& worker) {
    return worker.slots() >= slots && ClusterName(SlotKind(worker), slots, count, in_domain) == planned_for;
  });
  if (alike != workers.end()) return ClusterOf(*alike, slots, count, in_domain);
  return FieldError("name", job.name(),
                    absl::StrCat("was planned for ", planned_for,
                                 ", and the server knows no worker of that kind now: connect one, or predict its step "
                                 "elsewhere with `lego simulate --trace`"),
                    absl::StatusCode::kNotFound);
}

}  // namespace

absl::StatusOr<v1::ListStepTracesResponse> ControlPlane::ListStepTraces(const v1::ListStepTracesRequest& request) {
  v1::ListStepTracesResponse response;
  const absl::Status status =
      ReadJob("parent", request.parent(), [&](store::ReadTransaction& transaction, v1::Job& job) -> absl::Status {
        ASSIGN_OR_RETURN(auto traces, transaction.ListStepTraces(job.name()));
        for (v1::StepTraceInfo& trace : traces) *response.add_step_traces() = std::move(trace);
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::TraceFile> ControlPlane::GetStepTrace(const v1::GetStepTraceRequest& request) {
  ASSIGN_OR_RETURN(const auto name, ParseStepTraceName("name", request.name()));
  v1::TraceFile file;
  const absl::Status status = ReadJob("name", name.job, [&](store::ReadTransaction& transaction, v1::Job&) -> absl::Status {
    ASSIGN_OR_RETURN(auto found, transaction.GetStepTrace(name.job, name.attempt, name.step, name.rank));
    if (!found) {
      return FieldError("name", request.name(), "there is no such trace, or not any more; `lego traces JOB` lists those that are",
                        absl::StatusCode::kNotFound);
    }
    file = *std::move(found);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return file;
}

absl::StatusOr<v1::TraceFile> ControlPlane::GetPredictedTrace(const v1::GetPredictedTraceRequest& request,
                                                              const std::function<bool()>& cancelled) {
  std::string name = request.name();
  if (absl::EndsWith(name, kPredictedTraceEnd)) name.resize(name.size() - (sizeof(kPredictedTraceEnd) - 1));
  v1::Job planned;
  std::string planned_for;
  const absl::Status status = ReadJob("name", name, [&](store::ReadTransaction& transaction, v1::Job& job) -> absl::Status {
    ASSIGN_OR_RETURN(const auto plan, transaction.GetPlan(job.name()));
    if (!job.has_chosen() || !plan) {
      return FieldError("name", job.name(),
                        absl::StrCat("is ", StateText(job.state()), " and has no recipe whose step could be predicted"),
                        absl::StatusCode::kNotFound);
    }
    planned_for = plan->cluster();
    planned = std::move(job);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  v1::SimRequest step;
  ASSIGN_OR_RETURN(*step.mutable_cluster(), PlannedCluster(planned, planned_for, fleet_->Workers()));
  *step.mutable_model() = planned.spec().model();
  *step.mutable_recipe() = planned.chosen().recipe();
  v1::TraceFile file;
  ASSIGN_OR_RETURN(*file.mutable_trace_gzip(), predicted_traces_.Get(step, cancelled));
  file.set_file_name(absl::StrCat(name.substr(name.rfind('/') + 1), "-predicted.json.gz"));
  return file;
}

}  // namespace legoai::server
