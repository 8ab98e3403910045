#include "worker/agent/agent.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/process/host_resources.h"
#include "worker/agent/machine_checks.h"

namespace legoai::agent {
namespace {

std::vector<std::string> GpusOf(const v1::Worker& worker) {
  std::vector<std::string> gpus;
  for (const v1::SlotDevice& device : worker.slot_devices()) gpus.push_back(device.uuid());
  return gpus;
}

constexpr absl::Duration kLookInterval = absl::Seconds(2);  // at what of the machine is in use
constexpr absl::Duration kLongestWaitAmongSeveral = absl::Seconds(1);  // one of the servers leads soon

std::vector<int> IndicesOf(const v1::Worker& worker) {
  std::vector<int> indices;
  for (const v1::SlotDevice& device : worker.slot_devices()) indices.push_back(static_cast<int>(device.index()));
  return indices;
}

}  // namespace

Agent::Agent(AgentOptions options, const JsonLog& log)
    : options_(std::move(options)),
      log_(log),
      servers_(ServerList::Parse("--server", options_.server).value()),
      use_(IndicesOf(options_.worker), kLookInterval),
      slots_(options_.worker.slots(), launch::AllowedCpus(), GpusOf(options_.worker)),
      health_(options_.worker, slots_, log_, [this] { Put([](Inbox& inbox) { inbox.health_changed = true; }); }),
      gpu_watch_(options_.worker, health_, log_),
      telemetry_(options_.telemetry_bytes, [this] { Put([](Inbox& inbox) { inbox.changed = true; }); }),
      commits_([this] { Put([](Inbox& inbox) { inbox.changed = true; }); }),
      backoff_(options_.first_wait, servers_.has_others() ? std::min(options_.longest_wait, kLongestWaitAmongSeveral)
                                                          : options_.longest_wait,
               std::random_device()()) {}

Agent::~Agent() {
  ends_checks_ = true;
  if (check_thread_.joinable()) check_thread_.join();
}

void Agent::Put(const std::function<void(Inbox&)>& write) {
  {
    const MutexLock lock(mutex_);
    write(inbox_);
  }
  arrived_.NotifyOne();
}

void Agent::Stop() {
  Put([](Inbox& inbox) { ++inbox.stops; });
}

absl::Status Agent::Run() {
  if (options_.check) StartCheck(/*takes_back=*/false);
  while (!refused_) {
    Inbox inbox = WaitForInbox();
    if (inbox.health_changed) {
      tells_health_ = true;
      if (session_ == Session::kOpen) heartbeat_at_ = Clock::now();
    }
    if (inbox.written) writing_ = false;
    for (v1::ToAgent& message : inbox.received) Handle(std::move(message));
    if (inbox.stream_ended) LoseStream(*inbox.stream_ended);
    if (inbox.stops > 0) HandleStop(inbox.stops);
    ForgetEnded();
    StartDueCheck();
    if (stops_ > 0 && AllEnded() && LeaveSession()) break;
    CheckSession();
    Pump();
  }
  ends_checks_ = true;
  leases_.clear();  // waits for what still runs
  stream_.reset();
  return refused_.value_or(absl::OkStatus());
}

Agent::Inbox Agent::WaitForInbox() {
  MutexLock lock(mutex_);
  const Clock::time_point deadline = NextDeadline();
  while (inbox_.empty() && arrived_.WaitUntil(lock, deadline)) {
  }
  return std::exchange(inbox_, Inbox());
}

// Beyond a minute nothing is waited for in one piece.
Agent::Clock::time_point Agent::NextDeadline() const {
  const Clock::time_point minute = Clock::now() + std::chrono::minutes(1);
  Clock::time_point soonest = std::min({minute, kill_at_, leave_by_});
  for (const auto& [key, lease] : leases_) soonest = std::min(soonest, lease->grace_ends());
  if (session_ == Session::kNone) return std::min(soonest, connect_at_);
  // While a message is on its way, a heartbeat that is due waits for it.
  return std::min({soonest, heard_ + patience_, writing_ ? minute : heartbeat_at_});
}

void Agent::Handle(v1::ToAgent message) {
  heard_ = Clock::now();
  if (message.has_welcome()) Welcome(message.welcome());
  if (message.has_telemetry_ack()) telemetry_.Acknowledge(message.telemetry_ack().sequence());
  if (message.has_commit()) commits_.Answer(message.commit());
  for (const v1::LeaseId& id : message.heartbeat().revoked()) Revoke(id, "the lease is not this worker's any more");
  if (message.has_start()) Start(std::move(*message.mutable_start()));
  if (message.has_stop()) StopLease(message.stop());
  if (message.has_collect_flight()) {
    if (Lease* lease = Find(message.collect_flight().lease())) lease->CollectFlight(message.collect_flight().reason());
  }
  if (message.has_check()) check_asked_ = true;
  if (message.has_drain()) {
    log_.Write("info", message.drain().undo() ? "takes new work again" : "drains: nothing new comes");
  }
}

void Agent::StopLease(const v1::StopAttempt& stop) {
  Lease* const lease = Find(stop.lease());
  if (lease == nullptr || lease->ended()) return;
  const bool limited = std::isfinite(stop.grace_seconds()) && stop.grace_seconds() > 0;
  lease->Stop(stop.save(), limited ? absl::Seconds(stop.grace_seconds()) : absl::InfiniteDuration(), stop.reason());
}

// The newest lease of a job is the only one that counts.
void Agent::Start(v1::StartAttempt start) {
  const v1::LeaseId id = start.lease();
  for (auto& [key, lease] : leases_) {
    if (key.first != id.job()) continue;
    if (key.second >= id.epoch()) {
      return log_.Write("warning", absl::StrCat("is told to start what it has under epoch ", key.second, ": left alone"),
                        {.job = id.job(), .epoch = id.epoch()});
    }
    lease->Revoke(absl::StrCat("epoch ", id.epoch(), " of the job begins"));
  }
  if (stops_ > 0) return Decline(start);
  const LeaseServices services = {options_, slots_, telemetry_,
                                  commits_, log_,   [this] { Put([](Inbox& inbox) { inbox.changed = true; }); }};
  leases_[{id.job(), id.epoch()}] = std::make_unique<Lease>(std::move(start), services);
}

// It came when the agent had been asked to end. As an attempt that was asked to stop has ended, so that it goes elsewhere at
// once.
void Agent::Decline(const v1::StartAttempt& start) {
  log_.Write("info", "is told to start it, and ends: it is left to others",
             {.job = start.lease().job(), .epoch = start.lease().epoch(), .attempt = start.attempt()});
  v1::Telemetry fact;
  *fact.mutable_lease() = start.lease();
  if (start.has_gang()) {
    fact.mutable_member_ended()->set_left(true);
  } else {
    fact.mutable_ended()->set_stopped(true);
    fact.mutable_ended()->set_last_step(start.resume_step());
  }
  telemetry_.Add(std::move(fact));
}

void Agent::Revoke(const v1::LeaseId& id, const std::string& reason) {
  if (Lease* lease = Find(id)) lease->Revoke(reason);
}

Lease* Agent::Find(const v1::LeaseId& id) {
  const auto found = leases_.find({id.job(), id.epoch()});
  return found == leases_.end() ? nullptr : found->second.get();
}

// A lease is listed until the server knows how it ended: one that vanished would look lost.
void Agent::ForgetEnded() {
  for (auto entry = leases_.begin(); entry != leases_.end();) {
    const Lease& lease = *entry->second;
    const bool is_told = lease.ended_fact() > 0 && lease.ended_fact() <= telemetry_.acknowledged();
    const bool known = lease.revoked() || (is_told && !lease.is_member());
    entry = lease.ended() && known ? leases_.erase(entry) : std::next(entry);
  }
}

void Agent::HandleStop(int times) {
  const bool first = stops_ == 0;
  stops_ += times;
  if (first) {
    ends_checks_ = true;
    log_.Write("info", "is asked to end: trainers save and stop");
    for (auto& [key, lease] : leases_) {
      if (!lease->ended()) lease->Stop(/*save=*/true, absl::InfiniteDuration(), "the agent is asked to end");
    }
    kill_at_ = Clock::now() + absl::ToChronoNanoseconds(options_.stop_grace);
  }
  if (stops_ > 1) kill_at_ = Clock::now();
}

bool Agent::AllEnded() const {
  return std::all_of(leases_.begin(), leases_.end(), [](const auto& entry) { return entry.second->ended(); });
}

// An operator's comes after one that runs, which takes nothing back. A disk that was full or slow mends itself, and its worker
// must not wait until somebody has noticed. The pause begins when a check ends, so a slow one is not followed by the next at once.
void Agent::StartDueCheck() {
  if (stops_ > 0) return;
  if (!checking_ && std::exchange(check_asked_, false)) return StartCheck(/*takes_back=*/true);
  const bool is_due = !checking_ && Clock::now() >= check_again_at_;
  if (checking_ || is_due) check_again_at_ = Clock::now() + absl::ToChronoNanoseconds(options_.check_again);
  if (is_due && !health_.Get().fault().empty()) StartCheck(/*takes_back=*/false);
}

void Agent::StartCheck(bool takes_back) {
  checking_ = true;
  log_.Write("info", "checks the machine");
  if (check_thread_.joinable()) check_thread_.join();  // it has ended
  health_.BeginCheck();
  check_thread_ = std::thread([this, takes_back] { Check(takes_back); });
}

// Of what no lease holds; a lease that comes meanwhile waits for its slots.
void Agent::Check(bool takes_back) {
  const std::vector<int64_t> slots = slots_.TakeFree();
  const v1::Worker& worker = options_.worker;
  CheckPlan plan{.trainer = options_.trainer,
                 .runs = options_.runs,
                 .user = options_.trainer_user,
                 .worker = worker.name(),
                 .slots = slots,
                 .gpus = slots_.GpusOf(slots),
                 .limit = options_.check_limit};
  if (plan.gpus.empty()) plan.processors = slots_.ProcessorsOf(slots);
  if (!plan.gpus.empty()) plan.threads = std::max<int64_t>(1, worker.host_cores() / worker.slots());
  std::optional<v1::MachineCheck> check = CheckTheMachine(plan, [this] { return ends_checks_.load(); });
  if (check && takes_back) {
    for (const int64_t slot : PassedSlots(*check)) gpu_watch_.TakeBack(slot);
  }
  health_.EndCheck(slots, takes_back, std::move(check));
  slots_.Give(slots);
  checking_ = false;
}

}  // namespace legoai::agent
