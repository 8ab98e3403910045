// What agents say, and what follows from their coming and going.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/process/build_version.h"
#include "core/process/mutex.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/not_leader.h"
#include "proto/status.h"
#include "server/fleet/attempt_facts.h"
#include "server/fleet/controller.h"
#include "server/fleet/health.h"
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

absl::Status CheckGangPorts(const v1::Worker& worker) {
  const int64_t first = worker.first_gang_port(), count = worker.gang_ports();
  if (worker.gang_address().empty()) return absl::OkStatus();
  if (first >= 1 && count >= 1 && count <= 65535 && first <= 65536 - count) return absl::OkStatus();
  return FieldError("worker.first_gang_port", absl::StrCat(first, ", ", count, " ports"),
                    "must be at least one port from 1 to 65535: give --gang_ports");
}

// As long as an agent's own can be: all of it is kept, and shown in every list.
absl::Status CheckTexts(const v1::Worker& worker) {
  constexpr size_t kLongestText = 255, kLongestLabel = 64 * 1024;  // one of them names folders
  constexpr int kMostLabels = 256;
  if (worker.gang_address().size() > kLongestText) {
    return FieldError("worker.gang_address", worker.gang_address().substr(0, 200),
                      "must be at most 255 bytes: give --gang_address");
  }
  if (worker.labels_size() > kMostLabels)
    return FieldError("worker.labels", absl::StrCat(worker.labels_size()), absl::StrCat("must be at most ", kMostLabels));
  for (const auto& [name, value] : worker.labels()) {
    if (name.size() > kLongestText || value.size() > kLongestLabel)
      return FieldError("worker.labels", name.substr(0, 200), "must have at most 255 bytes, and its value 65536: give --labels");
  }
  return absl::OkStatus();
}

absl::Status CheckHello(const v1::Hello& hello) {
  const v1::Worker& worker = hello.worker();
  if (!ParseWorkerName("worker.name", worker.name()).ok()) {
    return FieldError("worker.name", worker.name().substr(0, 200),
                      "must be workers/ and 1 to 63 letters, digits, dots, hyphens or underscores, the first a letter or digit: "
                      "give --name");
  }
  // One of another build goes on with what it trains, while builds are replaced one after the other, and gets nothing new.
  const bool understood = hello.protocol() >= std::max<int64_t>(1, kAgentProtocol - 1) &&
                          hello.protocol() <= kAgentProtocol;
  if (worker.build_version() != launch::BuildVersion() && !understood) {
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
  RETURN_IF_ERROR(CheckGangPorts(worker));
  RETURN_IF_ERROR(CheckTexts(worker));
  if (absl::Status status = CheckHealth(worker, worker.health()); !status.ok()) return Under("worker", status);
  if (worker.device().type().empty()) return FieldError("worker.device", "", "is needed: run `lego hardware --measure` there");
  if (!IsSegment(worker.pool())) {
    return FieldError("worker.pool", worker.pool().substr(0, 200),
                      "must be 1 to 63 letters, digits, dots, hyphens or underscores, the first a letter or digit: give --pool");
  }
  return absl::OkStatus();
}

v1::ToAgent RevokedAnswer(const std::vector<v1::LeaseId>& revoked) {
  v1::ToAgent answer;
  for (const v1::LeaseId& lease : revoked) *answer.mutable_heartbeat()->add_revoked() = lease;
  return answer;
}

}  // namespace

absl::StatusOr<uint64_t> Controller::Connect(const v1::Hello& hello, AgentLink* link) {
  RETURN_IF_ERROR(CheckHello(hello));
  MutexLock facts_lock(facts_mutex_);
  ASSIGN_OR_RETURN(const auto facts, agents_.FactsOf(hello));
  // It lives and trains, even where that cannot be stored: a full disk ends no attempt.
  book_.Renew(hello.leases(), facts.name(), facts.instance(), options_.steady());
  int64_t acknowledged = 0;
  const absl::Status kept = store_->Write([&](store::Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(const auto sequence, transaction.TelemetrySequence(facts.instance()));
    acknowledged = sequence;
    return transaction.PutWorker(facts);
  });
  if (!kept.ok()) return kept;
  const v1::WorkerHealth known_health = agents_.LastHealth(facts.name(), facts.instance());
  const uint64_t id = agents_.Open(facts, hello, acknowledged, link);
  const v1::ToAgent answer = RevokedAnswer(book_.Renew(hello.leases(), facts.name(), facts.instance(), options_.steady()));
  if (answer.has_heartbeat()) agents_.Send(id, answer);
  if (facts.state() == v1::DRAINING) {
    v1::ToAgent drain;
    drain.mutable_drain();
    agents_.Send(id, drain);
  }
  facts_lock.Unlock();
  LogInfo(absl::StrCat(facts.name(), " has connected: ", facts.slots(), " slots of ", facts.device().type(), ", pool ",
                       facts.pool(), ", ", hello.leases_size(), " leases"),
          {.worker = facts.name()});
  if (facts.build_version() != launch::BuildVersion()) {
    LogWarning(absl::StrCat(facts.name(), " is of build ", facts.build_version(), ", this server of ",
                            std::string(launch::BuildVersion()), ": it goes on with what it has and gets nothing new"),
               {.worker = facts.name()});
  }
  TellFaults(facts.name(), NewFaults(known_health, hello.worker().health()));
  JudgeLeases(id, acknowledged);
  notifier_->WorkersChanged();
  bell_.Ring();
  return id;
}

void Controller::Heartbeat(uint64_t session, const v1::Heartbeat& heartbeat) {
  const absl::Duration begun = options_.steady();
  int64_t dropped = 0;
  const auto agent = agents_.Heard(session, heartbeat, &dropped);
  if (!agent) return;
  if (options_.metrics != nullptr && dropped > 0) options_.metrics->TelemetryDropped(dropped);
  if (heartbeat.has_health()) TakeHealth(session, agent->worker, heartbeat.health());
  v1::ToAgent answer = RevokedAnswer(book_.Renew(heartbeat.leases(), agent->worker, agent->instance, options_.steady()));
  answer.mutable_heartbeat()->set_sequence(heartbeat.sequence());
  agents_.Send(session, answer);
  if (options_.metrics != nullptr) options_.metrics->Heartbeat(absl::ToDoubleSeconds(options_.steady() - begun));
}

void Controller::TakeHealth(uint64_t session, const std::string& worker, const v1::WorkerHealth& health) {
  const auto before = agents_.TakeHealth(session, health);
  if (!before.ok())
    return LogRefusal(absl::StrCat("a report of its machine's health: ", before.status().message()), {.worker = worker});
  TellFaults(worker, NewFaults(*before, health));
  notifier_->WorkersChanged();
  bell_.Ring();
}

void Controller::TellFaults(const std::string& worker, const std::vector<v1::SlotFault>& faults) {
  for (const v1::SlotFault& fault : faults) {
    LogWarning(absl::StrCat(fault.slot() < 0 ? worker : absl::StrCat("slot ", fault.slot(), " of ", worker),
                            " gets nothing new: ", fault.reason()),
               {.worker = worker});
    if (options_.metrics != nullptr) options_.metrics->SlotFault(EnumText(fault.cause()));
  }
}

// Sent to whom it is connected with now; what comes of it the agent tells. Whoever waits for that must not take this check, which
// may have begun when it is answered, for one that was under way before: the answer is the worker as it was.
absl::StatusOr<v1::Worker> Controller::CheckWorker(const v1::CheckWorkerRequest& request) {
  const auto place = agents_.PlaceOf(request.name());
  if (!place)
    return FieldError("name", request.name(), "is no worker that the server knows: `lego workers` lists them",
                      absl::StatusCode::kNotFound);
  const auto known = agents_.FindWorker(request.name());
  if (place->session != 0 && known && !known->has_health()) {
    return FieldError("name", request.name(), "has an agent of an older build, which checks no machine: upgrade it",
                      absl::StatusCode::kFailedPrecondition);
  }
  v1::ToAgent message;
  message.mutable_check();
  if (place->session == 0 || !agents_.Send(place->session, message)) {
    return FieldError("name", request.name(),
                      "is not connected, and cannot check its machine: start its agent, which checks it then",
                      absl::StatusCode::kFailedPrecondition);
  }
  return WithLeases(known.value_or(v1::Worker()), book_.All());
}

void Controller::LogRefusal(const std::string& reason, const LogFields& about) {
  const int64_t count = agents_.CountRefusal(std::string(about.worker));
  if (ShouldLogRefusal(count)) LogWarning(absl::StrCat("refused, the ", count, ". time: ", reason), about);
}

// Whether some worker of the lease is gone, or silent. It asks for all of them, so only the end of an attempt is worth it.
bool Controller::IsTorn(const v1::LeaseId& lease, const std::string& speaker) const {
  const std::vector<Lease> parts = book_.Find(lease.job(), lease.epoch());
  const absl::Duration now = options_.steady();
  return std::any_of(parts.begin(), parts.end(), [&](const Lease& one) {
    if (one.ended) return false;  // it may well have left
    // The connection of a host that is cut off stays open for long. Whoever speaks is there, however late its heartbeat is.
    const bool silent = one.worker != speaker && now - one.renewed > LongestSilence(options_.heartbeat_interval);
    return silent || !agents_.IsConnected(one.worker, one.instance);
  });
}

void Controller::Telemetry(uint64_t session, const std::vector<v1::Telemetry>& facts) {
  const auto agent = agents_.Find(session);
  if (!agent || agent->broken || facts.empty()) return;
  const std::string& worker = agent->worker;
  // What is true of it comes again over the stream that has replaced this one.
  if (!agent->speaks) return LogRefusal(absl::StrCat(facts.size(), " facts over a stream that was replaced"), {.worker = worker});
  Sender sender;
  sender.instance = agent->instance;
  sender.worker = worker;
  for (const v1::Telemetry& fact : facts) {
    const std::pair lease(fact.lease().job(), fact.lease().epoch());
    auto held = sender.held.find(lease);
    if (held == sender.held.end()) {
      const auto part = book_.FindHeld(fact.lease(), worker, agent->instance);
      if (!part) continue;
      held = sender.held.emplace(lease, HeldLease{.first = part->IsFirst(), .alone = part->workers == 1}).first;
    }
    if (!held->second.alone && MayEndForLostWorker(fact)) held->second.torn = IsTorn(fact.lease(), worker);
  }
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
  // It will be sent again after the reconnection, and so must be what follows: an acknowledgement is for all before it.
  if (!written.ok())
    return agents_.Break(session, absl::UnavailableError(absl::StrCat("telemetry cannot be kept: ", written.message())));
  for (const v1::LeaseId& lease : taken.ended_parts) book_.EndPart(lease.job(), lease.epoch(), worker);
  v1::ToAgent ack;
  ack.mutable_telemetry_ack()->set_sequence(last);
  if (!agents_.Send(session, ack)) return;
  if (options_.metrics != nullptr) options_.metrics->TelemetryRecords(static_cast<int64_t>(facts.size()));
  JudgeLeases(session, last);
}

void Controller::CommitRequest(uint64_t session, const v1::CommitRequest& request) {
  const auto agent = agents_.Find(session);
  if (!agent || agent->broken) return;
  const Lease asked{.job = request.lease().job(), .epoch = request.lease().epoch(), .worker = agent->worker};
  const auto lease = book_.FindHeld(request.lease(), agent->worker, agent->instance);
  LogFields about = About(asked);
  about.attempt = lease ? std::optional(lease->attempt) : std::nullopt;
  if (!agent->speaks) return LogRefusal(absl::StrCat("step ", request.step(), " over a stream that was replaced"), about);
  const bool holds = lease && lease->IsFirst();
  const auto directory = CheckpointsOf(agent->runs, request.lease());
  const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) {
    return CommitCheckpoint(transaction, request, holds && directory.ok(), directory.value_or(""), options_.now_us(), effects);
  });
  if (status.ok()) LogInfo(absl::StrCat("step ", request.step(), " is committed"), about);
  if (!status.ok()) LogRefusal(absl::StrCat("step ", request.step(), " is not committed: ", status.message()), about);
  if (status.ok() && options_.metrics != nullptr) options_.metrics->CheckpointCommitted();
  // Where the store cannot say yes or no, it is asked again after the reconnection.
  if (!status.ok() && !absl::IsFailedPrecondition(status))
    return agents_.Break(session, absl::UnavailableError(absl::StrCat("a commit cannot be kept: ", status.message())));
  v1::ToAgent answer;
  answer.mutable_commit()->set_id(request.id());
  answer.mutable_commit()->set_commit(status.ok());
  answer.mutable_commit()->set_reason(std::string(status.message()));
  agents_.Send(session, answer);
}

// An agent that has come back lists the leases whose trainers still run, or have ended without that being acknowledged. What it
// has to say of others has been heard once all telemetry that it had is durable; then those are lost: its process was another
// one.
void Controller::JudgeLeases(uint64_t session, int64_t durable) {
  const auto back = agents_.TakeReturn(session, durable);
  if (!back) return;
  for (const Lease& lease : book_.OfWorker(back->worker)) {
    if (lease.ended || lease.told_session == session || back->leases.count({lease.job, lease.epoch}) > 0) continue;
    const std::string reason = absl::StrCat("the agent of ", lease.worker, " has come back without its trainers");
    LogWarning(reason, About(lease));
    LoseLease(lease, reason);
  }
}

void Controller::Goodbye(uint64_t session) {
  const auto worker = agents_.Leave(session);  // before its leases are listed: a grant that is under way sees it
  if (!worker) return;
  for (const Lease& lease : book_.OfWorker(*worker)) {
    // What has ended ends as the first worker says, whose word may come later than this.
    if (!lease.ended) LoseLease(lease, absl::StrCat(lease.worker, " has left"));
  }
}

void Controller::Disconnected(uint64_t session) {
  const auto worker = agents_.Close(session);
  if (!worker) return;
  LogInfo(absl::StrCat(*worker, " has disconnected"), {.worker = *worker});
  notifier_->WorkersChanged();
  bell_.Ring();
}

std::vector<std::string> Controller::LongLost() const {
  std::vector<std::string> lost = agents_.LongLost();
  std::erase_if(lost, [this](const std::string& name) { return !book_.OfWorker(name).empty(); });
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
  for (const std::string& name : lost) agents_.Forget(name);
  for (const std::string& name : lost) LogInfo(absl::StrCat(name, " is forgotten: it was lost for long"), {.worker = name});
  notifier_->WorkersChanged();
}

v1::Worker Controller::WithLeases(v1::Worker worker, const std::vector<Lease>& leases) const {
  for (const Lease& lease : leases) {
    if (lease.worker != worker.name()) continue;
    v1::SlotUse& use = *worker.add_used();
    use.set_job(lease.job);
    use.set_epoch(lease.epoch);
    use.set_slots(lease.slots);
  }
  return worker;
}

std::vector<v1::Worker> Controller::Workers() const {
  std::map<std::string, std::vector<Lease>> leases;  // by worker; before the agents: as WorkerViews
  for (const Lease& lease : book_.All()) leases[lease.worker].push_back(lease);
  std::vector<v1::Worker> workers = agents_.List();
  for (v1::Worker& worker : workers) worker = WithLeases(std::move(worker), leases[worker.name()]);
  return workers;
}

}  // namespace legoai::server
