// What evhttp does not do for its connections. On the loop's thread.
//
// Bounds: on all connections and on those of each client. At a bound, the connection that has owed a request for longest is
// closed to make room; the new one is refused only if all others are being answered. If still more arrive, the listener pauses,
// and they wait in the system's queue.
//
// Deadlines: the head and the body of a request each have a total time, however steadily they trickle in. evhttp limits silence
// only.
//
// Heads are checked (request_head.h) as they arrive, before evhttp reads a body whose length it may have misjudged.
//
// Errors as data: libevent answers a request that it cannot read, or that is too large, with an HTML page of its own
// (evhttp_set_errorcb needs libevent 2.2). Such a page is replaced before it is sent.
#pragma once

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "core/process/mutex.h"
#include "server/access/certificates.h"

namespace legoai::server {

// The one thread on which libevent runs, and the way onto it from others. What runs there must not block.
class EventLoop {
 public:
  EventLoop();   // ready for events, not running yet
  ~EventLoop();  // after Stop(), if Start() was called
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  event_base* base() { return base_; }

  void Start();
  // Runs for another tenth of a second, so that answers in progress are written, then ends the thread and drops the tasks that
  // have not run, with all that they hold.
  void Stop();

  // Runs `task` on the loop's thread, in the order of the calls. Thread-safe; returns at once. After Stop() it is dropped.
  void Post(std::function<void()> task);

 private:
  static void OnWake(evutil_socket_t, short, void* self);
  void RunTasks();

  event_base* base_;
  event* wake_;
  std::thread thread_;
  Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

struct ConnectionLimits {
  size_t connections, connections_per_client;
  size_t head_bytes;
  double head_seconds, body_seconds;
};

class Connections {
 public:
  // The JSON body of an answer without a handler, for an HTTP status and the client's address ("127.0.0.1:4711"). `why` is OK if
  // libevent refused the request for reasons of its own.
  using ErrorBody = std::function<std::string(int code, const std::string& remote, const absl::Status& why)>;

  // Owns none of the pointers. Destroy it after `http` and before the loop, once the loop has stopped. `tls` may be null: then
  // connections are in clear.
  Connections(EventLoop* loop, evhttp* http, evconnlistener* listener, const ConnectionLimits& limits, ErrorBody error_body,
              access::ServerTls* tls = nullptr);
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  // evhttp has passed on a request: the connection has no deadline until it is answered. On an error, answer it with 400 and
  // close the connection.
  absl::Status Begin(evhttp_request* request);

  // Closes connections that are past their deadline and forgets closed ones. Call it a few times a second.
  void Sweep();

  size_t open() const;
  size_t held_bytes() const;  // received and not handled yet, or not sent yet

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kIdle, kHead, kBody, kAnswer };

  struct Connection {
    Connections* all;
    bufferevent* io;             // we hold a reference
    std::string remote, client;  // empty: not admitted yet
    Phase phase = Phase::kIdle;
    Clock::time_point since = Clock::now();  // of the phase
    std::string head;                        // as far as received
    std::optional<absl::Status> refusal;     // of the head; OK: it is too long
  };

  static bufferevent* OnConnection(event_base* base, void* self);
  static void OnInput(evbuffer* input, const evbuffer_cb_info* change, void* connection);
  static void OnOutput(evbuffer* output, const evbuffer_cb_info* change, void* connection);
  static void OnAnswered(evhttp_request* request, void* self);

  static void Enter(Connection& connection, Phase phase);
  void TakeBytes(Connection& connection, std::string_view bytes);
  void AdmitNew();
  void Admit(Connection& connection);
  void RefuseBadHeads();
  void Refuse(Connection& connection, int code, const absl::Status& why);
  void CheckTimes();
  void Forget();
  void ReleaseMemory();

  EventLoop* const loop_;
  evconnlistener* const listener_;
  const ConnectionLimits limits_;
  const ErrorBody error_body_;
  access::ServerTls* const tls_;
  bool resting_ = false;
  size_t peak_ = 0;  // of open connections since memory was released
  std::map<bufferevent*, std::unique_ptr<Connection>> all_;
};

}  // namespace legoai::server
