// The service WorkerService over gRPC's callback API: one reactor per agent's stream, without a thread of its own. Heartbeats are
// answered as they are read. Telemetry and commits, which wait for the disk, are written by the threads of a pool: in order and
// one batch at a time for each stream. Thread-safe.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <functional>
#include <memory>

#include "absl/status/statusor.h"

namespace legoai::access {
class Gate;
}

namespace legoai::server {

class Controller;
class ThreadPool;

// Which agents may connect.
struct AgentAccess {
  access::Gate* gate = nullptr;  // those with a token of the role agent; null: whoever comes
  bool certificates = false;     // those with a certificate that TLS has verified
};

// Controller and pool are not owned and must outlive the service. At most `writers` threads of the pool write at a time, for all
// agents together. The gate must outlive the service, too.
std::unique_ptr<grpc::Service> MakeWorkerService(Controller* controller, ThreadPool* pool, int writers,
                                                 const AgentAccess& access = {});

// The controller that an agent's stream has to the stream's end, or with which status it ends at once: asked for each stream,
// since a server leads for a while and then does not. Thread-safe.
using ControllerSource = std::function<absl::StatusOr<std::shared_ptr<Controller>>()>;
std::unique_ptr<grpc::Service> MakeWorkerService(ControllerSource controller, ThreadPool* pool, int writers,
                                                 const AgentAccess& access = {});

}  // namespace legoai::server
