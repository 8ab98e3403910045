// The service WorkerService over gRPC's callback API: one reactor for each agent's stream, no thread for it. Heartbeats are
// answered as they are read; telemetry and commits, which wait for the disk, go to the threads of a pool, one at a time and in
// order for each stream, as many facts at once as have come meanwhile. Thread-safe.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

namespace legoai::server {

class Controller;
class ThreadPool;

// Controller and pool are not owned and must outlive the service. At most `writers` threads write for all agents at a time.
std::unique_ptr<grpc::Service> MakeWorkerService(Controller* controller, ThreadPool* pool, int writers);

}  // namespace legoai::server
