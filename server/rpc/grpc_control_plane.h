// The service ControlPlane on gRPC's callback API: calls run on the threads of a pool, streams have none of their own.
// Thread-safe.
//
// A call that finds the server full is answered at once: ResourceExhausted with RetryInfo. A watch is woken by the Notifier; it
// sends what is new when the client has taken what was sent before, so that a slow client holds up nobody and costs one message.
#pragma once

#include <cstddef>
#include <memory>

#include "server/metrics/registry.h"
#include "server/rpc/control_plane.h"
#include "server/rpc/thread_pool.h"

namespace grpc {
class Service;
}

namespace legoai::server {

// Of what runs, that many threads of the pool at most are taken.
struct GrpcLimits {
  int calls_running = 16;
  size_t calls_waiting = 1000;
  int looks_running = 4;  // of watches
  size_t watches = 10000;
  size_t watches_per_client = 1000;  // of one address, or of 64 bits of IPv6
  int plans_running = 4;             // they wait for the fleet's own
  size_t plans_waiting = 16;
};

class GrpcControlPlane {
 public:
  // None is owned; all must outlive it. Every call is counted in `metrics`, which may be null, by its method and the code of its
  // answer.
  GrpcControlPlane(ControlPlane* control, ThreadPool* pool, const GrpcLimits& limits = {}, Metrics* metrics = nullptr);
  // The grpc::Server must be gone before.
  ~GrpcControlPlane();

  // To be registered with one grpc::ServerBuilder; it takes no ownership. Its largest received message is to be
  // kMostRequestBytes.
  grpc::Service* service();

  // Ends all watches and refuses new ones with Unavailable: clients come again when the server is back. To be called before
  // grpc::Server::Shutdown, which waits for streams.
  void EndWatches();

 private:
  class Service;
  const std::unique_ptr<Service> service_;
};

}  // namespace legoai::server
