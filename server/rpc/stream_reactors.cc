#include "server/rpc/stream_reactors.h"

#include <utility>

#include "absl/time/time.h"
#include "server/rpc/grpc_status.h"

namespace legoai::server {
namespace {

absl::Status Stopping() { return absl::UnavailableError("the server stops; watch again when it is back"); }

}  // namespace

absl::Status WatchSet::Add(WatchReactor* watch) {
  const MutexLock lock(mutex_);
  if (ended_) return Stopping();
  const auto answer = quota_.Take(watch->client());
  if (answer != ClientQuota::Answer::kTaken) return BusyError(quota_.Refusal(answer, watch->client()), absl::Seconds(10));
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
  for (WatchReactor* watch : watches_) watch->End(Stopping());
}

void WatchSet::EndOthers(const access::Gate& gate) {
  const MutexLock lock(mutex_);
  for (WatchReactor* watch : watches_) {
    if (!gate.Holds(watch->who())) watch->End(access::NoLongerHeld());
  }
}

void WatchReactor::Begin(const absl::Status& admitted) {
  const absl::Status status = admitted.ok() ? watches_->Add(this) : admitted;
  registered_ = status.ok();
  watch_.Begin(status);
}

void WatchReactor::Send(v1::WatchJobResponse response) {
  response_ = std::move(response);
  StartWrite(&response_);
}

void WatchReactor::Finish(const absl::Status& status) {
  ended_(status.code());
  ServerWriteReactor::Finish(ToGrpcStatus(status));
}

void WatchReactor::OnDone() {
  if (registered_) watches_->Remove(this);
  delete this;
}

void PlanReactor::Begin(WorkQueue* plans, const absl::Status& admitted) {
  if (!admitted.ok()) return End(admitted);
  if (!plans->Post([this] { Run(); })) End(BusyError("too many plans wait on this server", absl::Seconds(10)));
}

void PlanReactor::Run() {
  End(planner_(
      request_, [this](const v1::PlanResponse& response) { return SendOne(response); }, [this] { return cancelled(); }));
}

bool PlanReactor::SendOne(const v1::PlanResponse& response) {
  {
    const MutexLock lock(mutex_);
    if (cancelled_) return false;
    if (writing_ && response.has_result()) result_ = response;
    if (writing_) return true;
    writing_ = true;
    response_ = response;
  }
  StartWrite(&response_);
  return true;
}

void PlanReactor::End(const absl::Status& status) {
  {
    const MutexLock lock(mutex_);
    end_ = status;
    if (writing_) return;
  }
  Finish(status);
}

void PlanReactor::Finish(const absl::Status& status) {
  ended_(status.code());
  ServerWriteReactor::Finish(ToGrpcStatus(status));
}

void PlanReactor::OnWriteDone(bool ok) {
  std::optional<absl::Status> end;
  {
    const MutexLock lock(mutex_);
    if (!ok) cancelled_ = true;
    if (cancelled_) result_.reset();
    writing_ = result_.has_value();
    if (writing_) {
      response_ = *std::move(result_);
      result_.reset();
    } else {
      end = end_;
    }
    if (!writing_ && !end) return;  // Run() goes on, and ends it
  }
  if (end) return Finish(*end);
  StartWrite(&response_);
}

void PlanReactor::OnCancel() {
  const MutexLock lock(mutex_);
  cancelled_ = true;
}

bool PlanReactor::cancelled() {
  const MutexLock lock(mutex_);
  return cancelled_;
}

}  // namespace legoai::server
