#include "server/rpc/admission.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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

const google::protobuf::MethodDescriptor* MethodOf(const std::string& name) {
  static const auto* const service = v1::GetJobRequest::descriptor()->file()->FindServiceByName("ControlPlane");
  return service->FindMethodByName(name);
}

// "legoai.v1.ControlPlane/GetJob", as the table of rights has it.
std::string CallOf(const google::protobuf::MethodDescriptor& method) {
  return absl::StrCat(method.service()->full_name(), "/", method.name());
}

bool IsLook(const google::protobuf::MethodDescriptor& method) {
  return method.options().GetExtension(google::api::http).has_get();
}

}  // namespace

absl::Status AdmitCall(const Caller& caller, const std::string& method, const google::protobuf::Message& request) {
  const auto* const known = MethodOf(method);
  if (known == nullptr) return absl::InternalError(absl::StrCat("ControlPlane has no method ", method));
  const std::string resource = ResourceOf(request);
  if (absl::Status status = access::CheckRight(caller.who, CallOf(*known), &request); !status.ok()) {
    if (caller.gate != nullptr) caller.gate->Record(caller.who, caller.remote, CallOf(*known), resource, status);
    return status;
  }
  RETURN_IF_ERROR(CheckKnown(request, ""));
  if (IsLook(*known)) return absl::OkStatus();
  LogFields about;
  if (absl::StrContains(resource, "/jobs/")) about.job = resource;
  if (absl::StartsWith(resource, "workers/")) about.worker = resource;
  const std::string name = access::NameOf(caller.who);
  if (name.empty()) {
    LogInfo("call", about, {{"method", method}, {"resource", resource}, {"way", caller.way}, {"remote", caller.remote}});
  } else {
    LogInfo("call", about,
            {{"method", method}, {"resource", resource}, {"way", caller.way}, {"remote", caller.remote}, {"caller", name}});
  }
  return absl::OkStatus();
}

void AuditCall(const Caller& caller, const std::string& method, const google::protobuf::Message& request,
               const absl::Status& outcome) {
  const auto* const known = MethodOf(method);
  if (caller.gate == nullptr || known == nullptr || IsLook(*known)) return;
  caller.gate->Record(caller.who, caller.remote, CallOf(*known), ResourceOf(request), outcome);
}

std::string ClientOf(std::string_view peer) {
  std::string text = absl::StrReplaceAll(std::string(peer), {{"%5B", "["}, {"%5D", "]"}, {"%5b", "["}, {"%5d", "]"}});
  if (text.starts_with("ipv4:") || text.starts_with("ipv6:")) text.erase(0, 5);
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::string(peer);
  text.resize(colon);
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  in_addr v4{};
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return text;
  in6_addr v6{};
  if (inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &v6) != 1) return std::string(peer);
  char number[INET6_ADDRSTRLEN] = "";
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return inet_ntop(AF_INET, &v6.s6_addr[12], number, sizeof(number));
  if (IN6_IS_ADDR_LOOPBACK(&v6)) return "::1";
  std::memset(&v6.s6_addr[8], 0, 8);
  return std::string(inet_ntop(AF_INET6, &v6, number, sizeof(number))) + "/64";
}

ClientQuota::Answer ClientQuota::Take(const std::string& client) {
  const MutexLock lock(mutex_);
  if (taken_ >= most_) return Answer::kFull;
  const auto of = of_.find(client);
  if (of != of_.end() && of->second >= most_per_client_) return Answer::kClientIsFull;
  ++taken_;
  ++of_[client];
  return Answer::kTaken;
}

void ClientQuota::GiveBack(const std::string& client) {
  const MutexLock lock(mutex_);
  --taken_;
  const auto of = of_.find(client);
  if (--of->second == 0) of_.erase(of);
}

std::string ClientQuota::Refusal(Answer answer, const std::string& client) const {
  if (answer == Answer::kFull) return absl::StrCat("the server has ", most_, " ", what_, " open, as many as it takes");
  return absl::StrCat("your address (", client, ") has ", most_per_client_, " ", what_,
                      " open, as many as one client may have: close some");
}

}  // namespace legoai::server
