#include "server/fleet/testing/fleet_fixture.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/process/build_version.h"
#include "core/recipe/recipe.h"
#include "proto/rpc.h"
#include "proto/status.h"
#include "server/jobs/stop.h"
#include "server/jobs/transition.h"
#include "server/store/open_store.h"
#include "server/store/testing/test_store.h"

namespace legoai::server {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

// Every recipe takes a second on an h100-sxm-80, divided by its ranks, and on others longer as their memory is slower; more than
// `largest` ranks do not fit.
class ClosedFormEstimator : public planner::Estimator {
 public:
  ClosedFormEstimator(const std::atomic<bool>* hold, const std::atomic<int64_t>* hold_steps, const std::atomic<int64_t>* largest)
      : hold_(hold), hold_steps_(hold_steps), largest_(largest) {}
  int64_t Slots() const override { return 2; }
  absl::Status Start(const v1::SimRequest& request) override {
    started_.push_back(request);
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration) override {
    const bool holds = !started_.empty() && started_.front().recipe().training().steps() == hold_steps_->load();
    if (hold_->load() || holds || started_.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return std::optional<v1::SimResponse>();
    }
    const v1::SimRequest request = started_.front();
    started_.pop_front();
    v1::SimResponse response;
    response.set_id(request.id());
    v1::Estimate* const estimate = response.mutable_estimate();
    *estimate->mutable_recipe() = request.recipe();
    const int64_t world = request.cluster().devices_per_node() * request.cluster().nodes();
    estimate->set_world_size(world);
    estimate->set_fits(world <= largest_->load());
    const double slower = sim::FindDevice("h100-sxm-80")->memory_bandwidth_bytes_per_second() /
                          request.cluster().device().memory_bandwidth_bytes_per_second();
    estimate->set_step_time_seconds(slower / static_cast<double>(world));
    v1::StageEstimate* const stage = estimate->add_stages();
    stage->set_capacity_bytes(100);
    stage->set_peak_allocated_bytes(estimate->fits() ? 60 : 160);
    return std::optional<v1::SimResponse>(response);
  }
  void StopAll() override { started_.clear(); }

 private:
  const std::atomic<bool>* const hold_;
  const std::atomic<int64_t>*const hold_steps_, *const largest_;
  std::deque<v1::SimRequest> started_;
};

int64_t NowUs() { return absl::ToUnixMicros(absl::Now()); }

}  // namespace

void RecordingLink::Send(const v1::ToAgent& message) {
  {
    const MutexLock lock(mutex_);
    messages_.push_back(message);
  }
  changed_.NotifyAll();
}

void RecordingLink::Close(const absl::Status& status) {
  const MutexLock lock(mutex_);
  if (!closed_) closed_ = status;
}

std::optional<absl::Status> RecordingLink::closed() const {
  const MutexLock lock(mutex_);
  return closed_;
}

v1::ToAgent RecordingLink::Next(const std::function<bool(const v1::ToAgent&)>& wanted) {
  MutexLock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    while (!messages_.empty()) {
      const v1::ToAgent message = messages_.front();
      messages_.pop_front();
      if (wanted(message)) return message;
    }
    if (!changed_.WaitUntil(lock, deadline)) {
      ADD_FAILURE() << "the server did not send what was expected";
      return v1::ToAgent();
    }
  }
}

bool RecordingLink::Has(const std::function<bool(const v1::ToAgent&)>& wanted) const {
  const MutexLock lock(mutex_);
  return std::any_of(messages_.begin(), messages_.end(), wanted);
}

v1::StartAttempt RecordingLink::NextStart() {
  return Next([](const v1::ToAgent& message) { return message.has_start(); }).start();
}

TestAgent::TestAgent(const std::string& name, int64_t slots) {
  v1::Worker& worker = *hello.mutable_worker();
  worker.set_name("workers/" + name);
  worker.set_host("localhost");
  worker.set_pool("default");
  *worker.mutable_device() = *sim::FindDevice("h100-sxm-80");
  worker.set_slots(slots);
  worker.set_build_version(std::string(launch::BuildVersion()));
  worker.set_instance(name + "-1");
  worker.set_runs("/runs");
}

void FleetTest::SetUp() {
  directory_ = absl::StrCat(testing::TempDir(), "/fleet-XXXXXX");
  ASSERT_NE(mkdtemp(directory_.data()), nullptr);
  auto store = store::OpenStore(store::TestStoreUrl(directory_));
  ASSERT_TRUE(store.ok()) << store.status();
  store_ = std::make_unique<CountingStore>(*std::move(store));
  StartController();
}

void FleetTest::TearDown() {
  controller_.reset();
  store_.reset();
  std::filesystem::remove_all(directory_);
}

void FleetTest::StartController() {
  ControllerOptions options;
  options.lease_ttl = absl::Seconds(1000);  // of a clock that tests set forward
  options.heartbeat_interval = absl::Seconds(300);
  options.replan_grace = absl::ZeroDuration();
  options.preempt = preempt_;
  options.preempt_grace = preempt_grace_;
  options.make_estimator = [this] { return std::make_unique<ClosedFormEstimator>(&hold_plans_, &hold_steps_, &largest_world_); };
  options.simulators = 2;
  options.planned_by = planned_by_;
  options.reuse_plans = reuse_plans_;
  options.now_us = [this] { return NowUs() + 1'000'000 * utc_skew_seconds_; };
  options.steady = [this] {
    return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()) + absl::Seconds(skew_seconds_.load());
  };
  controller_ = std::make_unique<Controller>(options, store_.get(), &notifier_);
  const absl::Status begun = controller_->Begin();
  ASSERT_TRUE(begun.ok()) << begun;
}

v1::Job FleetTest::MakeJob(int64_t slots, int64_t min_slots, int64_t max_restarts) {
  v1::Job job;
  job.set_name(absl::StrCat("projects/default/jobs/01J000", absl::Dec(++submitted_, absl::kZeroPad20)));
  v1::JobSpec& spec = *job.mutable_spec();
  *spec.mutable_model() = *model::ResolveModel("gpt2");
  *spec.mutable_recipe() = parallel::DefaultRecipe();
  spec.mutable_recipe()->mutable_model()->set_name("gpt2");
  spec.mutable_recipe()->mutable_training()->set_global_batch_size(64);
  spec.mutable_recipe()->mutable_training()->set_seq_len(128);
  spec.mutable_recipe()->mutable_training()->set_steps(10);
  spec.mutable_recipe()->mutable_checkpoint()->set_interval(1);
  spec.mutable_resources()->set_slots(slots);
  spec.mutable_resources()->set_min_slots(min_slots);
  spec.mutable_resources()->set_pool("default");
  spec.mutable_planning()->set_budget_seconds(60);
  spec.mutable_planning()->set_top(3);
  spec.mutable_policy()->set_max_restarts(max_restarts);
  job.set_state(v1::SUBMITTED);
  job.set_version(1);
  job.set_create_time_us(NowUs());
  return job;
}

void FleetTest::Write(const std::function<absl::Status(store::Transaction&)>& work) {
  const absl::Status status = store_->Write(work);
  EXPECT_TRUE(status.ok()) << status;
}

void FleetTest::Insert(const std::vector<v1::Job>& jobs) {
  Write([&](store::Transaction& transaction) -> absl::Status {
    for (const v1::Job& job : jobs) RETURN_IF_ERROR(transaction.InsertJob(job, std::nullopt));
    return absl::OkStatus();
  });
}

void FleetTest::MoveJob(const std::string& job, v1::JobState state, const std::string& reason) {
  Write([&](store::Transaction& transaction) {
    v1::Job now = **transaction.GetJob(job);
    return Move(transaction, &now, state, reason, 1);
  });
}

v1::Job FleetTest::Cancel(const std::string& job, bool save, const std::string& reason, double grace_seconds) {
  v1::CancelJobRequest request;
  request.set_name(job);
  request.set_save(save);
  request.set_reason(reason);
  request.set_grace_seconds(grace_seconds);
  v1::Job now;
  Write([&](store::Transaction& transaction) -> absl::Status {
    now = **transaction.GetJob(job);
    return CancelJob(transaction, request, NowUs() + 1'000'000 * utc_skew_seconds_, &now).status();
  });
  controller_->JobChanged(job);
  return now;
}

absl::StatusOr<v1::Worker> FleetTest::Drain(const std::string& worker, bool undo, bool let_finish) {
  v1::DrainWorkerRequest request;
  request.set_name(worker);
  request.set_undo(undo);
  request.set_let_finish(let_finish);
  return controller_->Drain(request);
}

std::string FleetTest::Submit(const v1::Job& job) {
  Insert({job});
  controller_->JobChanged(job.name());
  return job.name();
}

v1::Job FleetTest::Get(const std::string& job) const {
  auto found = MustRead(*store_, [&](auto& read) { return read.GetJob(job); });
  if (!found) return v1::Job();
  controller_->DescribeWait(&*found);
  return *found;
}

v1::Job FleetTest::Await(const std::string& job, const std::function<bool(const v1::Job&)>& wanted) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  v1::Job now = Get(job);
  while (!wanted(now) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    now = Get(job);
  }
  EXPECT_TRUE(wanted(now)) << "the job stays " << StateText(now.state()) << ": " << now.reason();
  return now;
}

v1::Job FleetTest::AwaitState(const std::string& job, v1::JobState state) {
  return Await(job, [&](const v1::Job& now) { return now.state() == state; });
}

v1::Job FleetTest::AwaitReason(const std::string& job, const std::string& part) {
  return Await(job, [&](const v1::Job& now) { return now.reason().find(part) != std::string::npos; });
}

void FleetTest::AwaitDecision() {
  v1::Job probe = MakeJob(1, 1);
  probe.mutable_spec()->mutable_resources()->set_pool(absl::StrCat("probe-", submitted_));
  Submit(probe);
  AwaitReason(probe.name(), probe.spec().resources().pool());
}

int64_t FleetTest::Plans(const std::string& job) const {
  const std::vector<v1::JobState> states = History(job);
  return std::count(states.begin(), states.end(), v1::PLANNING);
}

std::vector<v1::Transition> FleetTest::Transitions(const std::string& job) const {
  return MustRead(*store_, [&](auto& read) { return read.ListTransitions(job, 0, 1000); });
}

std::vector<v1::JobState> FleetTest::History(const std::string& job) const {
  std::vector<v1::JobState> states;
  for (const v1::Transition& transition : Transitions(job)) {
    EXPECT_TRUE(IsLegal(transition.from(), transition.to()))
        << StateText(transition.from()) << " to " << StateText(transition.to());
    if (!states.empty()) {
      EXPECT_EQ(states.back(), transition.from());
    }
    EXPECT_FALSE(transition.reason().empty());
    states.push_back(transition.to());
  }
  return states;
}

std::vector<v1::Attempt> FleetTest::Attempts(const std::string& job) const {
  return MustRead(*store_, [&](auto& read) { return read.ListAttempts(job); });
}

std::vector<v1::StepMetrics> FleetTest::Metrics(const std::string& job) const {
  return MustRead(*store_, [&](auto& read) { return store::ListMetrics(read, job, 0); });
}

void FleetTest::Connect(TestAgent* agent) {
  agent->hello.set_last_telemetry(agent->sequence);
  const auto session = controller_->Connect(agent->hello, &agent->link);
  ASSERT_TRUE(session.ok()) << session.status();
  agent->session = *session;
  agent->leave = [this, to = controller_.get(), from = *session] {
    if (controller_.get() == to) to->Disconnected(from);
  };
}

v1::StartAttempt FleetTest::Begin(TestAgent* agent) {
  Connect(agent);
  Submit(2);
  return agent->link.NextStart();
}

void FleetTest::Report(TestAgent* agent, const v1::LeaseId& lease, const std::function<void(v1::Telemetry*)>& fill) {
  v1::Telemetry fact;
  fact.set_sequence(++agent->sequence);
  *fact.mutable_lease() = lease;
  fill(&fact);
  controller_->Telemetry(agent->session, {fact});
}

void FleetTest::ReportStep(TestAgent* agent, const v1::LeaseId& lease, int64_t step) {
  Report(agent, lease, [&](v1::Telemetry* fact) {
    fact->mutable_metrics()->set_step(step);
    fact->mutable_metrics()->set_loss(5.0 / static_cast<double>(step));
    fact->mutable_metrics()->set_step_seconds(0.5);
    fact->mutable_metrics()->set_peak_memory_bytes(1000);
  });
}

void FleetTest::ReportEnd(TestAgent* agent, const v1::LeaseId& lease, const absl::Status& error, bool stopped, int64_t step) {
  Report(agent, lease, [&](v1::Telemetry* fact) {
    fact->mutable_ended()->set_last_step(step);
    fact->mutable_ended()->set_stopped(stopped);
    if (!error.ok()) *fact->mutable_ended()->mutable_error() = ToRpcStatus(error);
  });
}

std::string FleetTest::CheckpointsOf(const std::string& job, int64_t epoch) {
  return absl::StrCat("/runs/", job.substr(job.rfind('/') + 1), "/epoch-", epoch, "/checkpoints");
}

v1::CommitRequest FleetTest::CommitOf(const v1::LeaseId& lease, int64_t step) {
  v1::CommitRequest request;
  request.set_id(step);
  *request.mutable_lease() = lease;
  request.set_step(step);
  request.set_digest(std::string(64, 'd'));
  request.set_directory(CheckpointsOf(lease.job(), lease.epoch()));
  return request;
}

void FleetTest::AskForCommit(TestAgent* agent, const v1::LeaseId& lease, int64_t step) {
  controller_->CommitRequest(agent->session, CommitOf(lease, step));
}

v1::CommitAnswer FleetTest::Commit(TestAgent* agent, const v1::LeaseId& lease, int64_t step) {
  AskForCommit(agent, lease, step);
  return agent->link.Next([](const v1::ToAgent& message) { return message.has_commit(); }).commit();
}

void FleetTest::Beat(TestAgent* agent, const std::vector<v1::LeaseId>& leases) {
  v1::Heartbeat heartbeat;
  heartbeat.set_sequence(1);
  for (const v1::LeaseId& lease : leases) *heartbeat.add_leases() = lease;
  controller_->Heartbeat(agent->session, heartbeat);
}

}  // namespace legoai::server
