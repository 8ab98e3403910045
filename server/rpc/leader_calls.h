// What a server that does not lead does with calls that only the leader can answer: it passes them on. Implemented by
// server/leader; both front ends ask it after a call is admitted. Thread-safe.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/legoai/v1/control_plane.pb.h"

namespace legoai::server {

// The metadata, and the header of HTTP, of a call that comes from another server: it is not passed on again.
inline constexpr char kPassedOn[] = "legoai-passed-on";
inline constexpr char kAuthorization[] = "authorization";

struct PassedCall {
  std::string authorization = {};         // of the caller, for the leader to judge; empty: none
  bool passed_on = false;                 // by another server already
  std::function<bool()> cancelled = {};   // the caller has left; polled
};

class LeaderCalls {
 public:
  virtual ~LeaderCalls() = default;

  // Nothing: this server answers the method of ControlPlane itself. Otherwise the leader's answer; NotLeaderError where there is
  // none. Blocks.
  virtual std::optional<absl::Status> PassOn(const std::string& method, const PassedCall& call,
                                             const google::protobuf::Message& request, google::protobuf::Message* response) = 0;
  // The same for Plan. `send` returns false once the caller has left.
  virtual std::optional<absl::Status> PassOnPlan(const PassedCall& call, const v1::PlanRequest& request,
                                                 const std::function<bool(const v1::PlanResponse&)>& send) = 0;
};

}  // namespace legoai::server
