// HTTP for the page and for whoever prefers JSON to gRPC: the methods of ControlPlane by their google.api.http paths, WatchJob
// and Plan as server-sent events, /v1/events (which jobs changed), /metrics, /healthz, and the files of the page. docs/api.md has
// the list.
//
// Safe against other pages in the user's browser: only requests with one of the server's own names as Host are answered (DNS
// rebinding), and POST takes application/json only, from its own origin. There are no users and rights here: it listens on the
// loopback interface unless told otherwise.
//
// libevent's loop has a thread of its own; handlers run on the threads of a pool. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/handlers.h"
#include "server/jobs/notifier.h"
#include "server/metrics/registry.h"
#include "server/rpc/thread_pool.h"

namespace legoai::server {

struct HttpOptions {
  std::string address = "127.0.0.1";
  int port = 0;                              // 0: any that is free
  std::string web_directory = {};            // of the built page; empty: none
  std::vector<std::string> host_names = {};  // by which it is reached, besides localhost and `address`
  // Limits. Beyond them: 413 for the body, 400 for the headers, 408 for the times, 503 for the numbers, 429 for those of a client
  // (an address, or 64 bits of IPv6), which leave room for a page in several tabs and for some users behind one proxy.
  int64_t max_body_bytes = 4 << 20;
  int64_t max_header_bytes = 16 << 10;
  double header_seconds = 10;  // from the first byte of a request to the end of its headers
  double body_seconds = 60;    // from there to the end of its body
  int max_connections = 512;
  int max_connections_per_client = 128;
  int max_streams = 128;
  int max_streams_per_client = 32;
  // Of what runs, that many threads of the pool at most are taken.
  int calls_running = 4;
  int looks_running = 4;  // of watches
  int slow_running = 2;   // Plan and Simulate
  size_t max_waiting = 256;
  double keep_alive_seconds = 15;  // between comments on a stream that has nothing to say
};

class HttpServer {
 public:
  // Listens when it returns. Owns none of the pointers; all must outlive it. Errors: FieldError for --http where the address
  // cannot be had, for --web where there is no page; those of Transcoder::Create.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options, Handlers handlers, ThreadPool* pool,
                                                           Notifier* notifier, Metrics* metrics);
  // Ends streams, waits for handlers that run.
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
};

}  // namespace legoai::server
