// The service ControlPlane over gRPC's callback API: calls run on the threads of a pool; streams have none of their own.
// Thread-safe.
//
// If the server is full, a call is answered at once: ResourceExhausted with RetryInfo. A slow client of a watch holds up nobody
// and costs one message (job_watch.h).
#pragma once

#include <cstddef>
#include <memory>

#include "server/access/gate.h"
#include "server/metrics/registry.h"
#include "server/rpc/control_plane.h"
#include "server/rpc/leader_calls.h"
#include "server/rpc/thread_pool.h"

namespace grpc {
class Service;
}

namespace legoai::server {

// *_running: how many threads of the pool that kind of work may use at a time.
struct GrpcLimits {
  int calls_running = 16;
  size_t calls_waiting = 1000;
  int polls_running = 4;  // of watches
  size_t watches = 10000;
  size_t watches_per_client = 1000;  // of one address, or 64 bits of IPv6
  int plans_running = 4;             // they wait for the fleet's own
  size_t plans_waiting = 16;
};

class GrpcControlPlane {
 public:
  // Owns none of the pointers; all must outlive it. Every call is counted in `metrics`, which may be null, by method and status
  // code. `gate` says who calls; null: the server asks for no tokens. `leader`, which may be null, is asked whether a call is for
  // another server.
  GrpcControlPlane(ControlPlane* control, ThreadPool* pool, const GrpcLimits& limits = {}, Metrics* metrics = nullptr,
                   access::Gate* gate = nullptr, LeaderCalls* leader = nullptr);
  // The grpc::Server must be destroyed first.
  ~GrpcControlPlane();

  // Register it with one grpc::ServerBuilder, which takes no ownership and whose largest received message is kMostRequestBytes.
  grpc::Service* service();

  // Ends all watches and refuses new ones with Unavailable; clients return when the server is back. Call it before
  // grpc::Server::Shutdown, which waits for streams.
  void EndWatches();

 private:
  class Service;
  const std::unique_ptr<Service> service_;
};

}  // namespace legoai::server
