#include "server/leader/election.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/errors.h"
#include "proto/not_leader.h"
#include "proto/status.h"
#include "server/metrics/log.h"

namespace legoai::server {
namespace {

// A leader looks this often whether it still is one.
constexpr absl::Duration kGuardInterval = absl::Milliseconds(100);
// A follower that was itself stopped for a while must not take the leader for dead: it looks again.
constexpr int kLooksAlike = 3;
constexpr int kRenewalsInLease = 5;
constexpr absl::Duration kBetweenReminders = absl::Minutes(1);
constexpr absl::Duration kUntilAlone = absl::Milliseconds(20);  // between looks whether calls still have a reign
constexpr int kLeasesUntilLetGo = 10;

bool Passes(const absl::Status& trouble) { return absl::IsUnavailable(trouble) || absl::IsAborted(trouble); }

}  // namespace

Election::Election(ElectionOptions options, Notifier* notifier) : options_(std::move(options)), notifier_(notifier) {}

Election::~Election() {
  bell_.End();
  if (thread_.joinable()) thread_.join();
  if (auto reign = this->reign()) reign->End(NotLeaderError("", 0));
  {
    const MutexLock lock(mutex_);
    reign_.reset();
  }
  for (Retired& one : retiring_) one.thread.join();
}

absl::Status Election::Start() {
  if (store::SqlitePath(options_.store_url)) return LeadAlone();
  ASSIGN_OR_RETURN(follower_, store::PostgresFollower::Make(options_.store_url, options_.postgres));
  thread_ = std::thread([this] { Work(); });
  MutexLock lock(mutex_);
  while (reign_ == nullptr && !leader_ && end_.ok() && !away_) {
    if (options_.postgres.ends && options_.postgres.ends()) return absl::CancelledError("the server was told to end");
    known_.WaitFor(lock, std::chrono::milliseconds(100));
  }
  started_ = true;
  return end_;
}

bool Election::has_started() const {
  const MutexLock lock(mutex_);
  return started_;
}

absl::Status Election::LeadAlone() {
  ASSIGN_OR_RETURN(auto store, store::OpenStore(options_.store_url, options_.sqlite, options_.postgres));
  auto reign = std::make_shared<Reign>(std::move(store), std::make_shared<ReignSigns>(), options_.controller, notifier_,
                                       /*renew_every=*/absl::ZeroDuration());
  RETURN_IF_ERROR(BeginReign(*reign));
  const MutexLock lock(mutex_);
  reign_ = std::move(reign);
  return absl::OkStatus();
}

void Election::Work() {
  while (true) {
    bool leads = false;
    std::optional<std::string> why_no_longer;
    {
      // Let go of before it steps down: a reign ends when nobody has it any more.
      const auto reign = this->reign();
      leads = reign != nullptr;
      if (leads) why_no_longer = WhyNoLonger(*reign);
    }
    if (why_no_longer) StepDown(*why_no_longer);
    if (!leads) Follow();
    const absl::Duration pause = this->reign() != nullptr ? kGuardInterval : options_.lease / kRenewalsInLease;
    if (!bell_.SleepUntil(Clock::now() + absl::ToChronoNanoseconds(pause))) return;
  }
}

std::optional<std::string> Election::WhyNoLonger(const Reign& reign) const {
  const absl::Duration silence = reign.Silence();
  if (silence == absl::InfiniteDuration()) return "another server leads";
  if (silence <= options_.lease) return std::nullopt;
  return absl::StrCat("it could not write for ", absl::FormatDuration(absl::Trunc(silence, absl::Milliseconds(100))));
}

void Election::NotSeen(const absl::Status& why) {
  Tell(why);
  {
    const MutexLock lock(mutex_);
    away_ = true;
  }
  known_.NotifyAll();
}

// Whether another server that lives leads under this one's address: whoever is sent to the leader would come here. A row that
// stands still may be that of this server before it was started again.
bool Election::IsNamesake(const Sight& sight) const {
  const bool lives = sight.holder_pid != 0 && sight.leader && last_ && sight.leader->term == last_->term &&
                     sight.leader->sequence > last_->sequence;
  return lives && !options_.address.empty() && sight.leader->address == options_.address && sight.leader->term != led_term_;
}

void Election::Follow() {
  const absl::StatusOr<Sight> sight = follower_->Look();
  if (!sight.ok()) return Passes(sight.status()) ? NotSeen(sight.status()) : GiveUp(sight.status());
  told_.clear();
  if (IsNamesake(*sight)) {
    return GiveUp(FieldError("--advertise_address", options_.address,
                             absl::StrCat("is also that of the server that leads, ", sight->leader->holder,
                                          ": give each server an address of its own")));
  }
  See(*sight, nullptr);
  const bool gone = sight->holder_pid == 0;
  const bool stands = sight->leader && looks_alike_ >= kLooksAlike &&
                      Clock::now() - changed_ >= absl::ToChronoNanoseconds(options_.lease);
  if (!gone && !stands) return;
  if (stands && !gone) {
    LogWarning(absl::StrCat("the leader, ", sight->leader->holder, ", has written nothing for ",
                            absl::FormatDuration(options_.lease), ": its connection is ended"));
    if (absl::Status ended = follower_->EndLeader(sight->holder_pid); !ended.ok()) return Tell(ended);
  }
  Lead();
}

void Election::See(const Sight& sight, std::shared_ptr<Reign> reign) {
  const bool changed = sight.leader.has_value() != last_.has_value() ||
                       (last_ && (sight.leader->term != last_->term || sight.leader->sequence != last_->sequence));
  if (changed) {
    last_ = sight.leader;
    changed_ = Clock::now();
    looks_alike_ = 0;
  } else {
    ++looks_alike_;
  }
  {
    const MutexLock lock(mutex_);
    seen_ = Clock::now();
    reign_ = std::move(reign);
    leader_.reset();
    if (sight.leader && sight.holder_pid != 0) {
      leader_.emplace();
      leader_->set_address(sight.leader->address);
      leader_->set_holder(sight.leader->holder);
      leader_->set_term(sight.leader->term);
      leader_->set_since_us(sight.leader->since_us);
    }
  }
  known_.NotifyAll();
  // Watches of this server's clients have nobody else who wakes them.
  if (changed) notifier_->AllChanged();
}

void Election::Lead() {
  const auto signs = std::make_shared<ReignSigns>();
  store::PostgresOptions options = options_.postgres;
  options.other_server = absl::ZeroDuration();
  options.address = options_.address;
  options.on_leads = [this](int64_t term) { led_term_ = term; };
  options.on_superseded = [signs](const absl::Status&) { signs->superseded = true; };
  options.ends = [signs, ends = options_.postgres.ends] { return signs->over || (ends && ends()); };
  auto store = store::OpenPostgresStore(options_.store_url, options);
  if (!store.ok()) return Passes(store.status()) ? Tell(store.status()) : GiveUp(store.status());
  auto reign =
      std::make_shared<Reign>(*std::move(store), signs, options_.controller, notifier_, options_.lease / kRenewalsInLease);
  absl::Status begun = BeginReign(*reign);
  const absl::StatusOr<Sight> sight = follower_->Look();
  if (begun.ok()) begun = sight.status();
  if (!begun.ok()) {
    Retire(std::move(reign));
    return Passes(begun) || has_started() ? Tell(begun) : GiveUp(begun);
  }
  See(*sight, std::move(reign));
  if (options_.controller.metrics != nullptr) options_.controller.metrics->BeganToLead();
  LogInfo(absl::StrCat("leads, term ", led_term_), {}, {{"address", options_.address}});
}

absl::Status Election::BeginReign(Reign& reign) {
  const absl::Status prepared = options_.before_reign ? options_.before_reign(reign.store()) : absl::OkStatus();
  if (!prepared.ok() && (Passes(prepared) || !has_started())) return prepared;
  if (!prepared.ok()) LogError(std::string(prepared.message()));
  return reign.Begin();
}

void Election::StepDown(const std::string& why) {
  std::shared_ptr<Reign> reign;
  {
    const MutexLock lock(mutex_);
    reign = std::move(reign_);
    reign_ = nullptr;
    leader_.reset();
  }
  LogWarning(absl::StrCat("leads no more: ", why));
  last_.reset();
  changed_ = Clock::now();
  looks_alike_ = 0;
  Retire(std::move(reign));
}

// What is under way may wait for a database that does not answer: neither here, nor in the call that lets go of the reign last,
// unless that is not over for so long that no lease and no agent counts on it any more.
void Election::Retire(std::shared_ptr<Reign> reign) {
  reign->End(NotLeaderError("", 0));
  for (auto one = retiring_.begin(); one != retiring_.end();) {
    if (!*one->is_gone) {
      ++one;
      continue;
    }
    one->thread.join();
    one = retiring_.erase(one);
  }
  auto is_gone = std::make_shared<std::atomic<bool>>(false);
  const auto until = Clock::now() + absl::ToChronoNanoseconds(kLeasesUntilLetGo * options_.lease);
  std::thread thread([reign = std::move(reign), is_gone, until]() mutable {
    while (reign.use_count() > 1 && Clock::now() < until) absl::SleepFor(kUntilAlone);  // nobody else gets it any more
    if (reign.use_count() > 1) LogWarning("a call of when this server led goes on: what it led with ends when that call does");
    reign.reset();
    *is_gone = true;
  });
  retiring_.push_back({std::move(thread), std::move(is_gone)});
}

void Election::GiveUp(const absl::Status& why) {
  bool told = false;  // as what Start() returns
  {
    const MutexLock lock(mutex_);
    if (!end_.ok()) return;
    end_ = why;
    told = !started_;
  }
  known_.NotifyAll();
  if (!told && options_.on_end) options_.on_end(why);
}

// At once where it is news, and now and then while it lasts.
void Election::Tell(const absl::Status& trouble) {
  const std::string text(trouble.message());
  const auto now = Clock::now();
  if (text == told_ && now < told_at_ + absl::ToChronoNanoseconds(kBetweenReminders)) return;
  told_ = text;
  told_at_ = now;
  LogWarning(absl::StrCat("waits for the database or its leader, and looks again every ",
                          absl::FormatDuration(options_.lease / kRenewalsInLease), ": ", text));
}

std::shared_ptr<Reign> Election::reign() const {
  const MutexLock lock(mutex_);
  return reign_;
}

absl::Status Election::NotLeader() const {
  const MutexLock lock(mutex_);
  return leader_ ? NotLeaderError(leader_->address(), leader_->term()) : NotLeaderError("", 0);
}

absl::StatusOr<std::shared_ptr<Controller>> Election::LeadingController() const {
  auto leading = reign();
  if (leading == nullptr) return NotLeader();
  Controller* const controller = &leading->controller();
  return std::shared_ptr<Controller>(std::move(leading), controller);
}

absl::StatusOr<std::string> Election::Ready() const {
  if (follower_ == nullptr) return std::string("leads");
  const MutexLock lock(mutex_);
  if (reign_ != nullptr) return absl::StrCat("leads, term ", leader_ ? leader_->term() : 0);
  if (Clock::now() - seen_ > absl::ToChronoNanoseconds(options_.lease))
    return absl::UnavailableError(absl::StrCat("the database was not seen for ", absl::FormatDuration(options_.lease)));
  if (!leader_) return NotLeaderError("", 0);
  return absl::StrCat("follows ", leader_->address(), ", term ", leader_->term());
}

Leadership Election::Leading() const {
  const MutexLock lock(mutex_);
  return {.leads = reign_ != nullptr, .address = options_.address, .leader = leader_};
}

std::vector<v1::Worker> Election::Workers() const {
  const auto leading = reign();
  return leading == nullptr ? std::vector<v1::Worker>() : leading->controller().Workers();
}

void Election::VisitWorkers(absl::FunctionRef<bool(const v1::Worker& facts, bool connected)> visit) const {
  if (const auto leading = reign()) leading->controller().VisitWorkers(visit);
}

absl::StatusOr<v1::Worker> Election::Drain(const v1::DrainWorkerRequest& request) {
  const auto leading = reign();
  if (leading == nullptr) return NotLeader();
  return leading->controller().Drain(request);
}

absl::StatusOr<v1::Worker> Election::CheckWorker(const v1::CheckWorkerRequest& request) {
  const auto leading = reign();
  if (leading == nullptr) return NotLeader();
  return leading->controller().CheckWorker(request);
}

void Election::JobChanged(const std::string& job) {
  if (const auto leading = reign()) leading->controller().JobChanged(job);
}

bool Election::DescribeWait(v1::Job* job) const {
  const auto leading = reign();
  return leading != nullptr && leading->controller().DescribeWait(job);
}

absl::StatusOr<v1::PlanResult> Election::Plan(const v1::PlanRequest& request,
                                              const std::function<void(const v1::PlanningProgress&)>& progress,
                                              const std::function<bool()>& cancel) {
  const auto leading = reign();
  if (leading == nullptr) return NotLeader();
  const auto over = [&] { return leading->over() || (cancel && cancel()); };
  auto result = leading->controller().Plan(request, progress, over);
  if (absl::IsCancelled(result.status()) && leading->over()) return NotLeader();
  return result;
}

absl::StatusOr<v1::Estimate> Election::Simulate(const v1::SimRequest& request, const std::function<bool()>& cancel) {
  const auto leading = reign();
  if (leading == nullptr) return NotLeader();
  const auto over = [&] { return leading->over() || (cancel && cancel()); };
  auto estimate = leading->controller().Simulate(request, over);
  if (absl::IsCancelled(estimate.status()) && leading->over()) return NotLeader();
  return estimate;
}

absl::Status Election::Write(const std::function<absl::Status(store::Transaction&)>& work) {
  const auto leading = reign();
  return leading == nullptr ? NotLeader() : leading->store().Write(work);
}

absl::Status Election::Read(const std::function<absl::Status(store::ReadTransaction&)>& work) {
  if (follower_ != nullptr) return follower_->store().Read(work);
  const auto leading = reign();
  return leading == nullptr ? NotLeader() : leading->store().Read(work);
}

std::string Election::Backend() const { return follower_ != nullptr ? "postgresql" : "sqlite"; }

int64_t Election::SchemaVersion() const {
  if (follower_ != nullptr) return follower_->store().SchemaVersion();
  const auto leading = reign();
  return leading == nullptr ? 0 : leading->store().SchemaVersion();
}

}  // namespace legoai::server
