#include "worker/agent/commit_requests.h"

#include <utility>

namespace legoai::agent {

int64_t CommitRequests::Ask(v1::CommitRequest question, std::function<void()> answered) {
  int64_t id = 0;
  {
    const MutexLock lock(mutex_);
    id = ++last_id_;
    question.set_id(id);
    Question& kept = questions_[id];
    kept.request = std::move(question);
    kept.answered = std::move(answered);
  }
  if (asked_) asked_();
  return id;
}

std::optional<CommitVerdict> CommitRequests::Take(int64_t id) {
  const MutexLock lock(mutex_);
  const auto found = questions_.find(id);
  if (found == questions_.end() || !found->second.verdict) return std::nullopt;
  CommitVerdict verdict = *std::move(found->second.verdict);
  questions_.erase(found);
  return verdict;
}

void CommitRequests::Withdraw(int64_t id) {
  const MutexLock lock(mutex_);
  questions_.erase(id);
}

std::optional<v1::CommitRequest> CommitRequests::NextToSend() {
  const MutexLock lock(mutex_);
  for (auto& [id, question] : questions_) {
    if (question.sent || question.verdict) continue;
    question.sent = true;
    ++question.times_sent;
    return question.request;
  }
  return std::nullopt;
}

void CommitRequests::SendAllAgain() {
  const MutexLock lock(mutex_);
  for (auto& [id, question] : questions_) question.sent = false;
}

void CommitRequests::Answer(const v1::CommitAnswer& answer) {
  // Under the lock: after Withdraw() has returned nobody is called any more.
  const MutexLock lock(mutex_);
  const auto found = questions_.find(answer.id());
  if (found == questions_.end()) return;
  Question& question = found->second;
  question.verdict = CommitVerdict{answer.commit(), answer.reason(), !answer.commit() && question.times_sent > 1};
  if (question.answered) question.answered();
}

}  // namespace legoai::agent
