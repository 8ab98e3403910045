#include "proto/rpc.h"

#include <grpc/impl/codegen/grpc_types.h>

#include <string>

#include "absl/strings/cord.h"
#include "proto/text.h"

namespace legoai {
namespace {

int Milliseconds(absl::Duration duration) { return static_cast<int>(absl::ToInt64Milliseconds(duration)); }

}  // namespace

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

void SetKeepalive(const Keepalive& keepalive, grpc::ChannelArguments* arguments) {
  arguments->SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(keepalive.interval));
  arguments->SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(keepalive.timeout));
  // Otherwise a client that only reads, as a watch does, stops after two.
  arguments->SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

void SetKeepalive(const Keepalive& keepalive, grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(keepalive.interval));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(keepalive.timeout));
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A client's clock and its network are not even: pings may come closer than they were sent, and just after a call's end.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, Milliseconds(keepalive.interval / 2));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

void SetMetadataLimit(grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMostMetadataBytes);
}

}  // namespace legoai
