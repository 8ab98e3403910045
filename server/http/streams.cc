#include "server/http/streams.h"

#include "nlohmann/json.hpp"
#include "proto/json/json.h"
#include "server/jobs/transition.h"

namespace legoai::server {

void EventStream::KeepAlive(double after_seconds) {
  if (over() || !exchange_->streaming() || IsSlow()) return;
  if (Clock::now() - last_sent_ < std::chrono::duration<double>(after_seconds)) return;
  last_sent_ = Clock::now();
  exchange_->SendComment();
}

void EventStream::Refuse(const absl::Status& why) {
  over_ = true;
  SendEvent("failure", "", ErrorJson(why, HttpCode(why.code())));
  exchange_->EndEvents();
}

void EventStream::SendEvent(const std::string& event, const std::string& id, const std::string& data) {
  last_sent_ = Clock::now();
  exchange_->SendEvent(event, id, data);
}

void WatchStream::Start() {
  exchange_->WatchForEnd();
  watch_.Begin(absl::OkStatus());
}

void WatchStream::Tick() {
  const bool gone = exchange_->gone();
  if (gone) watch_.End(absl::CancelledError("the client has left"));
  if (!sending_ || IsSlow()) return;
  sending_ = false;
  watch_.Sent(!gone);
}

void WatchStream::NothingNew() {
  loop_->Post([self = shared_from_this()] { self->exchange_->StartEvents(); });
}

void WatchStream::Send(v1::WatchJobResponse response) {
  loop_->Post([self = shared_from_this(), response = std::move(response)] { self->SendJob(response); });
}

void WatchStream::Finish(const absl::Status& status) {
  loop_->Post([self = shared_from_this(), status] { self->End(status); });
}

void WatchStream::SendJob(const v1::WatchJobResponse& response) {
  const v1::Job& job = response.job();
  const bool final = IsFinal(job.state());
  // A final job is news whatever the client has seen of it.
  if (final && !exchange_->streaming() && job.version() == asked_version_) {
    exchange_->Reply(204, "", "");
  } else {
    if (!exchange_->streaming()) exchange_->StartEvents();
    SendEvent("job", std::to_string(job.version()), ToJson(response, -1));
  }
  sending_ = !final;
  if (final) watch_.Sent(true);  // nothing follows for which a slow client would have to be awaited
}

void WatchStream::End(const absl::Status& status) {
  over_ = true;
  const int code = HttpCode(status.code());
  if (!status.ok() && !exchange_->streaming()) return exchange_->ReplyJson(code, ErrorJson(status, code));
  if (!exchange_->streaming()) return;
  SendEvent(status.ok() ? "end" : "failure", "", status.ok() ? "{}" : ErrorJson(status, code));
  exchange_->EndEvents();
}

void ChangesStream::Start(Notifier* notifier) {
  exchange_->StartEvents();
  exchange_->SendComment();
  subscription_ = notifier->SubscribeToNames([changes = changes_, who = who_](const std::string& job) {
    const bool is_of_one = !job.empty() && job != Notifier::kAnyJob;  // what may be of any is told to all
    if (is_of_one && !access::Sees(who, access::ProjectOf(job))) return;
    const MutexLock lock(changes->mutex);
    if (job.empty()) {
      changes->workers = true;
    } else if (job == Notifier::kAnyJob) {
      changes->all_jobs = true;
    } else if (changes->jobs.size() <= kMaxNames) {
      changes->jobs.insert(job);
    }
  });
}

void ChangesStream::Tick() {
  if (over() || IsSlow()) return;
  std::set<std::string> jobs;
  bool workers = false, all = false;
  {
    const MutexLock lock(changes_->mutex);
    jobs.swap(changes_->jobs);
    workers = std::exchange(changes_->workers, false);
    all = std::exchange(changes_->all_jobs, false) || jobs.size() > kMaxNames;
  }
  if (all || !jobs.empty()) {
    if (all) jobs.clear();
    SendEvent("jobs", "", nlohmann::ordered_json{{"jobs", jobs}, {"all", all}}.dump());
  }
  if (workers) SendEvent("workers", "", "{}");
}

}  // namespace legoai::server
