#include "server/fleet/agents.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/process/build_version.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/worker_slots.h"
#include "server/fleet/health.h"
#include "server/fleet/offers.h"
#include "server/jobs/names.h"

namespace legoai::server {
namespace {

constexpr int kMostSlowdowns = 8;  // of a card

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
               std::isfinite(gpu.power_watts()) && gpu.power_watts() >= 0 && gpu.uncorrected_ecc_errors() >= 0 &&
               gpu.slowdowns_size() <= kMostSlowdowns &&
               std::all_of(gpu.slowdowns().begin(), gpu.slowdowns().end(), [](const std::string& one) { return IsSegment(one); });
  }
  return sensible;
}

// What an operator has said of it, and an agent does not know.
void CopyDraining(const v1::Worker& from, v1::Worker* to) {
  to->set_state(from.state());
  to->set_lets_finish(from.lets_finish());
  to->set_drain_grace_seconds(from.drain_grace_seconds());
}

}  // namespace

void Agents::Know(const std::vector<v1::Worker>& workers) {
  const absl::Duration now = options_.steady();
  const MutexLock lock(mutex_);
  for (const v1::Worker& worker : workers)
    workers_[worker.name()] = {.facts = worker, .kind = SlotKind(worker), .gang = GangOf(worker), .heard = now};
}

absl::StatusOr<v1::Worker> Agents::FactsOf(const v1::Hello& hello) const {
  v1::Worker facts = hello.worker();
  facts.clear_use();     // heartbeats tell it
  facts.clear_used();    // leases do
  facts.clear_health();  // it is told anew in each connection
  facts.clear_lets_finish();  // operators say it
  facts.clear_drain_grace_seconds();
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
  const Entry& entry = known->second;
  const bool alive = entry.session != 0 && options_.steady() - entry.heard < options_.lease_ttl;
  if (alive && entry.facts.host() != facts.host()) {
    return FieldError("worker.name", facts.name(),
                      absl::StrCat("is connected from host ", entry.facts.host(), ": give this agent another --name"),
                      absl::StatusCode::kAlreadyExists);
  }
  facts.set_first_seen_time_us(entry.facts.first_seen_time_us());
  if (entry.facts.instance() == facts.instance()) facts.set_dropped_metrics(entry.facts.dropped_metrics());
  if (entry.facts.state() == v1::DRAINING) CopyDraining(entry.facts, &facts);
  return facts;
}

uint64_t Agents::Open(const v1::Worker& facts, const v1::Hello& hello, int64_t acknowledged_telemetry, AgentLink* link) {
  v1::ToAgent welcome;
  welcome.mutable_welcome()->set_acknowledged_telemetry(acknowledged_telemetry);
  welcome.mutable_welcome()->set_heartbeat_interval_seconds(absl::ToDoubleSeconds(options_.heartbeat_interval));
  welcome.mutable_welcome()->set_lease_ttl_seconds(absl::ToDoubleSeconds(options_.lease_ttl));
  const MutexLock lock(mutex_);
  const uint64_t id = next_session_++;
  Entry& entry = workers_[facts.name()];
  if (entry.session != 0) {
    sessions_.at(entry.session).link->Close(absl::AbortedError(absl::StrCat("another agent has connected as ", facts.name())));
  }
  // Another process runs nobody's trainers, whatever it lists, and what the one before had to say will not be heard any more.
  const bool same = entry.facts.instance() == facts.instance();
  entry = {.facts = facts,
           .kind = SlotKind(facts),
           .gang = GangOf(facts),
           .session = id,
           .heard = options_.steady(),
           .refused = entry.refused};
  if (hello.worker().has_health()) entry.health = hello.worker().health();
  Session& session = sessions_[id];
  session = {
      .worker = facts.name(), .instance = facts.instance(), .link = link, .return_after = same ? hello.last_telemetry() : 0};
  for (const v1::LeaseId& lease : hello.leases()) {
    if (same) session.leases.insert({lease.job(), lease.epoch()});
  }
  link->Send(welcome);
  return id;
}

std::optional<std::string> Agents::Close(uint64_t session) {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return std::nullopt;
  std::string worker = std::move(found->second.worker);
  const auto entry = workers_.find(worker);
  if (entry != workers_.end() && entry->second.session == session) entry->second.session = 0;
  sessions_.erase(found);
  return worker;
}

bool Agents::Speaks(uint64_t id, const Session& session) const {
  const auto worker = workers_.find(session.worker);
  return worker != workers_.end() && worker->second.session == id;
}

Agents::Speaker Agents::SpeakerOf(uint64_t id, const Session& session) const {
  const auto worker = workers_.find(session.worker);
  return {.worker = session.worker,
          .instance = session.instance,
          .runs = worker == workers_.end() ? "" : worker->second.facts.runs(),
          .speaks = Speaks(id, session),
          .broken = session.broken};
}

std::optional<Agents::Speaker> Agents::Find(uint64_t session) const {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? std::nullopt : std::optional(SpeakerOf(session, found->second));
}

std::optional<Agents::Speaker> Agents::Heard(uint64_t session, const v1::Heartbeat& heartbeat, int64_t* dropped) {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || !Speaks(session, found->second)) return std::nullopt;
  Entry& entry = workers_.find(found->second.worker)->second;
  entry.heard = options_.steady();
  entry.facts.set_last_seen_time_us(options_.now_us());
  *dropped = heartbeat.dropped_metrics() - entry.facts.dropped_metrics();
  entry.facts.set_dropped_metrics(heartbeat.dropped_metrics());
  entry.use.reset();
  if (heartbeat.has_use() && MakesSense(heartbeat.use(), entry.facts)) entry.use = heartbeat.use();
  return SpeakerOf(session, found->second);
}

absl::StatusOr<v1::WorkerHealth> Agents::TakeHealth(uint64_t session, const v1::WorkerHealth& health) {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || !Speaks(session, found->second))
    return absl::NotFoundError("its session has ended, or another one speaks for it");
  Entry& entry = workers_.find(found->second.worker)->second;
  RETURN_IF_ERROR(CheckHealth(entry.facts, health));
  const v1::WorkerHealth before = entry.health.value_or(v1::WorkerHealth());
  entry.health = health;
  return before;
}

v1::WorkerHealth Agents::LastHealth(const std::string& worker, const std::string& instance) const {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(worker);
  const bool known = found != workers_.end() && found->second.facts.instance() == instance && found->second.health;
  return known ? *found->second.health : v1::WorkerHealth();
}

bool Agents::Send(uint64_t session, const v1::ToAgent& message) {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return false;
  found->second.link->Send(message);
  return true;
}

void Agents::Break(uint64_t session, const absl::Status& why) {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  found->second.broken = true;
  found->second.link->Close(why);
}

void Agents::EndAll(const absl::Status& why) {
  const MutexLock lock(mutex_);
  for (auto& [id, session] : sessions_) {
    session.broken = true;
    session.link->Close(why);
  }
}

std::optional<Agents::Return> Agents::TakeReturn(uint64_t session, int64_t durable_telemetry) {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second.returned || durable_telemetry < found->second.return_after) return std::nullopt;
  found->second.returned = true;
  return Return{found->second.worker, found->second.leases};
}

std::optional<std::string> Agents::Leave(uint64_t session) {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || !Speaks(session, found->second)) return std::nullopt;
  workers_.find(found->second.worker)->second.leaves = true;
  return found->second.worker;
}

void Agents::LeaveWorker(const std::string& worker) {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(worker);
  if (found != workers_.end()) found->second.leaves = true;
}

int64_t Agents::CountRefusal(const std::string& worker) {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(worker);
  return found == workers_.end() ? 0 : ++found->second.refused;
}

Agents::Place Agents::PlaceOfEntry(const Entry& entry) const {
  return {.session = entry.session,
          .instance = entry.facts.instance(),
          .kind = entry.kind,
          .gang = entry.gang,
          .leaves = entry.leaves};
}

std::optional<Agents::Place> Agents::PlaceOf(const std::string& worker) const {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(worker);
  return found == workers_.end() ? std::nullopt : std::optional(PlaceOfEntry(found->second));
}

bool Agents::IsConnected(const std::string& worker, const std::string& instance) const {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(worker);
  return found != workers_.end() && found->second.session != 0 && found->second.facts.instance() == instance;
}

std::optional<Agents::Place> Agents::SendIfStill(const std::string& worker, const Place& place, const v1::ToAgent& message) {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(worker);
  const Place now = found == workers_.end() ? Place() : PlaceOfEntry(found->second);
  if (now != place) return now;
  if (now.session != 0) sessions_.at(now.session).link->Send(message);
  return std::nullopt;
}

v1::Worker Agents::Shown(const Entry& entry) const {
  v1::Worker worker = entry.facts;
  if (entry.health && entry.session != 0) *worker.mutable_health() = *entry.health;
  worker.set_connected(entry.session != 0);
  if (options_.steady() - entry.heard > options_.lease_ttl) worker.set_state(v1::LOST);
  const bool is_heard = entry.session != 0 && worker.state() != v1::LOST;
  if (entry.use && is_heard) *worker.mutable_use() = *entry.use;
  return worker;
}

std::vector<v1::Worker> Agents::List() const {
  const MutexLock lock(mutex_);
  std::vector<v1::Worker> workers;
  for (const auto& [name, entry] : workers_) workers.push_back(Shown(entry));
  return workers;
}

void Agents::Visit(absl::FunctionRef<bool(const v1::Worker& facts, bool connected)> visit) const {
  const MutexLock lock(mutex_);
  for (const auto& [name, entry] : workers_) {
    if (!visit(entry.facts, entry.session != 0)) return;
  }
}

std::optional<v1::Worker> Agents::FindWorker(const std::string& worker) const {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(worker);
  return found == workers_.end() ? std::nullopt : std::optional(Shown(found->second));
}

std::optional<v1::Worker> Agents::StoredFacts(const std::string& worker) const {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(worker);
  return found == workers_.end() ? std::nullopt : std::optional(found->second.facts);
}

void Agents::SetDraining(const v1::Worker& facts) {
  v1::ToAgent message;
  message.mutable_drain()->set_undo(facts.state() != v1::DRAINING);
  const MutexLock lock(mutex_);
  const auto found = workers_.find(facts.name());
  if (found == workers_.end()) return;
  CopyDraining(facts, &found->second.facts);
  if (found->second.session != 0) sessions_.at(found->second.session).link->Send(message);
}

std::vector<v1::Worker> Agents::Draining() const {
  const MutexLock lock(mutex_);
  std::vector<v1::Worker> draining;
  for (const auto& [name, entry] : workers_) {
    if (entry.facts.state() != v1::DRAINING || entry.facts.lets_finish()) continue;
    if (v1::Worker worker = Shown(entry); worker.state() == v1::DRAINING) draining.push_back(std::move(worker));
  }
  return draining;
}

// An agent that missed two heartbeats is not given anything; whether it lives is seen before its leases expire.
std::vector<scheduler::WorkerView> Agents::Views() const {
  const MutexLock lock(mutex_);
  const absl::Duration now = options_.steady();
  std::vector<scheduler::WorkerView> views;
  for (const auto& [name, entry] : workers_) {
    // Trainers of another build have other recipes and checkpoints.
    const bool same_build = entry.facts.build_version() == launch::BuildVersion();
    const bool heard = now - entry.heard < LongestSilence(options_.heartbeat_interval);
    // Not copied: a check of a large machine has hundreds of results, and heartbeats wait for this.
    const v1::WorkerHealth& health = entry.health && entry.session != 0 ? *entry.health : entry.facts.health();
    const int64_t sound = SoundSlots(entry.facts, health);
    views.push_back({.name = name,
                     .pool = entry.facts.pool(),
                     .device_type = entry.facts.device().type(),
                     .slots = sound,
                     .free = FreeSlots(entry.facts, health),
                     .accepts = entry.session != 0 && heard && same_build && !entry.leaves && entry.facts.state() == v1::READY &&
                                sound > 0,
                     .kind = entry.kind,
                     .gang = entry.gang,
                     .place = TopologyOf(entry.facts),
                     .checked = health.checking() ? sound : 0});
  }
  return views;
}

void Agents::ExtendAll(absl::Duration pause) {
  const MutexLock lock(mutex_);
  for (auto& [name, entry] : workers_) entry.heard += pause;
}

std::vector<std::string> Agents::LongLost() const {
  const MutexLock lock(mutex_);
  std::vector<std::string> lost;
  for (const auto& [name, entry] : workers_) {
    if (entry.session == 0 && options_.steady() - entry.heard > options_.forget_workers) lost.push_back(name);
  }
  return lost;
}

void Agents::Forget(const std::string& worker) {
  const MutexLock lock(mutex_);
  workers_.erase(worker);
}

}  // namespace legoai::server
