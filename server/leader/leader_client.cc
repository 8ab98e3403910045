#include "server/leader/leader_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/errors.h"
#include "proto/legoai/v1/control_plane.grpc.pb.h"
#include "proto/not_leader.h"
#include "proto/rpc.h"
#include "proto/status.h"
#include "server/rpc/grpc_status.h"

namespace legoai::server {
namespace {

using google::protobuf::Message;

constexpr absl::Duration kCallLimit = absl::Seconds(30);
constexpr absl::Duration kLongLimit = absl::Minutes(30);  // of simulations, as `lego` has it
constexpr std::chrono::milliseconds kLook{50};

const std::set<std::string>& ForTheLeader() {
  static const auto* const methods = new std::set<std::string>{
      "CreateJob",   "CancelJob",   "RetryJob", "ListWorkers",      "GetWorker",
      "DrainWorker", "CheckWorker", "Simulate", "GetPredictedTrace"};
  return *methods;
}

void Prepare(const PassedCall& call, absl::Duration limit, grpc::ClientContext* context) {
  context->set_deadline(absl::ToChronoTime(absl::Now() + limit));
  context->AddMetadata(kPassedOn, "1");
  // gRPC ends the process over a value with other bytes; no token has them.
  const auto is_legal = [](unsigned char byte) { return byte >= 0x20 && byte <= 0x7E; };
  const std::string& authorization = call.authorization;
  if (!authorization.empty() && std::all_of(authorization.begin(), authorization.end(), is_legal))
    context->AddMetadata(kAuthorization, authorization);
}

grpc::ByteBuffer ToBuffer(const Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

absl::Status FromBuffer(grpc::ByteBuffer* buffer, Message* message) {
  grpc::Slice slice;
  const bool whole =
      buffer->DumpToSingleSlice(&slice).ok() && message->ParseFromArray(slice.begin(), static_cast<int>(slice.size()));
  return whole ? absl::OkStatus() : absl::InternalError("the leader's answer cannot be read: are the servers of one release?");
}

// Cancels a call as soon as `over` says so, for as long as it lives.
class Canceller {
 public:
  Canceller(grpc::ClientContext* context, std::function<bool()> over)
      : thread_([this, context, over = std::move(over)] {
          MutexLock lock(mutex_);
          while (!done_) {
            changed_.WaitFor(lock, kLook);
            lock.Unlock();
            if (over()) context->TryCancel();
            lock.Lock();
          }
        }) {}
  ~Canceller() {
    {
      const MutexLock lock(mutex_);
      done_ = true;
    }
    changed_.NotifyAll();
    thread_.join();
  }

 private:
  Mutex mutex_;
  Condition changed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

std::optional<absl::StatusOr<v1::Leader>> LeaderClient::LeaderOf(const PassedCall& call) const {
  const Leadership leading = leading_();
  if (leading.leads) return std::nullopt;
  const std::string address = leading.leader ? leading.leader->address() : "";
  const bool itself = address == leading.address;  // it has just begun to follow
  if (address.empty() || itself || call.passed_on)
    return NotLeaderError(itself ? "" : address, leading.leader ? leading.leader->term() : 0);
  return *leading.leader;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> LeaderClient::ChannelTo(const std::string& address) {
  const MutexLock lock(mutex_);
  if (channel_ != nullptr && address_ == address) return channel_;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  SetKeepalive(Keepalive(), &arguments);
  ASSIGN_OR_RETURN(channel_, MakeChannel(address, security_, arguments));
  address_ = address;
  return channel_;
}

bool LeaderClient::Over(const PassedCall& call, const v1::Leader& leader) const {
  if (call.cancelled && call.cancelled()) return true;
  const Leadership now = leading_();
  return now.leads || !now.leader || now.leader->term() != leader.term();
}

absl::Status LeaderClient::Ended(const PassedCall& call, const grpc::Status& ended, const v1::Leader& leader) const {
  const absl::Status status = FromGrpcStatus(ended);
  const Leadership now = leading_();
  const bool changed = now.leads || !now.leader || now.leader->term() != leader.term();
  if (absl::IsCancelled(status) && changed) return NotLeaderError(now.leader ? now.leader->address() : "", leader.term());
  // gRPC's own words, without details: the leader was not reached, or has cut the call off as it ended.
  const bool is_away = absl::IsUnavailable(status) && !GetNotLeader(status) && !GetFieldViolation(status);
  const bool is_cut_off = absl::IsCancelled(status) && ended.error_details().empty() && !(call.cancelled && call.cancelled());
  if (is_away || is_cut_off)
    return absl::UnavailableError(absl::StrCat("the leader at ", leader.address(),
                                               " does not answer; another takes over where it is gone: try again (",
                                               status.message(), ")"));
  return status;
}

std::optional<absl::Status> LeaderClient::PassOn(const std::string& method, const PassedCall& call, const Message& request,
                                                 Message* response) {
  if (ForTheLeader().count(method) == 0) return std::nullopt;
  const auto leader = LeaderOf(call);
  if (!leader) return std::nullopt;
  if (!leader->ok()) return leader->status();
  const auto channel = ChannelTo((*leader)->address());
  if (!channel.ok()) return channel.status();
  grpc::GenericStub stub(*channel);
  grpc::ClientContext context;
  Prepare(call, method == "Simulate" || method == "GetPredictedTrace" ? kLongLimit : kCallLimit, &context);
  const grpc::ByteBuffer question = ToBuffer(request);
  grpc::ByteBuffer answer;
  Mutex mutex;
  Condition changed;
  std::optional<grpc::Status> status;
  stub.UnaryCall(&context, absl::StrCat("/legoai.v1.ControlPlane/", method), grpc::StubOptions(), &question, &answer,
                 [&](grpc::Status ended) {
                   const MutexLock lock(mutex);
                   status = std::move(ended);
                   changed.NotifyAll();
                 });
  MutexLock lock(mutex);
  while (!status) {
    changed.WaitFor(lock, kLook);
    lock.Unlock();
    if (Over(call, **leader)) context.TryCancel();
    lock.Lock();
  }
  if (!status->ok()) return Ended(call, *status, **leader);
  return FromBuffer(&answer, response);
}

std::optional<absl::Status> LeaderClient::PassOnPlan(const PassedCall& call, const v1::PlanRequest& request,
                                                     const std::function<bool(const v1::PlanResponse&)>& send) {
  const auto leader = LeaderOf(call);
  if (!leader) return std::nullopt;
  if (!leader->ok()) return leader->status();
  const auto channel = ChannelTo((*leader)->address());
  if (!channel.ok()) return channel.status();
  const auto stub = v1::ControlPlane::NewStub(*channel);
  grpc::ClientContext context;
  Prepare(call, kLongLimit, &context);
  const auto reader = stub->Plan(&context, request);
  const Canceller canceller(&context, [&] { return Over(call, **leader); });
  v1::PlanResponse response;
  while (reader->Read(&response)) {
    if (!send(response)) context.TryCancel();
  }
  return Ended(call, reader->Finish(), **leader);
}

}  // namespace legoai::server
