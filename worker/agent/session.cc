// Agent's part of the protocol: hello, heartbeats, what is sent when, and what happens when the connection is lost.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/process/mutex.h"
#include "core/process/secret_file.h"
#include "proto/not_leader.h"
#include "proto/status.h"
#include "worker/agent/agent.h"

namespace legoai::agent {
namespace {

constexpr absl::Duration kHelloAmongSeveral = absl::Seconds(5);

// What comes of a heartbeat interval that makes no sense.
std::chrono::nanoseconds Within(double seconds, std::chrono::nanoseconds least, std::chrono::nanoseconds most) {
  if (!(seconds > 0)) return least;
  const auto wished = std::chrono::duration<double>(std::min(seconds, 1e6));
  return std::clamp(std::chrono::duration_cast<std::chrono::nanoseconds>(wished), least, most);
}

// Not to be tried again: the answer will be the same, or another agent has taken this name (Aborted), and two that take it from
// each other again and again would let no job come to an end.
bool IsRefusal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status) || absl::IsAborted(status);
}

}  // namespace

// The token's file and the certificates are read each time: new ones are taken without a new start.
absl::StatusOr<std::unique_ptr<Stream>> Agent::OpenStream() {
  ChannelSecurity security = options_.security;
  if (!options_.token_file.empty()) {
    ASSIGN_OR_RETURN(security.token, launch::ReadSecretFile("--token_file", options_.token_file));
  }
  return Stream::Open(
      servers_.current(), security,
      {.received = [this](v1::ToAgent message) { Put([&](Inbox& inbox) { inbox.received.push_back(std::move(message)); }); },
       .written = [this] { Put([](Inbox& inbox) { inbox.written = true; }); },
       .ended = [this](absl::Status status) { Put([&](Inbox& inbox) { inbox.stream_ended = std::move(status); }); }});
}

// True: it has one from now on. Without it trains alone, until it connects again.
bool Agent::FindGangAddress() {
  if (!gang_address_.empty() || !options_.worker.gang_address().empty() || !options_.find_gang_address) return false;
  const absl::StatusOr<std::string> found = options_.find_gang_address();
  if (!found.ok()) return false;
  gang_address_ = *found;
  log_.Write("info", absl::StrCat("other workers reach it by ", gang_address_, " now, to train jobs together"));
  return true;
}

void Agent::Connect() {
  FindGangAddress();
  session_ = Session::kConnecting;
  writing_ = false;
  heard_ = Clock::now();
  // One that stands still takes connections all the same; among several it is not waited for.
  patience_ = absl::ToChronoNanoseconds(servers_.has_others() ? std::min(options_.hello_timeout, kHelloAmongSeveral)
                                                              : options_.hello_timeout);
  auto stream = OpenStream();
  if (stream.ok()) {
    stream_ = *std::move(stream);
  } else {
    // A file that is being replaced is there the next time.
    LoseStream(absl::UnavailableError(stream.status().message()));
  }
}

void Agent::Welcome(const v1::Welcome& welcome) {
  if (session_ != Session::kGreeted) return;
  session_ = Session::kOpen;
  backoff_.Reset();
  told_trouble_.clear();
  heartbeat_interval_ = Within(welcome.heartbeat_interval_seconds(), std::chrono::milliseconds(20), std::chrono::minutes(1));
  // A server that is slow for a while is not gone; one that has stopped, or whose host is cut off, is not to be waited for for
  // ever.
  const auto ttl = Within(welcome.lease_ttl_seconds(), std::chrono::seconds(1), std::chrono::minutes(5));
  const auto shortest = std::max<std::chrono::nanoseconds>(5 * heartbeat_interval_, std::chrono::seconds(5));
  // Of several servers another leads by then, and has not given up the leases yet.
  patience_ = servers_.has_others() ? shortest : std::max<std::chrono::nanoseconds>(ttl, shortest);
  heartbeat_at_ = Clock::now() + heartbeat_interval_;
  telemetry_.ReplayAfter(welcome.acknowledged_telemetry());
  commits_.SendAllAgain();
  log_.Write("info", absl::StrCat("is connected with ", servers_.current(), " as ", options_.worker.name()));
  // A server whose name could be found only now has not been told.
  if (FindGangAddress()) LoseStream(absl::UnavailableError("it tells anew by which address other workers reach it"));
}

void Agent::CheckSession() {
  const Clock::time_point now = Clock::now();
  if (now >= kill_at_) {
    kill_at_ = Clock::time_point::max();
    for (auto& [key, lease] : leases_) lease->Revoke("the agent ends, and they did not stop in time");
  }
  for (auto& [key, lease] : leases_) lease->EndGrace(now);
  if (session_ == Session::kNone && now >= connect_at_ && !refused_) return Connect();
  if (stream_ != nullptr && now >= heard_ + patience_) LoseStream(absl::DeadlineExceededError("the server does not answer"));
}

// One message at a time, the most urgent first.
void Agent::Pump() {
  if (stream_ == nullptr || writing_) return;
  if (auto message = NextMessage()) {
    writing_ = true;
    stream_->Write(*std::move(message));
  }
}

std::optional<v1::FromAgent> Agent::NextMessage() {
  v1::FromAgent message;
  if (session_ == Session::kConnecting) {
    session_ = Session::kGreeted;
    *message.mutable_hello() = MakeHello();
    return message;
  }
  if (session_ != Session::kOpen) return std::nullopt;
  if (Clock::now() >= heartbeat_at_) {
    *message.mutable_heartbeat() = MakeHeartbeat();
    return message;
  }
  if (auto question = commits_.NextToSend()) {
    *message.mutable_commit_request() = *std::move(question);
    return message;
  }
  if (auto fact = telemetry_.Next()) {
    *message.mutable_telemetry() = *std::move(fact);
    return message;
  }
  return std::nullopt;
}

v1::Hello Agent::MakeHello() {
  v1::Hello hello;
  *hello.mutable_worker() = options_.worker;
  *hello.mutable_worker()->mutable_health() = health_.Get();
  tells_health_ = false;
  hello.mutable_worker()->set_runs(options_.runs);
  if (!gang_address_.empty()) hello.mutable_worker()->set_gang_address(gang_address_);
  for (const auto& [key, lease] : leases_) {
    if (!lease->revoked()) *hello.add_leases() = lease->id();
  }
  hello.set_last_telemetry(telemetry_.last());
  hello.set_protocol(kAgentProtocol);
  return hello;
}

v1::Heartbeat Agent::MakeHeartbeat() {
  // A process that was stopped does not make up for what it missed.
  heartbeat_at_ = std::max(heartbeat_at_ + heartbeat_interval_, Clock::now());
  v1::Heartbeat heartbeat;
  heartbeat.set_sequence(++heartbeats_);
  for (const auto& [key, lease] : leases_) {
    if (!lease->revoked()) *heartbeat.add_leases() = lease->id();
  }
  heartbeat.set_dropped_metrics(telemetry_.dropped());
  if (auto use = use_.Latest()) *heartbeat.mutable_use() = *std::move(use);
  if (std::exchange(tells_health_, false)) *heartbeat.mutable_health() = health_.Get();
  return heartbeat;
}

void Agent::LoseStream(const absl::Status& why) {
  stream_.reset();
  const bool leaving = session_ == Session::kLeaving;
  session_ = leaving ? Session::kLeaving : Session::kNone;
  heartbeat_at_ = Clock::time_point::max();
  writing_ = false;
  std::vector<v1::ToAgent> last_words;
  {
    const MutexLock lock(mutex_);
    last_words.swap(inbox_.received);
    inbox_.written = false;
    inbox_.stream_ended.reset();
  }
  for (v1::ToAgent& message : last_words) Handle(std::move(message));
  if (leaving) return;
  if (IsRefusal(why)) {
    log_.Write("error", absl::StrCat("the server at ", servers_.current(), " refuses this agent: ", why.message()));
    refused_ = why;
    return;
  }
  const std::string server = servers_.current();
  const absl::Duration wait = servers_.MoveOn(why) ? absl::ZeroDuration() : backoff_.Next();
  connect_at_ = Clock::now() + absl::ToChronoNanoseconds(wait);
  const std::string trouble(why.ok() ? "the server has closed the connection" : why.message());
  if (trouble == std::exchange(told_trouble_, trouble)) return;
  log_.Write("warning", absl::StrCat("has no connection with ", server, " and tries again: ", trouble));
}

// After the last trainer has ended: what is left to tell, then goodbye. True: it is done, or has had its time.
bool Agent::LeaveSession() {
  const Clock::time_point now = Clock::now();
  const bool hurried = stops_ > 1;
  const bool open = session_ == Session::kOpen || session_ == Session::kLeaving;
  leave_by_ = std::min(leave_by_, now + std::chrono::seconds(!open ? (hurried ? 0 : 2) : (hurried ? 2 : 10)));
  if (now >= leave_by_) return true;
  if (session_ == Session::kLeaving) {
    if (stream_ == nullptr) return true;
    if (!writing_ && !std::exchange(said_goodbye_, true)) stream_->Finish();
    return false;
  }
  if (session_ != Session::kOpen || writing_ || (!telemetry_.empty() && !hurried)) return false;
  session_ = Session::kLeaving;
  writing_ = true;
  v1::FromAgent message;
  message.mutable_goodbye();
  stream_->Write(std::move(message));
  return false;
}

}  // namespace legoai::agent
