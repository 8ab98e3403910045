#include "worker/agent/stream.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "core/process/mutex.h"
#include "google/rpc/status.pb.h"
#include "proto/legoai/v1/worker_service.grpc.pb.h"
#include "proto/rpc.h"
#include "proto/status.h"

namespace legoai::agent {
namespace {

absl::Status FromGrpc(const grpc::Status& status) {
  google::rpc::Status rpc;
  if (!status.error_details().empty() && rpc.ParseFromString(status.error_details()) && rpc.code() == status.error_code())
    return FromRpcStatus(rpc);
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// A channel of its own for every try: the agent has its own waiting time between them.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Dial(const std::string& server, const ChannelSecurity& security) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  SetKeepalive(Keepalive(), &arguments);
  return MakeChannel(server, security, arguments);
}

class GrpcStream : public Stream, private grpc::ClientBidiReactor<v1::FromAgent, v1::ToAgent> {
 public:
  GrpcStream(const std::shared_ptr<grpc::Channel>& channel, Callbacks callbacks)
      : callbacks_(std::move(callbacks)), stub_(v1::WorkerService::NewStub(channel)) {
    stub_->async()->Connect(&context_, this);
    AddHold();  // for writes from other threads, until the server's side has ended
    StartRead(&incoming_);
    StartCall();
  }

  ~GrpcStream() override {
    context_.TryCancel();
    MutexLock lock(mutex_);
    while (!done_) changed_.Wait(lock);
  }

  void Write(v1::FromAgent message) override {
    const MutexLock lock(mutex_);
    if (closed_) return;
    outgoing_ = std::move(message);
    StartWrite(&outgoing_);
  }

  void Finish() override {
    const MutexLock lock(mutex_);
    if (!closed_) StartWritesDone();
  }

 private:
  void OnReadDone(bool ok) override {
    if (ok) {
      callbacks_.received(std::move(incoming_));
      incoming_.Clear();
      StartRead(&incoming_);
      return;
    }
    {
      const MutexLock lock(mutex_);
      closed_ = true;
    }
    RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    if (ok) callbacks_.written();  // else the stream is broken, and ends
  }

  void OnDone(const grpc::Status& status) override {
    callbacks_.ended(FromGrpc(status));
    // Under the lock: who waits destroys this object as soon as it has it.
    const MutexLock lock(mutex_);
    done_ = true;
    changed_.NotifyAll();
  }

  const Callbacks callbacks_;
  grpc::ClientContext context_;
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  v1::ToAgent incoming_;
  v1::FromAgent outgoing_;
  Mutex mutex_;
  Condition changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;  // the server's side has ended: nothing may be written
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Stream>> Stream::Open(const std::string& server, const ChannelSecurity& security,
                                                     Callbacks callbacks) {
  ASSIGN_OR_RETURN(const auto channel, Dial(server, security));
  return std::make_unique<GrpcStream>(channel, std::move(callbacks));
}

Backoff::Backoff(absl::Duration first, absl::Duration longest, uint64_t seed)
    : first_(first), longest_(longest), limit_(first), random_(seed) {}

absl::Duration Backoff::Next() {
  const absl::Duration limit = limit_;
  limit_ = std::min(longest_, 2 * limit_);
  return limit * std::uniform_real_distribution<double>(0.5, 1)(random_);
}

}  // namespace legoai::agent
