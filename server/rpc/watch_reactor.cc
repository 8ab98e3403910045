#include "server/rpc/watch_reactor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/jobs/transition.h"
#include "server/rpc/grpc_status.h"

namespace legoai::server {
namespace {

absl::Status Stopping() { return absl::UnavailableError("the server stops; watch again when it is back"); }

}  // namespace

absl::Status WatchSet::Add(WatchReactor* watch) {
  const MutexLock lock(mutex_);
  if (ended_) return Stopping();
  switch (quota_.Take(watch->client())) {
    case ClientQuota::Answer::kTaken: break;
    case ClientQuota::Answer::kFull:
      return BusyError(absl::StrCat("too many watches are open on this server: it takes ", most_), absl::Seconds(10));
    case ClientQuota::Answer::kClientIsFull:
      return BusyError(absl::StrCat("your address (", watch->client(), ") has ", most_per_client_,
                                    " watches open, as many as one client may have: end some"),
                       absl::Seconds(10));
  }
  watches_.insert(watch);
  return absl::OkStatus();
}

void WatchSet::Remove(WatchReactor* watch) {
  const MutexLock lock(mutex_);
  if (watches_.erase(watch) > 0) quota_.GiveBack(watch->client());
}

void WatchSet::EndAll() {
  const MutexLock lock(mutex_);
  ended_ = true;
  for (WatchReactor* watch : watches_) watch->End();
}

WatchReactor::WatchReactor(ControlPlane* control, ThreadPool* pool, WatchSet* watches, std::string client,
                           const v1::WatchJobRequest& request, std::function<void(absl::StatusCode)> ended)
    : control_(control),
      pool_(pool),
      watches_(watches),
      client_(std::move(client)),
      ended_(std::move(ended)),
      request_(request) {}

// The subscription comes before the first look: what changes in between is seen by a second one.
void WatchReactor::Begin(const absl::Status& admitted) {
  {
    // Held back until all is set up: a stream that ended now would be deleted under our hands.
    const MutexLock lock(mutex_);
    busy_ = woken_ = true;
  }
  const absl::Status status = admitted.ok() ? watches_->Add(this) : admitted;
  if (!status.ok()) {
    Close(status);
  } else {
    registered_ = true;
    subscription_ = control_->notifier().Subscribe(request_.name(), [this] { Wake(); });
  }
  Rest();
}

void WatchReactor::Wake() {
  {
    const MutexLock lock(mutex_);
    woken_ = true;
    if (busy_ || finished_) return;
    busy_ = true;
  }
  PostLook();
}

void WatchReactor::PostLook() {
  const auto now = ThreadPool::Clock::now();
  pool_->Post([this] { Look(); }, std::max(next_look_, now) - now);
}

void WatchReactor::Look() {
  bool closing = false;
  {
    const MutexLock lock(mutex_);
    woken_ = false;
    closing = !closing_.ok();
  }
  if (closing) return Rest();
  next_look_ = ThreadPool::Clock::now() + ControlPlane::kBetweenLooks;
  auto news = control_->LookAtJob(request_, &seen_);
  if (!news.ok()) Close(news.status());
  if (!news.ok() || !*news) return Rest();
  response_ = **std::move(news);
  request_.set_after_version(response_.job().version());
  StartWrite(&response_);
}

void WatchReactor::OnWriteDone(bool ok) {
  if (!ok) Close(absl::CancelledError("the client has left"));
  if (ok && IsFinal(response_.job().state())) {
    {
      const MutexLock lock(mutex_);
      finished_ = true;
    }
    return Finish(absl::OkStatus());
  }
  Rest();
}

void WatchReactor::Rest() {
  absl::Status end;
  {
    const MutexLock lock(mutex_);
    if (closing_.ok()) {
      busy_ = woken_;
      if (!busy_) return;
    } else {
      finished_ = true;
      end = closing_;
    }
  }
  // From here on nobody else touches the stream, and nothing of it is touched after Finish.
  if (!end.ok()) return Finish(end);
  PostLook();
}

void WatchReactor::Finish(const absl::Status& status) {
  ended_(status.code());
  ServerWriteReactor::Finish(ToGrpcStatus(status));
}

void WatchReactor::Close(const absl::Status& status) {
  const MutexLock lock(mutex_);
  if (closing_.ok()) closing_ = status;
}

void WatchReactor::End() {
  Close(Stopping());
  Wake();
}

void WatchReactor::OnCancel() {
  Close(absl::CancelledError("the client has left"));
  Wake();
}

void WatchReactor::OnDone() {
  subscription_.reset();
  if (registered_) watches_->Remove(this);
  delete this;
}

}  // namespace legoai::server
