#include "proto/rpc_status.h"

#include <string>

#include "absl/strings/cord.h"
#include "proto/utf8.h"

namespace legoai {

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  google::rpc::Status rpc;
  rpc.set_code(status.raw_code());
  if (status.ok()) return rpc;
  rpc.set_message(ToUtf8(std::string_view(status.message().data(), status.message().size())));
  status.ForEachPayload([&rpc](auto url, const absl::Cord& payload) {
    google::protobuf::Any* detail = rpc.add_details();
    detail->set_type_url(ToUtf8(std::string_view(url.data(), url.size())));
    detail->set_value(std::string(payload));
  });
  return rpc;
}

absl::Status FromRpcStatus(const google::rpc::Status& rpc) {
  // absl::Status knows the same codes, and makes Unknown of others.
  absl::Status status(static_cast<absl::StatusCode>(rpc.code()), rpc.message());
  if (status.ok()) return status;
  if (status.code() == absl::StatusCode::kUnknown) status = absl::UnknownError(rpc.message());
  for (const google::protobuf::Any& detail : rpc.details()) status.SetPayload(detail.type_url(), absl::Cord(detail.value()));
  return status;
}

}  // namespace legoai
