// The agent's connection to the server: one bidirectional stream of WorkerService. Only stream.cc depends on gRPC. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/channel.h"
#include "proto/legoai/v1/worker_service.pb.h"

namespace legoai::agent {

class Stream {
 public:
  // All run on gRPC's threads, one at a time, and must return at once.
  struct Callbacks {
    std::function<void(v1::ToAgent)> received;
    std::function<void()> written;            // the message of Write() was sent; the next may follow
    std::function<void(absl::Status)> ended;  // the last callback. OK: the server ended the stream
  };

  // Starts connecting to "host:port"; an unreachable server ends the stream with Unavailable. Errors: those of MakeChannel().
  static absl::StatusOr<std::unique_ptr<Stream>> Open(const std::string& server, const ChannelSecurity& security,
                                                      Callbacks callbacks);
  // Cancels, and waits until no callback is running.
  virtual ~Stream() = default;

  // One at a time: only after `written` of the previous one. No effect on a stream that has ended.
  virtual void Write(v1::FromAgent message) = 0;
  // Call it after the last Write() is written. The server then ends the stream.
  virtual void Finish() = 0;
};

// How long to wait before reconnecting: exponential backoff with jitter, so that a thousand agents do not reconnect at once. Not
// thread-safe.
class Backoff {
 public:
  Backoff(absl::Duration first, absl::Duration longest, uint64_t seed);

  // A random duration between half the current limit and the limit, which then doubles.
  absl::Duration Next();
  // Call it when the server was reached.
  void Reset() { limit_ = first_; }

 private:
  const absl::Duration first_, longest_;
  absl::Duration limit_;
  std::mt19937_64 random_;
};

}  // namespace legoai::agent
