#include "server/rpc/grpc_status.h"

#include <string>

#include "absl/strings/cord.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "proto/errors.h"
#include "proto/not_leader.h"
#include "proto/rpc.h"

namespace legoai::server {
namespace {

constexpr char kUrl[] = "type.googleapis.com/";
constexpr char kDomain[] = "legoai.dev";
// The message is sent twice, a FieldViolation's texts three times, percent-encoding may triple some of it.
constexpr size_t kMostMessage = 1000;
constexpr size_t kMostField = 300;
constexpr size_t kMostDetails = 4096;
constexpr absl::Duration kPause = absl::Seconds(1);

// At most `most` bytes, cut between characters.
std::string Cut(std::string text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

// Why, for programs: stable words.
const char* Reason(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument: return "INVALID_FIELD";
    case absl::StatusCode::kNotFound: return "NO_SUCH_RESOURCE";
    case absl::StatusCode::kUnauthenticated: return "UNAUTHENTICATED";
    case absl::StatusCode::kPermissionDenied: return "PERMISSION_DENIED";
    case absl::StatusCode::kAlreadyExists: return "REQUEST_ID_USED";
    case absl::StatusCode::kFailedPrecondition: return "STATE_FORBIDS";
    case absl::StatusCode::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case absl::StatusCode::kUnavailable: return "UNAVAILABLE";
    case absl::StatusCode::kAborted: return "CONFLICT";
    case absl::StatusCode::kCancelled: return "CANCELLED";
    case absl::StatusCode::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
    default: return "INTERNAL";
  }
}

void Add(const google::protobuf::Message& detail, google::rpc::Status* rpc) { rpc->add_details()->PackFrom(detail); }

void AddField(v1::FieldViolation violation, google::rpc::Status* rpc) {
  violation.set_field(Cut(violation.field(), kMostField));
  violation.set_value(Cut(violation.value(), kMostField));
  violation.set_remedy(Cut(violation.remedy(), kMostMessage));
  Add(violation, rpc);
  if (rpc->code() != static_cast<int>(absl::StatusCode::kInvalidArgument)) return;
  google::rpc::BadRequest bad;
  auto* field = bad.add_field_violations();
  field->set_field(violation.field());
  field->set_description(violation.remedy());
  Add(bad, rpc);
}

void AddRetry(absl::Duration delay, google::rpc::Status* rpc) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(absl::ToInt64Seconds(delay));
  retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(delay % absl::Seconds(1))));
  Add(retry, rpc);
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status rpc;
  rpc.set_code(static_cast<int>(status.code()));
  rpc.set_message(Cut(ToRpcStatus(status).message(), kMostMessage));
  if (const auto violation = GetFieldViolation(status)) AddField(*violation, &rpc);
  google::rpc::ErrorInfo info;
  info.set_reason(Reason(status.code()));
  info.set_domain(kDomain);
  Add(info, &rpc);
  if (const auto leader = GetNotLeader(status)) Add(*leader, &rpc);
  if (absl::IsResourceExhausted(status)) AddRetry(RetryDelay(status).value_or(kPause), &rpc);
  if (rpc.ByteSizeLong() > kMostDetails) rpc.clear_details();
  return grpc::Status(static_cast<grpc::StatusCode>(rpc.code()), rpc.message(), rpc.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  google::rpc::Status rpc;
  // Errors of gRPC itself, or of a proxy, come without details.
  if (!rpc.ParseFromString(status.error_details()) || rpc.code() != static_cast<int>(status.error_code())) {
    rpc.Clear();
    rpc.set_code(static_cast<int>(status.error_code()));
    rpc.set_message(status.error_message());
  }
  return FromRpcStatus(rpc);
}

absl::Status BusyError(std::string_view message, absl::Duration delay) {
  absl::Status status = absl::ResourceExhaustedError(std::string(message));
  google::rpc::Status rpc;
  AddRetry(delay, &rpc);
  status.SetPayload(rpc.details(0).type_url(), absl::Cord(rpc.details(0).value()));
  return status;
}

std::optional<absl::Duration> RetryDelay(const absl::Status& status) {
  const auto payload = status.GetPayload(std::string(kUrl) + google::rpc::RetryInfo::descriptor()->full_name());
  google::rpc::RetryInfo retry;
  if (!payload || !retry.ParseFromString(std::string(*payload))) return std::nullopt;
  return absl::Seconds(retry.retry_delay().seconds()) + absl::Nanoseconds(retry.retry_delay().nanos());
}

}  // namespace legoai::server
