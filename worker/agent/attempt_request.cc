#include "worker/agent/attempt_request.h"

#include "absl/strings/str_cat.h"
#include "core/hardware/host_device.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::agent {
namespace {

absl::Status CheckPlacement(const v1::StartAttempt& start) {
  const v1::Placement& placement = start.placement();
  if (start.world_size() < 1) return FieldError("world_size", absl::StrCat(start.world_size()), "must be at least 1");
  if (placement.first_rank() == 0 && placement.slots() == start.world_size()) return absl::OkStatus();
  return FieldError(
      "placement", absl::StrCat(placement.slots(), " slots from rank ", placement.first_rank()),
      absl::StrCat("all ", start.world_size(), " ranks of an attempt must run on one worker: give it a worker with as ",
                   "many free slots, or the job fewer slots (resources.slots)"));
}

}  // namespace

absl::StatusOr<launch::TrainRequest> AttemptRequest(const v1::StartAttempt& start, const std::string& run_directory,
                                                    const std::string& trainer, const v1::Device& device) {
  RETURN_IF_ERROR(CheckPlacement(start));
  launch::TrainRequest request;
  request.recipe = start.recipe();
  request.recipe.mutable_job()->set_dump_folder(run_directory);
  if (!start.dataset().uri().empty()) request.recipe.mutable_training()->set_dataset_path(start.dataset().uri());
  request.dataset = start.dataset();
  request.model = start.model();
  request.nproc = start.world_size();
  request.trainer = trainer;
  request.lease.emplace();
  request.lease->attempt = start.attempt();
  request.lease->epoch = start.lease().epoch();
  if (start.has_resume_step()) request.lease->resume_step = start.resume_step();
  request.lease->resume_directory = start.resume_directory();
  request.lease->take_back = start.take_back();
  request.device = device.kind() == v1::CUDA ? "cuda" : "cpu";
  request.peak_flops_per_second = sim::TruePeakFlops(device, request.recipe.training().mixed_precision_param());
  return request;
}

}  // namespace legoai::agent
