// Checkpoints that wait for the server's verdict. Launchers ask here and look for the answer; the session with the server carries
// questions and answers, and asks again after a reconnection. Thread-safe.
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
  // It was asked more than once, and denied: an earlier answer, which was lost, may have been another one.
  bool doubtful = false;
};

class CommitRequests {
 public:
  // `asked` is called after every new question, on the thread that asks.
  explicit CommitRequests(std::function<void()> asked) : asked_(std::move(asked)) {}

  // Puts a question, whose id is filled in; returns the id. `answered` is called when there is a verdict, on another thread.
  int64_t Ask(v1::CommitRequest question, std::function<void()> answered);
  // The verdict, once; nothing as long as there is none.
  std::optional<CommitVerdict> Take(int64_t id);
  // Whoever asked no longer waits.
  void Withdraw(int64_t id);

  // For the session: the next question that this connection has not carried yet.
  std::optional<v1::CommitRequest> NextToSend();
  // A new connection: all open questions are to be sent again.
  void SendAllAgain();
  // Answers to what nobody asks any more are left alone.
  void Answer(const v1::CommitAnswer& answer);

 private:
  struct Question {
    v1::CommitRequest request;
    std::function<void()> answered;
    int64_t times_sent = 0;
    bool sent = false;  // over the present connection
    std::optional<CommitVerdict> verdict;
  };

  const std::function<void()> asked_;
  Mutex mutex_;
  std::map<int64_t, Question> questions_ ABSL_GUARDED_BY(mutex_);  // by id
  int64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace legoai::agent
