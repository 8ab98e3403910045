// The agent's connection with the server: one bidirectional stream of WorkerService. What gRPC needs is in stream.cc alone.
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/legoai/v1/worker_service.pb.h"

namespace legoai::agent {

class Stream {
 public:
  // All run on gRPC's threads, one at a time, and must return at once.
  struct Callbacks {
    std::function<void(v1::ToAgent)> received;
    std::function<void()> written;            // the message of Write() has left; the next may come
    std::function<void(absl::Status)> ended;  // the last call. OK: the server has ended the stream
  };

  // Begins to connect to "host:port"; a server that cannot be reached is an end with Unavailable.
  static std::unique_ptr<Stream> Open(const std::string& server, Callbacks callbacks);
  // Cancels, and waits until no callback runs any more.
  virtual ~Stream() = default;

  // One at a time: after `written` of the one before. On a stream that has ended nothing happens.
  virtual void Write(v1::FromAgent message) = 0;
  // After the last Write() is written: there is no more to come. The server ends the stream then.
  virtual void Finish() = 0;
};

// How long to wait before the next try to reach the server: longer after every failure, with chance in it, so that a thousand
// agents do not come back at once. Not thread-safe.
class Backoff {
 public:
  Backoff(absl::Duration first, absl::Duration longest, uint64_t seed);

  // Between half of the present limit and all of it; the limit doubles.
  absl::Duration Next();
  // The server was reached.
  void Reset() { limit_ = first_; }

 private:
  const absl::Duration first_, longest_;
  absl::Duration limit_;
  std::mt19937_64 random_;
};

}  // namespace legoai::agent
