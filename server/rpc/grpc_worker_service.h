// The service WorkerService over gRPC's callback API: one reactor for each agent's stream, no thread for it. Heartbeats are
// answered as they are read; telemetry and commits, which wait for the disk, go to a pool of threads, one at a time and in order
// for each stream, as many facts at once as have come meanwhile. Thread-safe.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

namespace legoai::server {

class Controller;

// The controller is not owned and must outlive the gRPC server that has the service. `threads` write for all agents.
std::unique_ptr<grpc::Service> MakeWorkerService(Controller* controller, int threads);

}  // namespace legoai::server
