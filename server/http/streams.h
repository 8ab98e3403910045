// Streams of server-sent events that are woken by the Notifier. On the loop's thread, but for what they hand to pool and
// Notifier.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "core/process/mutex.h"
#include "server/http/connections.h"
#include "server/http/exchange.h"
#include "server/http/handlers.h"
#include "server/jobs/notifier.h"
#include "server/rpc/thread_pool.h"

namespace legoai::server {

class EventStream {
 public:
  using Clock = std::chrono::steady_clock;

  explicit EventStream(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  virtual ~EventStream() = default;

  // Called every fifth of a second.
  virtual void Tick() = 0;
  bool over() const { return over_ || exchange_->gone(); }
  void KeepAlive(double after_seconds);

 protected:
  void Send(const std::string& event, const std::string& id, const std::string& data);
  // A client gets nothing new before it has taken what it was sent: then the newest, and not every version between.
  bool IsSlow() const { return exchange_->PendingBytes() > 0; }

  const std::shared_ptr<Exchange> exchange_;
  bool over_ = false;

 private:
  Clock::time_point last_sent_ = Clock::now();
};

// WatchJob: event "job" with id = version and a WatchJobResponse; "failure" with an error; "end" after a final state. A client
// that comes back with Last-Event-ID goes on there; one that has seen the end gets 204, which stops EventSource.
class WatchStream : public EventStream, public std::enable_shared_from_this<WatchStream> {
 public:
  WatchStream(EventLoop* loop, ThreadPool* pool, const Handlers* handlers, std::shared_ptr<Exchange> exchange,
              v1::WatchJobRequest request)
      : EventStream(std::move(exchange)), loop_(loop), pool_(pool), handlers_(handlers), request_(std::move(request)) {}

  void Start(Notifier* notifier);
  void Tick() override;

 private:
  struct Look {
    absl::Status status;
    std::optional<v1::WatchJobResponse> news;
  };

  void Wake();
  void TryLook();
  Look RunLook(const v1::WatchJobRequest& request);
  void OnLook(Look look);
  void Fail(const absl::Status& status);

  EventLoop* const loop_;
  ThreadPool* const pool_;
  const Handlers* const handlers_;
  v1::WatchJobRequest request_;
  LiveSeen seen_;  // of the look under way, else of the last one
  bool looking_ = false, dirty_ = true;
  Clock::time_point last_look_{};
  const std::shared_ptr<std::atomic<bool>> woken_ = std::make_shared<std::atomic<bool>>(false);
  std::unique_ptr<Notifier::Subscription> subscription_;
};

// /v1/events: "jobs" with {"jobs": ["projects/..."], "all": false}; `all`: too many to name. "workers" with {}. At most five of
// each in a second.
class ChangesStream : public EventStream {
 public:
  using EventStream::EventStream;

  void Start(Notifier* notifier);
  void Tick() override;

 private:
  struct Changes {
    Mutex mutex;
    std::set<std::string> jobs ABSL_GUARDED_BY(mutex);
    bool workers ABSL_GUARDED_BY(mutex) = false;
  };
  static constexpr size_t kMaxNames = 200;

  const std::shared_ptr<Changes> changes_ = std::make_shared<Changes>();
  std::unique_ptr<Notifier::Subscription> subscription_;
};

}  // namespace legoai::server
