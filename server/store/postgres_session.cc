#include "server/store/postgres_session.h"

#include <utility>

#include "proto/status.h"

namespace legoai::store {
namespace {

// More changes are not held back: neither this process nor the connection's buffers take any number.
constexpr size_t kMostWaiting = 256;
constexpr size_t kMostWaitingBytes = size_t{4} << 20;

}  // namespace

void PostgresSession::Queue(const PostgresStatement& statement, PostgresValues values, Expect expect) {
  waiting_bytes_ += values.size_bytes();
  waiting_.push_back({&statement, std::move(values)});
  expected_.push_back(expect);
}

absl::Status PostgresSession::ChangeExpecting(const PostgresStatement& statement, PostgresValues values, Expect expect) {
  RETURN_IF_ERROR(failure_);
  Queue(statement, std::move(values), expect);
  const bool many = waiting_.size() >= kMostWaiting || waiting_bytes_ >= kMostWaitingBytes;
  return many || mode_ == Mode::kAwait ? Flush() : absl::OkStatus();
}

absl::Status PostgresSession::Change(const PostgresStatement& statement, PostgresValues values,
                                     const std::function<absl::Status()>& refused) {
  RETURN_IF_ERROR(ChangeExpecting(statement, std::move(values), mode_ == Mode::kAwait ? Expect::kAnything : Expect::kRow));
  return mode_ == Mode::kAwait && last_changed_ == 0 ? refused() : absl::OkStatus();
}

absl::Status PostgresSession::Change(const PostgresStatement& statement, PostgresValues values) {
  return ChangeExpecting(statement, std::move(values), Expect::kAnything);
}

absl::StatusOr<PostgresRows> PostgresSession::Ask(const PostgresStatement& statement, PostgresValues values) {
  std::vector<PostgresConnection::Query> questions;
  questions.push_back({&statement, std::move(values)});
  ASSIGN_OR_RETURN(auto answers, Ask(std::move(questions)));
  return std::move(answers[0]);
}

absl::StatusOr<std::vector<PostgresRows>> PostgresSession::Ask(std::vector<PostgresConnection::Query> questions) {
  RETURN_IF_ERROR(failure_);
  const size_t count = questions.size();
  for (PostgresConnection::Query& question : questions) Queue(*question.statement, std::move(question.values));
  auto answers = Send();
  RETURN_IF_ERROR(failure_);
  return std::vector<PostgresRows>(std::make_move_iterator(answers.rows.end() - static_cast<int64_t>(count)),
                                   std::make_move_iterator(answers.rows.end()));
}

absl::Status PostgresSession::Flush() {
  if (failure_.ok() && !waiting_.empty()) Send();
  return failure_;
}

void PostgresSession::Fail(const absl::Status& failure) {
  if (failure_.ok()) failure_ = failure;
}

PostgresConnection::Answers PostgresSession::Send() {
  begun_ = true;
  auto answers = connection_->RoundTrip(waiting_);
  if (connection_->lost() && reconnect_ && !answered_) {
    absl::StatusOr<std::unique_ptr<PostgresConnection>> another = reconnect_();
    if (another.ok()) {
      connection_ = *std::move(another);
      answers = connection_->RoundTrip(waiting_);
    } else {
      answers.status = another.status();
    }
  }
  answered_ = true;
  Fail(answers.status);
  for (size_t i = 0; i < answers.rows.size() && failure_.ok(); ++i) {
    last_changed_ = answers.rows[i].changed();
    if (last_changed_ > 0 || expected_[i] == Expect::kAnything) continue;
    if (expected_[i] == Expect::kLeader) {
      superseded_ = true;
      Fail(PostgresFieldError(target(), "another server has taken the store over: this one changes nothing any more",
                              absl::StatusCode::kUnavailable));
    } else {
      assumed_wrongly_ = true;
      Fail(absl::AbortedError("a change was refused"));
    }
  }
  waiting_.clear(), expected_.clear(), waiting_bytes_ = 0;
  return answers;
}

}  // namespace legoai::store
