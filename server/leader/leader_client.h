// Passes calls of users on to the server that leads, over gRPC: what changes something, what only the leader knows (workers and
// their use), and what its lego-sim processes do. Everything else a server reads from the database itself. Thread-safe.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/mutex.h"
#include "proto/channel.h"
#include "server/fleet/fleet.h"
#include "server/rpc/leader_calls.h"

namespace legoai::server {

class LeaderClient : public LeaderCalls {
 public:
  // `leading` is asked for every call, and while one waits: where the leader changes the call ends with NotLeaderError.
  // `security`: how the leader is called; its files are read whenever another leads.
  explicit LeaderClient(std::function<Leadership()> leading, ChannelSecurity security = {})
      : leading_(std::move(leading)), security_(std::move(security)) {}

  std::optional<absl::Status> PassOn(const std::string& method, const PassedCall& call, const google::protobuf::Message& request,
                                     google::protobuf::Message* response) override;
  std::optional<absl::Status> PassOnPlan(const PassedCall& call, const v1::PlanRequest& request,
                                         const std::function<bool(const v1::PlanResponse&)>& send) override;

 private:
  // Nothing: this server answers itself.
  std::optional<absl::StatusOr<v1::Leader>> LeaderOf(const PassedCall& call) const;
  absl::StatusOr<std::shared_ptr<grpc::Channel>> ChannelTo(const std::string& address);
  // Whether a call to `leader` that waits is to be given up.
  bool Over(const PassedCall& call, const v1::Leader& leader) const;
  // What the caller is told of a call to `leader` that has ended so.
  absl::Status Ended(const PassedCall& call, const grpc::Status& ended, const v1::Leader& leader) const;

  const std::function<Leadership()> leading_;
  const ChannelSecurity security_;
  Mutex mutex_;
  std::string address_ ABSL_GUARDED_BY(mutex_);  // of the channel
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace legoai::server
