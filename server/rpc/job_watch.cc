#include "server/rpc/job_watch.h"

#include <algorithm>
#include <utility>

#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

absl::Status ClientLeft() { return absl::CancelledError("the client has left"); }

}  // namespace

// Subscribes before the first poll: a change in between is seen by a second one.
void JobWatch::Begin(const absl::Status& admitted) {
  if (admitted.ok()) {
    subscription_ = source_->notifier->Subscribe(request_.name(), [this] { Wake(); });
  } else {
    Close(admitted);
  }
  OnIdle();
}

void JobWatch::Wake() {
  {
    const MutexLock lock(mutex_);
    woken_ = true;
    if (busy_ || finished_) return;
    busy_ = true;
  }
  PostPoll();
}

void JobWatch::PostPoll() {
  const auto now = source_->now();
  source_->post([this] { Poll(); }, std::max(next_poll_, now) - now);
}

void JobWatch::Poll() {
  bool closing = false;
  {
    const MutexLock lock(mutex_);
    woken_ = false;
    closing = !closing_.ok();
  }
  if (closing) return OnIdle();
  next_poll_ = source_->now() + ControlPlane::kMinPollInterval;
  auto news = source_->poll(request_, &seen_);
  const bool first = !std::exchange(polled_, true);
  if (news.ok() && *news) {
    request_.set_after_version((*news)->job().version());
    sent_final_ = IsFinal((*news)->job().state());
    return sink_->Send(**std::move(news));
  }
  if (!news.ok()) Close(news.status());
  if (news.ok() && first) sink_->NothingNew();
  OnIdle();
}

void JobWatch::Sent(bool ok) {
  if (!ok) Close(ClientLeft());
  if (!ok || !sent_final_) return OnIdle();
  {
    const MutexLock lock(mutex_);
    finished_ = true;
  }
  sink_->Finish(absl::OkStatus());
}

void JobWatch::OnIdle() {
  absl::Status error;
  {
    const MutexLock lock(mutex_);
    error = closing_;
    finished_ = !error.ok();
    if (!finished_) busy_ = woken_;
    if (!finished_ && !busy_) return;
  }
  // From here on nobody else uses the watch, and nothing of it is used after Finish.
  if (!error.ok()) return sink_->Finish(error);
  PostPoll();
}

void JobWatch::Close(const absl::Status& error) {
  const MutexLock lock(mutex_);
  if (closing_.ok()) closing_ = error;
}

void JobWatch::End(const absl::Status& error) {
  Close(error);
  Wake();
}

}  // namespace legoai::server
