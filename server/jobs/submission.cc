#include "server/jobs/submission.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/files.h"
#include "core/data/dataset_facts.h"
#include "core/hardware/catalog.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/jobs/names.h"
#include "server/jobs/request_checks.h"

namespace legoai::server {
namespace {

constexpr size_t kMostDisplayName = 200;
constexpr int64_t kMostPriority = 1000;
constexpr int64_t kMostRestarts = 1000;

absl::Status CheckRange(const char* field, int64_t value, int64_t least, int64_t most, const char* why = "") {
  if (value >= least && value <= most) return absl::OkStatus();
  return FieldError(field, absl::StrCat(value), absl::StrCat("must lie between ", least, " and ", most, why));
}

bool IsSha256(const std::string& text) {
  return text.size() == 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); });
}

absl::Status CheckDataset(v1::JobSpec* spec) {
  const v1::Dataset& dataset = spec->dataset();
  const auto path = data::DatasetPath(dataset.uri());
  if (!path.ok()) {
    const auto violation = GetFieldViolation(path.status());
    return FieldError("spec.dataset.uri", dataset.uri(), violation ? violation->remedy() : std::string(path.status().message()));
  }
  if (!absl::StartsWith(*path, "/"))
    return FieldError("spec.dataset.uri", dataset.uri(), "must be an absolute path or file:///path: workers have another folder");
  if (!dataset.sha256().empty() && !IsSha256(dataset.sha256()))
    return FieldError("spec.dataset.sha256", dataset.sha256(), "must be 64 hexadecimal digits in lower case, or empty");
  if (dataset.bytes() < 0) return FieldError("spec.dataset.bytes", absl::StrCat(dataset.bytes()), "must not be negative");
  v1::Training* training = spec->mutable_recipe()->mutable_training();
  if (!training->has_dataset_path()) training->set_dataset_path(dataset.uri());
  if (training->dataset_path() != dataset.uri())
    return FieldError("spec.recipe.training.dataset_path", training->dataset_path(),
                      absl::StrCat("must be the dataset's uri, ", dataset.uri(), ", or unset"));
  return absl::OkStatus();
}

// The batch and the sequence are the job's; everything else of the layout is the planner's.
absl::Status CheckBatch(const v1::Training& training) {
  if (!training.has_global_batch_size() || training.global_batch_size() == -1)
    return FieldError("spec.recipe.training.global_batch_size", "", "is needed: sequences per optimizer step");
  if (!training.has_seq_len()) return FieldError("spec.recipe.training.seq_len", "", "is needed: tokens per sequence");
  return absl::OkStatus();
}

absl::Status CheckResources(v1::Resources* resources) {
  if (!resources->has_slots()) resources->set_slots(0);
  if (!resources->has_min_slots()) resources->set_min_slots(1);
  if (!resources->has_pool()) resources->set_pool("default");
  constexpr char kMost[] = ": no job has more";
  absl::Status status = CheckRange("spec.resources.slots", resources->slots(), 0, kMostSlots, kMost);
  if (status.ok()) status = CheckRange("spec.resources.min_slots", resources->min_slots(), 1, kMostSlots, kMost);
  if (!status.ok()) return status;
  if (resources->slots() > 0 && resources->min_slots() > resources->slots())
    return FieldError("spec.resources.min_slots", absl::StrCat(resources->min_slots()),
                      absl::StrCat("must not exceed slots, ", resources->slots()));
  if (!IsSegment(resources->pool()))
    return FieldError("spec.resources.pool", resources->pool().substr(0, kMostDisplayName),
                      "must be letters, digits and -._, at most 63, beginning with a letter or digit");
  if (!resources->has_device_type()) return absl::OkStatus();
  if (resources->device_type().size() > kMostDisplayName)
    return FieldError("spec.resources.device_type", "", "is no type of device; `lego hardware` lists them");
  const auto device = sim::FindDevice(resources->device_type());
  if (device.ok()) return absl::OkStatus();
  const auto violation = GetFieldViolation(device.status());
  return FieldError("spec.resources.device_type", resources->device_type(),
                    violation ? violation->remedy() : std::string(device.status().message()));
}

absl::Status CheckPlanning(const v1::Recipe& recipe, v1::Planning* planning) {
  if (planning->objective() == v1::OBJECTIVE_UNSPECIFIED) planning->set_objective(v1::STEP_TIME);
  if (!planning->has_budget_seconds()) planning->set_budget_seconds(300);
  if (!planning->has_top()) planning->set_top(10);
  if (!planning->has_min_headroom_bytes()) planning->set_min_headroom_bytes(0);
  const double budget = planning->budget_seconds();
  if (!(budget > 0 && budget <= kMostBudgetSeconds))
    return FieldError("spec.planning.budget_seconds", absl::StrCat(budget),
                      absl::StrCat("must be above 0 and at most ", kMostBudgetSeconds));
  absl::Status status = CheckRange("spec.planning.top", planning->top(), 1, kMostTop);
  if (status.ok()) status = CheckRange("spec.planning.min_headroom_bytes", planning->min_headroom_bytes(), 0, kMostHeadroomBytes);
  if (!status.ok()) return status;
  return CheckConstraints("spec.planning.constraints", {planning->constraints().begin(), planning->constraints().end()}, recipe);
}

absl::Status CheckPolicy(v1::Policy* policy) {
  if (!policy->has_priority()) policy->set_priority(0);
  if (!policy->has_max_restarts()) policy->set_max_restarts(3);
  absl::Status status = CheckRange("spec.policy.priority", policy->priority(), -kMostPriority, kMostPriority);
  if (status.ok()) status = CheckRange("spec.policy.max_restarts", policy->max_restarts(), 0, kMostRestarts);
  return status;
}

absl::Status CheckEnvelope(const v1::CreateJobRequest& request) {
  if (const size_t bytes = request.ByteSizeLong(); bytes > kMostRequestBytes)
    return FieldError("spec", absl::StrCat(bytes, " bytes"),
                      absl::StrCat("a submission has at most ", kMostRequestBytes, " bytes"));
  if (const auto project = ParseProjectName("parent", request.parent()); !project.ok()) return project.status();
  RETURN_IF_ERROR(CheckRequestId("request_id", request.request_id()));
  if (!request.has_spec()) return FieldError("spec", "", "is needed: what is to be trained");
  return CheckKnown(request, "");
}

}  // namespace

std::string DeterministicBytes(const google::protobuf::Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

absl::StatusOr<v1::JobSpec> CheckSubmission(const v1::CreateJobRequest& request) {
  RETURN_IF_ERROR(CheckEnvelope(request));
  v1::JobSpec spec = request.spec();
  RETURN_IF_ERROR(CheckModel("spec.model", spec.mutable_model()));
  if (spec.display_name().empty()) spec.set_display_name(spec.model().name());
  absl::Status status = CheckText("spec.display_name", spec.display_name(), kMostDisplayName);
  if (status.ok()) status = CheckDataset(&spec);
  if (status.ok()) status = CheckBatch(spec.recipe().training());
  if (status.ok()) status = CheckBase("spec.recipe", spec.mutable_recipe());
  if (status.ok()) status = CheckPaths("spec.recipe", spec.recipe());
  if (status.ok()) status = CheckResources(spec.mutable_resources());
  if (status.ok()) status = CheckPlanning(spec.recipe(), spec.mutable_planning());
  if (status.ok()) status = CheckPolicy(spec.mutable_policy());
  if (status.ok()) status = CheckLegal(spec);
  if (!status.ok()) return status;
  return spec;
}

absl::Status CheckRequestId(std::string_view field, std::string_view request_id) {
  if (request_id.empty()) return absl::OkStatus();
  const bool legal = request_id.size() >= 8 && request_id.size() <= 64 &&
                     std::all_of(request_id.begin(), request_id.end(),
                                 [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == ':'; });
  if (legal) return absl::OkStatus();
  return FieldError(field, request_id.substr(0, 100), "must be 8 to 64 letters, digits and -_.: (a UUID or ULID), or empty");
}

std::string SubmissionDigest(const v1::CreateJobRequest& request) {
  return checkpoint::Sha256("create " + DeterministicBytes(request.spec()));
}

std::string SubmissionDigest(const v1::RetryJobRequest& request) {
  const std::string from = request.has_from_step() ? absl::StrCat(" from ", request.from_step()) : "";
  return checkpoint::Sha256(absl::StrCat("retry ", request.name(), from, request.fresh() ? " fresh" : ""));
}

}  // namespace legoai::server
