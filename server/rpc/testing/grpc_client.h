// What tests need to call the service over gRPC: none of it hangs for ever.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/legoai/v1/control_plane.grpc.pb.h"
#include "server/rpc/grpc_status.h"

namespace legoai::server::testing {

// Of one call, which waits for the server, and fails after two minutes.
class CallContext : public grpc::ClientContext {
 public:
  CallContext() {
    set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(120));
    set_wait_for_ready(true);
  }
};

// A server of one service, on a free port of the loopback interface, as long as this lives. Does not own the service.
class LoopbackServer {
 public:
  explicit LoopbackServer(grpc::Service* service) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  const std::string& address() const { return address_; }

 private:
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

// A WatchJob stream.
class WatchCall {
 public:
  WatchCall(v1::ControlPlane::Stub* stub, const std::string& job, int64_t after_version = 0) {
    v1::WatchJobRequest request;
    request.set_name(job);
    request.set_after_version(after_version);
    reader_ = stub->WatchJob(&context_, request);
  }
  // The next message is response(); false: the stream has ended.
  bool Read() { return reader_->Read(&response_); }
  const v1::WatchJobResponse& response() const { return response_; }
  // How it ended; after Read() gave false.
  absl::Status Finish() { return FromGrpcStatus(reader_->Finish()); }
  void Leave() {
    context_.TryCancel();
    reader_->Finish();
  }

 private:
  CallContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchJobResponse>> reader_;
  v1::WatchJobResponse response_;
};

}  // namespace legoai::server::testing
