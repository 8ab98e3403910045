// The service WorkerService over gRPC's callback API: one reactor per agent's stream, without a thread of its own. Heartbeats are
// answered as they are read. Telemetry and commits, which wait for the disk, are written by the threads of a pool: in order and
// one batch at a time for each stream. Thread-safe.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

namespace legoai::server {

class Controller;
class ThreadPool;

// Controller and pool are not owned and must outlive the service. At most `writers` threads of the pool write at a time, for all
// agents together.
std::unique_ptr<grpc::Service> MakeWorkerService(Controller* controller, ThreadPool* pool, int writers);

}  // namespace legoai::server
