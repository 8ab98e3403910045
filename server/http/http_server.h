// HTTP for the page and for clients that prefer JSON to gRPC: the methods of ControlPlane by their google.api.http paths,
// WatchJob and Plan as server-sent events, /v1/events (which jobs changed), /metrics, /healthz, and the files of the page.
// docs/api.md lists them.
//
// Safe against other pages in the user's browser: it answers only requests whose Host is one of the server's own names (DNS
// rebinding), and POST only with application/json and from its own origin. Who calls is asked for where there is a gate
// (server/access/gate.h); without one whoever reaches it may do everything.
//
// libevent's loop has a thread of its own; handlers run on the threads of a pool. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/access/certificates.h"
#include "server/access/gate.h"
#include "server/http/handlers.h"
#include "server/jobs/notifier.h"
#include "server/metrics/registry.h"
#include "server/rpc/thread_pool.h"

namespace legoai::server {

struct HttpOptions {
  std::string address = "127.0.0.1";
  int port = 0;                              // 0: any free one
  std::string web_directory = {};            // of the built page; empty: none
  std::vector<std::string> host_names = {};  // besides localhost and `address`
  access::Gate* gate = nullptr;              // must outlive the server; null: it asks for no tokens
  access::ServerTls* tls = nullptr;          // must outlive the server; null: it speaks in clear
  // Limits. Beyond them the answer is 413 for the body, 400 for the headers, 408 for the times, 503 for the totals, and 429 for
  // the numbers of one client (an address, or 64 bits of IPv6), which allow for a page in several tabs and some users behind a
  // proxy.
  int64_t max_body_bytes = 4 << 20;
  int64_t max_header_bytes = 32 << 10;  // of which a token may have 16 KiB
  double header_seconds = 10;  // from the first byte of a request to the end of its headers
  double body_seconds = 60;    // from there to the end of its body
  int max_connections = 512;
  int max_connections_per_client = 128;
  int max_streams = 128;
  int max_streams_per_client = 32;
  // *_running: how many threads of the pool that kind of work may use at a time.
  int calls_running = 4;
  int polls_running = 4;  // of watches
  int slow_running = 2;   // Plan and Simulate
  size_t max_waiting = 256;
  double keep_alive_seconds = 15;  // between comments on an idle stream
};

class HttpServer {
 public:
  // Listens when it returns. Owns none of the pointers; all must outlive it. Errors: FieldError of --http if the address cannot
  // be bound, of --web if there is no page; those of Transcoder::Create.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options, Handlers handlers, ThreadPool* pool,
                                                           Notifier* notifier, Metrics* metrics);
  // Ends streams and waits for running handlers.
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
};

}  // namespace legoai::server
