// Checkpoints that wait for the server's verdict. Launchers ask here and poll for the answer; the session with the server sends
// the questions, again after a reconnection, and receives the answers. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/process/mutex.h"
#include "proto/legoai/v1/worker_service.pb.h"

namespace legoai::agent {

struct CommitVerdict {
  bool commit = false;
  std::string reason;  // of a denial
  // Denied after being asked more than once: an earlier answer that was lost may have been a commit.
  bool doubtful = false;
};

class CommitRequests {
 public:
  // `asked` is called after every new question, on the thread that asks.
  explicit CommitRequests(std::function<void()> asked) : asked_(std::move(asked)) {}

  // Adds a question, fills in its id and returns it. `answered` is called when there is a verdict, on another thread.
  int64_t Ask(v1::CommitRequest question, std::function<void()> answered);
  // Returns the verdict once; nothing while there is none.
  std::optional<CommitVerdict> Take(int64_t id);
  // The caller of Ask() no longer waits.
  void Withdraw(int64_t id);

  // For the session: the next question not yet sent over this connection.
  std::optional<v1::CommitRequest> NextToSend();
  // After a reconnection: all open questions are sent again.
  void SendAllAgain();
  // Ignores answers to withdrawn questions.
  void Answer(const v1::CommitAnswer& answer);

 private:
  struct Question {
    v1::CommitRequest request;
    std::function<void()> answered;
    int64_t times_sent = 0;
    bool sent = false;  // over the current connection
    std::optional<CommitVerdict> verdict;
  };

  const std::function<void()> asked_;
  Mutex mutex_;
  std::map<int64_t, Question> questions_ ABSL_GUARDED_BY(mutex_);  // by id
  int64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace legoai::agent
