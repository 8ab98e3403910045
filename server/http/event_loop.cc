#include "server/http/event_loop.h"

#include <event2/thread.h>

#include <utility>

#include "server/metrics/log.h"

namespace legoai::server {
namespace {

void OnLibeventMessage(int severity, const char* message) {
  if (severity >= EVENT_LOG_WARN) LogWarning(message);
}

event_base* MakeBase() {
  static const bool prepared = [] {
    event_set_log_callback(&OnLibeventMessage);
    return evthread_use_pthreads() == 0;
  }();
  return prepared ? event_base_new() : nullptr;
}

}  // namespace

EventLoop::EventLoop() : base_(MakeBase()), wake_(event_new(base_, -1, EV_PERSIST, &OnWake, this)) {
  // An event that waits for nothing keeps the loop going; Post makes it happen.
  const timeval year = {365 * 24 * 3600, 0};
  event_add(wake_, &year);
}

EventLoop::~EventLoop() {
  event_free(wake_);
  event_base_free(base_);
}

void EventLoop::Start() {
  thread_ = std::thread([this] { event_base_dispatch(base_); });
}

void EventLoop::Stop() {
  const timeval soon = {0, 100'000};
  event_base_loopexit(base_, &soon);
  thread_.join();
}

void EventLoop::Post(std::function<void()> task) {
  const MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  event_active(wake_, 0, 0);
}

void EventLoop::OnWake(evutil_socket_t, short, void* self) { static_cast<EventLoop*>(self)->RunTasks(); }

void EventLoop::RunTasks() {
  std::deque<std::function<void()>> tasks;
  {
    const MutexLock lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
}

}  // namespace legoai::server
