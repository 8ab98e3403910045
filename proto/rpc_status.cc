#include "proto/rpc_status.h"

#include <google/protobuf/stubs/common.h>

#include <algorithm>
#include <string>

#include "absl/strings/cord.h"

namespace legoai {
namespace {

std::string Utf8(std::string text) {
  if (google::protobuf::internal::IsStructurallyValidUTF8(text.data(), static_cast<int>(text.size()))) return text;
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 128; }, '?');
  return text;
}

}  // namespace

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  google::rpc::Status rpc;
  rpc.set_code(status.raw_code());
  if (status.ok()) return rpc;
  rpc.set_message(Utf8(std::string(status.message())));
  status.ForEachPayload([&rpc](auto url, const absl::Cord& payload) {
    google::protobuf::Any* detail = rpc.add_details();
    detail->set_type_url(Utf8(std::string(url)));
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
