#include "server/http/streams.h"

#include <utility>

#include "nlohmann/json.hpp"
#include "proto/json/json.h"
#include "server/http/exchange.h"
#include "server/jobs/transition.h"

namespace legoai::server {

void EventStream::KeepAlive(double after_seconds) {
  if (over() || !exchange_->streaming() || IsSlow()) return;
  if (Clock::now() - last_sent_ < std::chrono::duration<double>(after_seconds)) return;
  last_sent_ = Clock::now();
  exchange_->SendComment();
}

void EventStream::Send(const std::string& event, const std::string& id, const std::string& data) {
  last_sent_ = Clock::now();
  exchange_->SendEvent(event, id, data);
}

void WatchStream::Start(Notifier* notifier) {
  exchange_->WatchForEnd();
  // First the subscription, then the look: a change between them is seen by the next look. The callback must not hold the stream:
  // to end a subscription inside of it would wait for itself.
  subscription_ = notifier->Subscribe(request_.name(), [weak = weak_from_this(), woken = woken_, loop = loop_] {
    if (woken->exchange(true)) return;
    loop->Post([weak] {
      if (const auto stream = weak.lock()) stream->Wake();
    });
  });
  TryLook();
}

void WatchStream::Wake() {
  *woken_ = false;
  dirty_ = true;
  TryLook();
}

void WatchStream::Tick() { TryLook(); }

void WatchStream::TryLook() {
  if (over() || looking_ || !dirty_ || IsSlow() || Clock::now() - last_look_ < ControlPlane::kBetweenLooks) return;
  looking_ = true;
  dirty_ = false;
  last_look_ = Clock::now();
  const bool submitted = pool_->Post([self = shared_from_this(), request = request_] {
    Look look = self->RunLook(request);
    self->loop_->Post([self, look = std::move(look)] { self->OnLook(look); });
  });
  if (submitted) return;
  looking_ = false;
  dirty_ = true;  // the next tick tries again
}

// Runs on the pool: of the stream it uses what is the look's own while one is under way.
WatchStream::Look WatchStream::RunLook(const v1::WatchJobRequest& request) {
  auto news = handlers_->look_at_job(request, &seen_);
  if (!news.ok()) return {news.status(), std::nullopt};
  return {absl::OkStatus(), *std::move(news)};
}

void WatchStream::OnLook(Look look) {
  looking_ = false;
  if (over()) return;
  if (!look.status.ok()) return Fail(look.status);
  const bool final = look.news && IsFinal(look.news->job().state());
  // A final job is news whatever the client has seen of it.
  if (final && !exchange_->streaming() && look.news->job().version() == request_.after_version()) {
    over_ = true;
    return exchange_->Reply(204, "", "");
  }
  if (!exchange_->streaming()) exchange_->StartEvents();
  if (look.news) {
    request_.set_after_version(look.news->job().version());
    Send("job", std::to_string(look.news->job().version()), ToJson(*look.news, -1));
  }
  if (final) {
    Send("end", "", "{}");
    over_ = true;
    exchange_->EndEvents();
  }
}

void WatchStream::Fail(const absl::Status& status) {
  over_ = true;
  const int code = HttpCode(status.code());
  if (!exchange_->streaming()) return exchange_->ReplyJson(code, ErrorJson(status, code));
  Send("failure", "", ErrorJson(status, code));
  exchange_->EndEvents();
}

void ChangesStream::Start(Notifier* notifier) {
  exchange_->StartEvents();
  exchange_->SendComment();
  subscription_ = notifier->SubscribeToNames([changes = changes_](const std::string& job) {
    const MutexLock lock(changes->mutex);
    if (job.empty()) {
      changes->workers = true;
    } else if (changes->jobs.size() <= kMaxNames) {
      changes->jobs.insert(job);
    }
  });
}

void ChangesStream::Tick() {
  if (over() || IsSlow()) return;
  std::set<std::string> jobs;
  bool workers = false;
  {
    const MutexLock lock(changes_->mutex);
    jobs.swap(changes_->jobs);
    workers = std::exchange(changes_->workers, false);
  }
  if (!jobs.empty()) {
    const bool all = jobs.size() > kMaxNames;
    if (all) jobs.clear();
    Send("jobs", "", nlohmann::ordered_json{{"jobs", jobs}, {"all", all}}.dump());
  }
  if (workers) Send("workers", "", "{}");
}

}  // namespace legoai::server
