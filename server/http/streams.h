// Streams of server-sent events that the Notifier wakes. On the loop's thread, except where noted.
#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "core/process/mutex.h"
#include "server/access/rights.h"
#include "server/http/connections.h"
#include "server/http/exchange.h"
#include "server/jobs/notifier.h"
#include "server/rpc/job_watch.h"

namespace legoai::server {

class EventStream {
 public:
  using Clock = std::chrono::steady_clock;

  explicit EventStream(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  virtual ~EventStream() = default;

  // Called every fifth of a second.
  virtual void Tick() = 0;
  virtual bool over() const { return over_ || exchange_->gone(); }
  void KeepAlive(double after_seconds);
  // Ends it with an event "failure".
  virtual void Refuse(const absl::Status& why);

 protected:
  void SendEvent(const std::string& event, const std::string& id, const std::string& data);
  // A client gets nothing new until it has taken what it was sent; then the newest, not every version in between.
  bool IsSlow() const { return exchange_->PendingBytes() > 0; }

  const std::shared_ptr<Exchange> exchange_;
  bool over_ = false;

 private:
  Clock::time_point last_sent_ = Clock::now();
};

// WatchJob: event "job" with id = version and a WatchJobResponse; "failure" with an error; "end" after a final state. A client
// that returns with Last-Event-ID continues there; one that has seen the end gets 204, which stops EventSource.
class WatchStream : public EventStream, private JobWatchSink, public std::enable_shared_from_this<WatchStream> {
 public:
  WatchStream(EventLoop* loop, const JobWatchSource* source, std::shared_ptr<Exchange> exchange,
              const v1::WatchJobRequest& request)
      : EventStream(std::move(exchange)), loop_(loop), asked_version_(request.after_version()), watch_(source, request, this) {}

  void Start();
  void Tick() override;
  // Not as soon as the client is gone: the watch ends first.
  bool over() const override { return over_; }
  void Refuse(const absl::Status& why) override { watch_.End(why); }

 private:
  // Called by the watch on any thread; they continue on the loop.
  void NothingNew() override;
  void Send(v1::WatchJobResponse response) override;
  void Finish(const absl::Status& status) override;

  void SendJob(const v1::WatchJobResponse& response);
  void End(const absl::Status& status);

  EventLoop* const loop_;
  const int64_t asked_version_;
  bool sending_ = false;  // the client has not taken the last message yet
  JobWatch watch_;
};

// /v1/events: "jobs" with {"jobs": ["projects/..."], "all": false}; `all`: too many to name. "workers" with {}. At most five of
// each a second.
class ChangesStream : public EventStream {
 public:
  // Of the jobs of which `who` may know.
  ChangesStream(std::shared_ptr<Exchange> exchange, access::Identity who)
      : EventStream(std::move(exchange)), who_(std::move(who)) {}

  void Start(Notifier* notifier);
  void Tick() override;

 private:
  struct Changes {
    Mutex mutex;
    std::set<std::string> jobs ABSL_GUARDED_BY(mutex);
    bool workers ABSL_GUARDED_BY(mutex) = false, all_jobs ABSL_GUARDED_BY(mutex) = false;
  };
  static constexpr size_t kMaxNames = 200;

  const access::Identity who_;
  const std::shared_ptr<Changes> changes_ = std::make_shared<Changes>();
  std::unique_ptr<Notifier::Subscription> subscription_;
};

}  // namespace legoai::server
