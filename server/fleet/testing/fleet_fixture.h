// A Controller over a real store, with agents that a test speaks for, a planner that answers from a closed form, and clocks that
// a test can set forward.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/process/mutex.h"
#include "server/fleet/controller.h"
#include "server/jobs/testing/legal_transitions.h"
#include "server/store/store.h"
#include "server/store/testing/must_read.h"

namespace legoai::server {

// What the server has sent to one agent.
class RecordingLink : public AgentLink {
 public:
  void Send(const v1::ToAgent& message) override;
  void Close(const absl::Status& status) override;

  // The next message for which `wanted` holds; others before it are dropped. Fails the test after a minute.
  v1::ToAgent Next(const std::function<bool(const v1::ToAgent&)>& wanted);
  bool Has(const std::function<bool(const v1::ToAgent&)>& wanted) const;  // a message that was sent, and is not taken yet
  v1::StartAttempt NextStart();
  std::optional<absl::Status> closed() const;

 private:
  mutable Mutex mutex_;
  Condition changed_;
  std::deque<v1::ToAgent> messages_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> closed_ ABSL_GUARDED_BY(mutex_);
};

// An agent as the server sees it. Its connection ends with it: nothing is sent to a link that is gone.
struct TestAgent {
  explicit TestAgent(const std::string& name, int64_t slots = 2);
  ~TestAgent() {
    if (leave) leave();
  }

  v1::Hello hello;
  RecordingLink link;
  uint64_t session = 0;
  int64_t sequence = 0;
  std::function<void()> leave = {};
};

// Counts the transactions that pass through to a real store and tells when one is durable; it can hold them up, or refuse them as
// one whose disk is full does.
class CountingStore : public store::Store {
 public:
  explicit CountingStore(std::unique_ptr<store::Store> store) : store_(std::move(store)) {}
  absl::Status Write(const std::function<absl::Status(store::Transaction&)>& work) override {
    ++writes;
    while (hold_writes) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (space == 0) return absl::ResourceExhaustedError("the disk is full");
    --space;
    const absl::Status status = store_->Write(work);
    if (written) written();
    return status;
  }
  absl::Status Read(const std::function<absl::Status(store::ReadTransaction&)>& work) override { return store_->Read(work); }
  std::string Backend() const override { return store_->Backend(); }
  int64_t SchemaVersion() const override { return store_->SchemaVersion(); }

  std::atomic<int64_t> writes = 0;
  std::atomic<bool> hold_writes = false;   // as a disk does that stands still
  std::atomic<int64_t> space = INT64_MAX;  // for that many transactions
  std::function<void()> written = {};      // before the writer hears of it, on its thread; to be set while nobody writes

 private:
  const std::unique_ptr<store::Store> store_;
};

class FleetTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  void StartController();
  void StopController() { controller_.reset(); }

  // Not stored yet; each is created after the one before. `slots`: wanted; `min_slots`: at least.
  v1::Job MakeJob(int64_t slots, int64_t min_slots = 1, int64_t max_restarts = 1);
  void Write(const std::function<absl::Status(store::Transaction&)>& work);
  void Insert(const std::vector<v1::Job>& jobs);
  // As a user asks for it; the controller is not told.
  void MoveJob(const std::string& job, v1::JobState state, const std::string& reason);
  // As the API does it, and the controller hears of it.
  v1::Job Cancel(const std::string& job, bool save, const std::string& reason = "", double grace_seconds = 0);
  absl::StatusOr<v1::Worker> Drain(const std::string& worker, bool undo = false, bool let_finish = false);
  std::string Submit(const v1::Job& job);  // gives its name
  std::string Submit(int64_t slots, int64_t min_slots = 1, int64_t max_restarts = 1) {
    return Submit(MakeJob(slots, min_slots, max_restarts));
  }
  v1::Job Get(const std::string& job) const;
  // Waits until `wanted` holds of the job. Fails the test after a minute.
  v1::Job Await(const std::string& job, const std::function<bool(const v1::Job&)>& wanted);
  v1::Job AwaitState(const std::string& job, v1::JobState state);
  v1::Job AwaitReason(const std::string& job, const std::string& part);
  void AwaitDecision();  // the controller has decided again since this was called
  // The states through which it went, in order; each change is legal.
  std::vector<v1::JobState> History(const std::string& job) const;
  std::vector<v1::Transition> Transitions(const std::string& job) const;
  int64_t Plans(const std::string& job) const;  // so often it was planned
  std::vector<v1::Attempt> Attempts(const std::string& job) const;
  std::vector<v1::StepMetrics> Metrics(const std::string& job) const;

  void Connect(TestAgent* agent);
  // Connects the agent and gives it a job of two slots.
  v1::StartAttempt Begin(TestAgent* agent);
  void Report(TestAgent* agent, const v1::LeaseId& lease, const std::function<void(v1::Telemetry*)>& fill);
  void ReportStep(TestAgent* agent, const v1::LeaseId& lease, int64_t step);
  // Where attempts of agents as TestAgent makes them save.
  static std::string CheckpointsOf(const std::string& job, int64_t epoch);
  static v1::CommitRequest CommitOf(const v1::LeaseId& lease, int64_t step);  // that is granted
  // Without waiting for the answer.
  void AskForCommit(TestAgent* agent, const v1::LeaseId& lease, int64_t step);
  void ReportEnd(TestAgent* agent, const v1::LeaseId& lease, const absl::Status& error, bool stopped = false, int64_t step = 10);
  v1::CommitAnswer Commit(TestAgent* agent, const v1::LeaseId& lease, int64_t step);
  void Beat(TestAgent* agent, const std::vector<v1::LeaseId>& leases);

  std::string directory_;
  std::unique_ptr<CountingStore> store_;
  Notifier notifier_;
  std::unique_ptr<Controller> controller_;
  std::atomic<int64_t> skew_seconds_{0};
  std::atomic<int64_t> utc_skew_seconds_{0};  // of the wall clock
  std::atomic<bool> hold_plans_{false};       // plans wait while it is set
  std::atomic<int64_t> hold_steps_{0};        // plans of trainings of so many steps wait
  std::string planned_by_ = "the test";       // of the next controller
  bool reuse_plans_ = false;                  // of the next controller: most tests want each plan to be made
  bool preempt_ = false;                      // of the next controller
  absl::Duration preempt_grace_ = absl::Seconds(30);
  std::atomic<int64_t> largest_world_{64};    // more ranks than this do not fit
  int64_t submitted_ = 0;
  TestAgent agent_{"a"};  // of two slots; not connected yet
};

}  // namespace legoai::server
