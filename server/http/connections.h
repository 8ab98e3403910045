// What evhttp leaves to be done about its connections. On the loop's thread.
//
// Bounds: of all connections, and of each client's. A client that is at its bound, and the server that is at its own, make room
// by closing the connection that has owed a request for longest; only where all are being answered is the new one refused. Where
// more come than that, the listener rests, and they wait in the system's queue.
//
// Deadlines: head and body of a request have a total time each, however steadily they drip. evhttp knows silence only.
//
// Heads are checked (request_head.h) as they arrive, before evhttp has read a body that it may have misjudged.
//
// Errors as data: a request that libevent cannot read, or that is too large, it answers itself, with a page of HTML, and asks
// nobody (evhttp_set_errorcb is of libevent 2.2). Such a page is replaced before it leaves.
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

namespace legoai::server {

// The one thread on which everything of libevent happens, and the way onto it from others. What runs there must not block.
class EventLoop {
 public:
  EventLoop();   // ready for events, not running yet
  ~EventLoop();  // Stop() must have been called if Start() was; tasks that have not run are dropped
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  event_base* base() { return base_; }

  void Start();
  // Goes on for a tenth of a second, so that answers under way are written, then ends the thread.
  void Stop();

  // Runs `task` on the loop's thread, in the order of the calls. Thread-safe; returns at once.
  void Post(std::function<void()> task);

 private:
  static void OnWake(evutil_socket_t, short, void* self);
  void RunTasks();

  event_base* base_;
  event* wake_;
  std::thread thread_;
  Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
};

struct ConnectionLimits {
  size_t connections, connections_per_client;
  size_t head_bytes;
  double head_seconds, body_seconds;
};

class Connections {
 public:
  // What is answered where no handler is asked: a body of JSON, for an HTTP status and the client's address ("127.0.0.1:4711").
  // `why` is OK where libevent has refused the request for reasons of its own.
  using ErrorBody = std::function<std::string(int code, const std::string& remote, const absl::Status& why)>;

  // Owns none of the pointers. Must be destroyed after `http`, and before its loop, which must not run any more.
  Connections(EventLoop* loop, evhttp* http, evconnlistener* listener, const ConnectionLimits& limits, ErrorBody error_body);
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  // evhttp hands on a request, which will be answered: nothing of the connection is limited until that is done. An error is why
  // it must be answered with 400, and the connection closed.
  absl::Status Begin(evhttp_request* request);

  // Closes those that are over their time, forgets those that are closed. To be called now and then.
  void Sweep();

  size_t open() const;
  size_t held_bytes() const;  // that were received and not handled yet, or are not sent yet

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kIdle, kHead, kBody, kAnswer };

  struct Connection {
    Connections* all;
    bufferevent* io;             // with a reference of ours
    std::string remote, client;  // empty: not looked at yet
    Phase phase = Phase::kIdle;
    Clock::time_point since = Clock::now();  // of the phase
    std::string head;                        // as far as it came
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
  bool resting_ = false;
  size_t peak_ = 0;  // of open connections since memory was released
  std::map<bufferevent*, std::unique_ptr<Connection>> all_;
};

}  // namespace legoai::server
