// Sessions: what agents say, and what follows from their coming and going.
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/process/build_version.h"
#include "core/process/mutex.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/fleet/controller.h"
#include "server/fleet/lease_binding.h"
#include "server/jobs/names.h"
#include "server/jobs/request_checks.h"
#include "server/jobs/submission.h"

namespace legoai::server {
namespace {

constexpr absl::Duration kForgetInterval = absl::Minutes(1);  // between two looks for workers to be forgotten

// As the agent numbers slots, so it gives them to ranks: one GPU for each, or none at all.
absl::Status CheckSlotDevices(const v1::Worker& worker) {
  const int64_t devices = worker.slot_devices_size();
  if (devices == 0) return absl::OkStatus();
  if (devices != worker.slots()) {
    return FieldError("worker.slot_devices", absl::StrCat(devices),
                      absl::StrCat("must be one for each of the ", worker.slots(), " slots, or none where they are processors"));
  }
  std::set<std::string> uuids;
  for (const v1::SlotDevice& device : worker.slot_devices()) {
    if (device.uuid().empty() || !uuids.insert(device.uuid()).second) {
      return FieldError("worker.slot_devices.uuid", device.uuid().substr(0, 200),
                        "must be there, and another one for each slot: two ranks cannot share a GPU");
    }
  }
  return absl::OkStatus();
}

// Shares are shares, nothing is less than none, and cards are those of the slots, each once: what is shown and counted of a
// worker rests on it.
bool MakesSense(const v1::WorkerUse& use, const v1::Worker& worker) {
  const auto is_share = [](double share) { return share >= 0 && share <= 1; };
  std::set<int64_t> known;
  for (const v1::SlotDevice& device : worker.slot_devices()) known.insert(device.index());
  bool sensible = use.memory_bytes() >= 0 && (!use.has_processor_share() || is_share(use.processor_share()));
  for (const v1::GpuUse& gpu : use.gpus()) {
    sensible = sensible && known.erase(gpu.index()) == 1 && gpu.memory_bytes() >= 0 &&
               (!gpu.has_utilization() || is_share(gpu.utilization())) && std::isfinite(gpu.temperature_celsius()) &&
               std::isfinite(gpu.power_watts()) && gpu.power_watts() >= 0;
  }
  return sensible;
}

}  // namespace

absl::Status Controller::CheckHello(const v1::Hello& hello) const {
  const v1::Worker& worker = hello.worker();
  if (!ParseWorkerName("worker.name", worker.name()).ok()) {
    return FieldError("worker.name", worker.name().substr(0, 200),
                      "must be workers/ and 1 to 63 letters, digits, dots, hyphens or underscores, the first a letter or digit: "
                      "give --name");
  }
  if (worker.build_version() != launch::BuildVersion()) {
    return FieldError(
        "worker.build_version", worker.build_version(),
        absl::StrCat("this server is of build ", std::string(launch::BuildVersion()), ": install the same build on both"),
        absl::StatusCode::kFailedPrecondition);
  }
  RETURN_IF_ERROR(CheckKnown(worker, "worker"));
  if (worker.instance().empty()) return FieldError("worker.instance", "", "is needed");
  RETURN_IF_ERROR(CheckRuns(worker.runs()));
  if (worker.slots() < 1 || worker.slots() > kMostSlots)
    return FieldError("worker.slots", absl::StrCat(worker.slots()), absl::StrCat("must be 1 to ", kMostSlots));
  RETURN_IF_ERROR(CheckSlotDevices(worker));
  if (worker.device().type().empty()) return FieldError("worker.device", "", "is needed: run `lego hardware --measure` there");
  if (!IsSegment(worker.pool())) {
    return FieldError("worker.pool", worker.pool().substr(0, 200),
                      "must be 1 to 63 letters, digits, dots, hyphens or underscores, the first a letter or digit: give --pool");
  }
  return absl::OkStatus();
}

// Of the worker whose agent says hello: what it says, and what is known of it already.
absl::StatusOr<v1::Worker> Controller::NewFacts(const v1::Hello& hello) const {
  v1::Worker facts = hello.worker();
  facts.clear_use();  // heartbeats tell it
  facts.set_state(v1::READY);
  facts.set_last_seen_time_us(options_.now_us());
  facts.set_first_seen_time_us(facts.last_seen_time_us());
  const MutexLock lock(mutex_);
  for (const auto& [name, entry] : workers_) {
    // Its facts would be taken for those that the other has told, or still has to.
    if (name == facts.name() || entry.facts.instance() != facts.instance()) continue;
    return FieldError("worker.instance", facts.instance(), "is that of another worker", absl::StatusCode::kAlreadyExists);
  }
  const auto known = workers_.find(facts.name());
  if (known == workers_.end()) return facts;
  const WorkerEntry& entry = known->second;
  const bool alive = entry.session != 0 && options_.steady() - entry.heard < options_.lease_ttl;
  if (alive && entry.facts.host() != facts.host()) {
    return FieldError("worker.name", facts.name(),
                      absl::StrCat("is connected from host ", entry.facts.host(), ": give this agent another --name"),
                      absl::StatusCode::kAlreadyExists);
  }
  facts.set_first_seen_time_us(entry.facts.first_seen_time_us());
  if (entry.facts.instance() == facts.instance()) facts.set_dropped_metrics(entry.facts.dropped_metrics());
  if (entry.facts.state() == v1::DRAINING) facts.set_state(v1::DRAINING);
  return facts;
}

absl::StatusOr<uint64_t> Controller::Connect(const v1::Hello& hello, AgentLink* link) {
  RETURN_IF_ERROR(CheckHello(hello));
  MutexLock facts_lock(facts_mutex_);
  const absl::StatusOr<v1::Worker> found = NewFacts(hello);
  if (!found.ok()) return found.status();
  const v1::Worker& facts = *found;
  {
    // It lives and trains, even where that cannot be stored: a full disk ends no attempt.
    const MutexLock lock(mutex_);
    Revoked(facts.name(), facts.instance(), hello.leases());
  }
  int64_t acknowledged = 0;
  const absl::Status kept = store_->Write([&](store::Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(const auto sequence, transaction.TelemetrySequence(facts.instance()));
    acknowledged = sequence;
    return transaction.PutWorker(facts);
  });
  if (!kept.ok()) return kept;
  uint64_t id = 0;
  {
    const MutexLock lock(mutex_);
    id = next_session_++;
    WorkerEntry& entry = workers_[facts.name()];
    if (entry.session != 0) {
      sessions_.at(entry.session).link->Close(absl::AbortedError(absl::StrCat("another agent has connected as ", facts.name())));
    }
    // Another process runs nobody's trainers, whatever it lists, and what the one before had to say will not be heard any more.
    const bool same = entry.facts.instance() == facts.instance();
    entry = {.facts = facts, .session = id, .heard = options_.steady(), .refused = entry.refused};
    Session& session = sessions_[id];
    session = {
        .worker = facts.name(), .instance = facts.instance(), .link = link, .judge_after = same ? hello.last_telemetry() : 0};
    for (const v1::LeaseId& lease : hello.leases()) {
      if (same) session.leases.insert({lease.job(), lease.epoch()});
    }
    v1::ToAgent welcome;
    welcome.mutable_welcome()->set_acknowledged_telemetry(acknowledged);
    welcome.mutable_welcome()->set_heartbeat_interval_seconds(absl::ToDoubleSeconds(options_.heartbeat_interval));
    welcome.mutable_welcome()->set_lease_ttl_seconds(absl::ToDoubleSeconds(options_.lease_ttl));
    link->Send(welcome);
    v1::ToAgent answer;
    for (const v1::LeaseId& lease : Revoked(facts.name(), facts.instance(), hello.leases()))
      *answer.mutable_heartbeat()->add_revoked() = lease;
    if (answer.has_heartbeat()) link->Send(answer);
    if (facts.state() == v1::DRAINING) {
      v1::ToAgent drain;
      drain.mutable_drain();
      link->Send(drain);
    }
  }
  facts_lock.Unlock();
  LogInfo(absl::StrCat(facts.name(), " has connected: ", facts.slots(), " slots of ", facts.device().type(), ", pool ",
                       facts.pool(), ", ", hello.leases_size(), " leases"),
          {.worker = facts.name()});
  JudgeLeases(id, acknowledged);
  notifier_->WorkersChanged();
  Wake();
  return id;
}

// Those that are not this process's any more; the others are renewed.
std::vector<v1::LeaseId> Controller::Revoked(const std::string& worker, const std::string& instance,
                                             const google::protobuf::RepeatedPtrField<v1::LeaseId>& leases) {
  std::vector<v1::LeaseId> revoked;
  for (const v1::LeaseId& lease : leases) {
    const Lease* const known = book_.Find(lease.job(), lease.epoch());
    if (known == nullptr || known->worker != worker || known->instance != instance) {
      revoked.push_back(lease);
    } else {
      book_.Renew(lease.job(), lease.epoch(), worker, options_.steady());
    }
  }
  return revoked;
}

void Controller::Heartbeat(uint64_t session, const v1::Heartbeat& heartbeat) {
  const absl::Duration begun = options_.steady();
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  WorkerEntry& entry = workers_[found->second.worker];
  if (entry.session != session) return;  // replaced by another agent of this name
  entry.heard = options_.steady();
  entry.facts.set_last_seen_time_us(options_.now_us());
  const int64_t dropped = heartbeat.dropped_metrics() - entry.facts.dropped_metrics();
  if (options_.metrics != nullptr && dropped > 0) options_.metrics->TelemetryDropped(dropped);
  entry.facts.set_dropped_metrics(heartbeat.dropped_metrics());
  entry.use.reset();
  if (heartbeat.has_use() && MakesSense(heartbeat.use(), entry.facts)) entry.use = heartbeat.use();
  v1::ToAgent answer;
  answer.mutable_heartbeat()->set_sequence(heartbeat.sequence());
  for (const v1::LeaseId& lease : Revoked(found->second.worker, found->second.instance, heartbeat.leases()))
    *answer.mutable_heartbeat()->add_revoked() = lease;
  found->second.link->Send(answer);
  if (options_.metrics != nullptr) options_.metrics->Heartbeat(absl::ToDoubleSeconds(options_.steady() - begun));
}

bool Controller::Speaks(uint64_t session) const {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return false;
  const auto worker = workers_.find(found->second.worker);
  return worker != workers_.end() && worker->second.session == session;
}

bool Controller::Holds(uint64_t session, const v1::LeaseId& lease) {
  if (!Speaks(session)) return false;
  const Session& agent = sessions_.at(session);
  const Lease* const held = book_.Find(lease.job(), lease.epoch());
  return held != nullptr && held->worker == agent.worker && held->instance == agent.instance;
}

void Controller::LogRefusal(const std::string& reason, const LogFields& about) {
  int64_t count = 0;
  {
    const MutexLock lock(mutex_);
    const auto worker = workers_.find(std::string(about.worker));
    if (worker != workers_.end()) count = ++worker->second.refused;
  }
  if (IsWorthALine(count)) LogWarning(absl::StrCat("refused, the ", count, ". time: ", reason), about);
}

void Controller::Telemetry(uint64_t session, const std::vector<v1::Telemetry>& facts) {
  Sender sender;
  std::string worker;
  bool speaks = false;
  {
    const MutexLock lock(mutex_);
    const auto found = sessions_.find(session);
    if (found == sessions_.end() || found->second.broken || facts.empty()) return;
    sender.instance = found->second.instance, worker = found->second.worker;
    speaks = Speaks(session);
    for (const v1::Telemetry& fact : facts) {
      if (Holds(session, fact.lease())) sender.held.insert({fact.lease().job(), fact.lease().epoch()});
    }
  }
  // What is true of it comes again over the stream that has replaced this one.
  if (!speaks) return LogRefusal(absl::StrCat(facts.size(), " facts over a stream that was replaced"), {.worker = worker});
  Effects taken;
  const absl::Status written = Write([&](store::Transaction& transaction, Effects* effects) {
    const absl::Status status = ApplyTelemetry(transaction, sender, facts, options_.now_us(), effects);
    taken = *effects;
    return status;
  });
  const int64_t last = facts.back().sequence();
  if (!written.ok()) LogError(absl::StrCat("telemetry cannot be kept: ", written.message()), {.worker = worker});
  if (taken.fenced > 0) LogRefusal(absl::StrCat(taken.fenced, " facts of leases that are over"), {.worker = worker});
  if (taken.refused > 0) LogRefusal(absl::StrCat(taken.refused, " facts: ", taken.refusal), {.worker = worker});
  {
    const MutexLock lock(mutex_);
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) return;
    if (!written.ok()) {
      // It will be sent again after the reconnection, and so must be what follows: an acknowledgement is for all before it.
      found->second.broken = true;
      return found->second.link->Close(absl::UnavailableError(absl::StrCat("telemetry cannot be kept: ", written.message())));
    }
    v1::ToAgent ack;
    ack.mutable_telemetry_ack()->set_sequence(last);
    found->second.link->Send(ack);
    if (options_.metrics != nullptr) options_.metrics->TelemetryRecords(static_cast<int64_t>(facts.size()));
  }
  JudgeLeases(session, last);
}

void Controller::CommitRequest(uint64_t session, const v1::CommitRequest& request) {
  Lease asked{.job = request.lease().job(), .epoch = request.lease().epoch()};
  LogFields about;
  bool speaks = false, holds = false;
  absl::StatusOr<std::string> directory;
  {
    const MutexLock lock(mutex_);
    const auto found = sessions_.find(session);
    if (found == sessions_.end() || found->second.broken) return;
    asked.worker = found->second.worker;
    const Lease* const held = book_.Find(asked.job, asked.epoch);
    about = About(asked);
    about.attempt = held == nullptr ? std::nullopt : std::optional(held->attempt);
    speaks = Speaks(session), holds = Holds(session, request.lease());
    directory = CheckpointsOf(workers_[asked.worker].facts.runs(), request.lease());
  }
  if (!speaks) return LogRefusal(absl::StrCat("step ", request.step(), " over a stream that was replaced"), about);
  const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) {
    return CommitCheckpoint(transaction, request, holds && directory.ok(), directory.value_or(""), options_.now_us(), effects);
  });
  if (status.ok()) LogInfo(absl::StrCat("step ", request.step(), " is committed"), about);
  if (!status.ok()) LogRefusal(absl::StrCat("step ", request.step(), " is not committed: ", status.message()), about);
  if (status.ok() && options_.metrics != nullptr) options_.metrics->CheckpointCommitted();
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  if (!status.ok() && !absl::IsFailedPrecondition(status)) {
    // The store cannot say yes or no: asked again after the reconnection.
    found->second.broken = true;
    return found->second.link->Close(absl::UnavailableError(absl::StrCat("a commit cannot be kept: ", status.message())));
  }
  v1::ToAgent answer;
  answer.mutable_commit()->set_id(request.id());
  answer.mutable_commit()->set_commit(status.ok());
  answer.mutable_commit()->set_reason(std::string(status.message()));
  found->second.link->Send(answer);
}

// An agent that has come back lists the leases whose trainers still run, or have ended without that being acknowledged. What it
// has to say of others has been heard once all telemetry that it had is durable; then those are lost: its process was another
// one.
void Controller::JudgeLeases(uint64_t session, int64_t durable) {
  std::vector<Lease> lost;
  {
    const MutexLock lock(mutex_);
    const auto found = sessions_.find(session);
    if (found == sessions_.end() || found->second.judged || durable < found->second.judge_after) return;
    found->second.judged = true;
    for (const Lease& lease : book_.OfWorker(found->second.worker)) {
      const bool told_now = lease.told_session == session;
      if (!told_now && found->second.leases.count({lease.job, lease.epoch}) == 0) lost.push_back(lease);
    }
  }
  for (const Lease& lease : lost) {
    const std::string reason = absl::StrCat("the agent of ", lease.worker, " has come back without its trainers");
    LogWarning(reason, About(lease));
    const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) {
      return LoseAttempt(transaction, lease.job, lease.epoch, reason, options_.now_us(), effects);
    });
    if (!status.ok()) LogError(std::string(status.message()), About(lease));
  }
}

void Controller::Goodbye(uint64_t session) {
  std::vector<Lease> left;
  {
    const MutexLock lock(mutex_);
    const auto found = sessions_.find(session);
    if (found == sessions_.end() || workers_[found->second.worker].session != session) return;
    workers_[found->second.worker].leaves = true;  // a grant that is under way sees it
    left = book_.OfWorker(found->second.worker);
  }
  for (const Lease& lease : left) LeaveLease(lease);
}

void Controller::Disconnected(uint64_t session) {
  std::string worker;
  {
    const MutexLock lock(mutex_);
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) return;
    worker = found->second.worker;
    WorkerEntry& entry = workers_[worker];
    if (entry.session == session) entry.session = 0;
    sessions_.erase(found);
  }
  LogInfo(absl::StrCat(worker, " has disconnected"), {.worker = worker});
  notifier_->WorkersChanged();
  Wake();
}

std::vector<std::string> Controller::LongLost() const {
  const MutexLock lock(mutex_);
  std::vector<std::string> lost;
  for (const auto& [name, entry] : workers_) {
    const bool silent = entry.session == 0 && options_.steady() - entry.heard > options_.forget_workers;
    if (silent && book_.OfWorker(name).empty()) lost.push_back(name);
  }
  return lost;
}

// Machines that are gone for good are not listed for ever.
void Controller::ForgetWorkers() {
  if (options_.steady() < forget_after_) return;
  forget_after_ = options_.steady() + kForgetInterval;
  if (LongLost().empty()) return;
  const MutexLock facts_lock(facts_mutex_);  // none of them connects meanwhile
  const std::vector<std::string> lost = LongLost();
  const absl::Status forgotten = store_->Write([&](store::Transaction& transaction) {
    absl::Status status;
    for (const std::string& name : lost) status.Update(transaction.DeleteWorker(name));
    return status;
  });
  if (!forgotten.ok()) return LogError(absl::StrCat("lost workers are listed on: ", forgotten.message()));
  {
    const MutexLock lock(mutex_);
    for (const std::string& name : lost) workers_.erase(name);
  }
  for (const std::string& name : lost) LogInfo(absl::StrCat(name, " is forgotten: it was lost for long"), {.worker = name});
  notifier_->WorkersChanged();
}

void Controller::SendToWorker(const std::string& worker, const v1::ToAgent& message) {
  const auto found = workers_.find(worker);
  if (found == workers_.end() || found->second.session == 0) return;
  sessions_.at(found->second.session).link->Send(message);
}

v1::Worker Controller::Facts(const WorkerEntry& entry) const {
  v1::Worker worker = entry.facts;
  worker.set_connected(entry.session != 0);
  if (options_.steady() - entry.heard > options_.lease_ttl) worker.set_state(v1::LOST);
  for (const v1::SlotUse& use : book_.Use(worker.name())) *worker.add_used() = use;
  const bool is_heard = entry.session != 0 && worker.state() != v1::LOST;
  if (entry.use && is_heard) *worker.mutable_use() = *entry.use;
  return worker;
}

std::vector<v1::Worker> Controller::Workers() const {
  const MutexLock lock(mutex_);
  std::vector<v1::Worker> workers;
  for (const auto& [name, entry] : workers_) workers.push_back(Facts(entry));
  return workers;
}

absl::StatusOr<v1::Worker> Controller::Drain(const std::string& name, bool undo) {
  const MutexLock facts_lock(facts_mutex_);
  v1::Worker facts;
  {
    const MutexLock lock(mutex_);
    const auto found = workers_.find(name);
    if (found == workers_.end())
      return FieldError("name", name, "is no worker that the server knows: `lego workers` lists them",
                        absl::StatusCode::kNotFound);
    facts = found->second.facts;
  }
  facts.set_state(undo ? v1::READY : v1::DRAINING);
  const absl::Status kept = store_->Write([&](store::Transaction& transaction) { return transaction.PutWorker(facts); });
  if (!kept.ok()) return kept;
  {
    const MutexLock lock(mutex_);
    WorkerEntry& entry = workers_[name];
    entry.facts.set_state(facts.state());
    v1::ToAgent drain;
    drain.mutable_drain()->set_undo(undo);
    SendToWorker(name, drain);
    facts = Facts(entry);
  }
  notifier_->WorkersChanged();
  Wake();
  return facts;
}

}  // namespace legoai::server
