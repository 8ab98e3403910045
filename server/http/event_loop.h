// The one thread on which everything of libevent happens, and the way onto it from others. What runs there must not block.
#pragma once

#include <event2/event.h>

#include <deque>
#include <functional>
#include <thread>

#include "core/process/mutex.h"

namespace legoai::server {

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

}  // namespace legoai::server
