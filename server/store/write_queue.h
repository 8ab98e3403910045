// Collects write transactions of many threads and hands them, a group at a time, to one thread that makes them durable together:
// while a group is being committed, the next one collects.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "core/process/mutex.h"
#include "server/store/store.h"

namespace legoai::store {

// Thread-safe.
class WriteQueue {
 public:
  using Work = std::function<absl::Status(Transaction&)>;
  // On the stack of the waiting thread.
  struct Request {
    explicit Request(const Work& its_work) : work(its_work) {}
    const Work& work;
    absl::Status status;
    bool done = false;  // guarded by the queue's mutex_
    Condition answered;
  };
  using Group = std::vector<Request*>;

  // `run` is called on a thread of its own, one group after the other, and sets the status of each request: OK once its work is
  // durable.
  explicit WriteQueue(std::function<void(const Group&)> run);
  // Finishes running work; nobody may be in Write().
  ~WriteQueue();
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;

  // Blocks until the work is durable or refused.
  absl::Status Write(const Work& work);

 private:
  void Loop();

  const std::function<void(const Group&)> run_;
  Mutex mutex_;
  Condition wake_;
  Group waiting_ ABSL_GUARDED_BY(mutex_);
  bool end_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace legoai::store
