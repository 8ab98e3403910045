#include "server/leader/reign.h"

#include <chrono>
#include <utility>

#include "proto/not_leader.h"

namespace legoai::server {
namespace {

int64_t NowNs() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

}  // namespace

absl::Status ReignStore::Write(const std::function<absl::Status(store::Transaction&)>& work) {
  const auto over = [this] { return signs_->over || signs_->superseded; };
  const absl::Status refusal = NotLeaderError("", 0);
  if (over()) return refusal;
  return store_->Write([&](store::Transaction& transaction) { return over() ? refusal : work(transaction); });
}

Reign::Reign(std::unique_ptr<store::Store> store, std::shared_ptr<ReignSigns> signs, const ControllerOptions& options,
             Notifier* notifier, absl::Duration renew_every)
    : signs_(std::move(signs)),
      store_(std::move(store), signs_),
      measured_(&store_, options.metrics),
      controller_(options, &measured_, notifier),
      renewed_ns_(NowNs()) {
  if (renew_every > absl::ZeroDuration()) renewing_ = std::thread([this, renew_every] { Renew(renew_every); });
}

Reign::~Reign() {
  signs_->over = true;
  bell_.End();
  if (renewing_.joinable()) renewing_.join();
}

void Reign::Renew(absl::Duration every) {
  do {
    const int64_t begun = NowNs();
    if (store_.Write([](store::Transaction&) { return absl::OkStatus(); }).ok()) renewed_ns_ = begun;
  } while (bell_.SleepUntil(std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(every)));
}

absl::Duration Reign::Silence() const {
  return signs_->superseded ? absl::InfiniteDuration() : absl::Nanoseconds(NowNs() - renewed_ns_);
}

void Reign::End(const absl::Status& why) {
  signs_->over = true;
  controller_.Resign(why);
}

}  // namespace legoai::server
