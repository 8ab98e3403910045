#include "server/rpc/admission.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/api/annotations.pb.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "proto/status.h"
#include "server/jobs/request_checks.h"
#include "server/metrics/log.h"

namespace legoai::server {
namespace {

constexpr size_t kLongestResource = 200;  // of what a client wrote

// What the call is about; a plan is about nothing that has a name.
std::string ResourceOf(const google::protobuf::Message& request) {
  for (const char* name : {"name", "parent"}) {
    const auto* field = request.GetDescriptor()->FindFieldByName(name);
    if (field != nullptr) return request.GetReflection()->GetString(request, field).substr(0, kLongestResource);
  }
  return "";
}

}  // namespace

absl::Status AdmitCall(const Caller& caller, const std::string& method, const google::protobuf::Message& request) {
  static const auto* const service = v1::GetJobRequest::descriptor()->file()->FindServiceByName("ControlPlane");
  const auto* const known = service->FindMethodByName(method);
  if (known == nullptr) return absl::InternalError(absl::StrCat("ControlPlane has no method ", method));
  RETURN_IF_ERROR(CheckKnown(request, ""));
  if (known->options().GetExtension(google::api::http).has_get()) return absl::OkStatus();
  const std::string resource = ResourceOf(request);
  LogFields about;
  if (absl::StrContains(resource, "/jobs/")) about.job = resource;
  if (absl::StartsWith(resource, "workers/")) about.worker = resource;
  LogInfo("call", about, {{"method", method}, {"resource", resource}, {"way", caller.way}, {"remote", caller.remote}});
  return absl::OkStatus();
}

}  // namespace legoai::server
