// Thousands of random operations on the store and on the oracle: every answer is the same, errors and undone transactions
// included.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/store/contract_test.h"
#include "server/store/testing/oracle.h"

namespace legoai::store {
namespace {

// What an operation answered.
std::string Text(const absl::Status& status) { return absl::StrCat(absl::StatusCodeToString(status.code()), "\n"); }
std::string Text(int64_t number) { return absl::StrCat(number, "\n"); }
std::string Text(const std::string& text) { return text + "\n"; }
std::string Text(const google::protobuf::Message& message) { return message.ShortDebugString() + "\n"; }
std::string Text(const ReadTransaction::EarlierSubmission& earlier) {
  return absl::StrCat(earlier.job, " ", earlier.content_sha256, "\n");
}
template <class T>
std::string Text(const std::optional<T>& value) {
  return value ? Text(*value) : "nothing\n";
}
template <class T>
std::string Text(const std::vector<T>& values) {
  std::string text = Text(static_cast<int64_t>(values.size()));
  for (const T& value : values) text += Text(value);
  return text;
}
template <class T>
std::string Text(const absl::StatusOr<T>& result) {
  return result.ok() ? Text(*result) : Text(result.status());
}

// Everything is chosen from a few, so that operations meet.
class Operations {
 public:
  explicit Operations(unsigned seed) : random_(seed) {}
  using Operation = std::function<std::string(Transaction&)>;
  using Question = std::function<std::string(ReadTransaction&)>;

  int64_t Number(int64_t below) { return static_cast<int64_t>(random_() % static_cast<unsigned>(below)); }

  Operation Write() {
    switch (Number(14)) {
      case 0:
      case 1: return Insert();
      case 2:
      case 3:
      case 4: return Update();
      case 5: return [transition = Transition()](Transaction& t) { return Text(t.AppendTransition(transition)); };
      case 6:
        return [job = Job(), attempt = Numbered<v1::Attempt>()](Transaction& t) { return Text(t.PutAttempt(job, attempt)); };
      case 7: return [job = Job(), checkpoint = Checkpoint()](Transaction& t) { return Text(t.PutCheckpoint(job, checkpoint)); };
      case 8: return Plan();
      case 9: return [job = Job(), metrics = Metrics()](Transaction& t) { return Text(t.AppendMetrics(job, metrics)); };
      case 10: return [job = Job(), line = Line()](Transaction& t) { return Text(t.AppendLog(job, line)); };
      case 11: return Flight();
      case 12: return Trace();
      default: return OfWorkersAndTokens();
    }
  }

  // Everything that can be asked about a job, and lists.
  Question Read() {
    LogQuery logs{.job = Job(), .after_sequence = Number(4) * 3, .limit = Number(12) - 1, .tail = Number(2) == 0};
    if (Number(3) == 0) logs.attempt = Number(3);
    if (Number(3) == 0) logs.rank = Number(3);
    const int64_t after = Number(6) - 1, limit = Number(8) - 1;
    return
        [query = Query(), logs, after, limit, states = States(), request = Request(), worker = WorkerName()](ReadTransaction& t) {
          const std::string& job = logs.job;
          return Text(t.GetJob(job)) + Text(t.ListJobs(query)) + Text(t.CountJobs(query)) + Text(t.ListProjects()) +
                 Text(t.JobsInStates(states)) +
                 Text(t.FindSubmission("projects/p0", request)) + Text(t.ListTransitions(job, after, limit)) +
                 Text(t.ListAttempts(job)) + Text(t.ListCheckpoints(job)) + Text(t.ListKeptCheckpoints(job)) +
                 Text(t.GetPlan(job)) + Text(t.GetCachedPlan(request)) +
                 Text(ListMetrics(t, job, after)) + Text(t.ListLogs(logs)) + Text(t.GetFlightRecord(job)) +
                 Text(t.ListRankReports(job, limit)) + Text(t.ListStepTraces(job)) + Text(t.GetStepTrace(job, 1, after, 1)) +
                 Text(t.ListWorkers()) + Text(t.GetWorker(worker)) + Text(t.TelemetrySequence(worker)) +
                 Text(t.ListTokens()) + Text(t.GetToken(worker));
        };
  }

 private:
  int64_t JobNumber() { return Number(24); }
  static std::string ProjectOf(int64_t number) { return absl::StrCat("projects/p", number % 2); }
  std::string Job() { return NameOf(JobNumber()); }
  static std::string NameOf(int64_t number) { return JobName(number, ProjectOf(number)); }
  std::string Request() { return absl::StrCat("request-", Number(12)); }
  std::string WorkerName() { return absl::StrCat("workers/", Number(4)); }
  v1::JobState State() { return static_cast<v1::JobState>(1 + Number(4)); }
  std::vector<v1::JobState> States() {
    std::vector<v1::JobState> states(static_cast<size_t>(Number(4)));
    for (v1::JobState& state : states) state = State();
    return states;
  }
  v1::Job SomeJob() {
    const int64_t number = JobNumber();
    v1::Job job = MakeJob(number, State(), ProjectOf(number));
    job.set_version(1 + Number(4));
    job.mutable_spec()->set_display_name(std::vector<std::string>{"Alpha", "beta%", "a_b", ""}[static_cast<size_t>(Number(4))]);
    if (Number(4) == 0) job.set_create_time_us(CreateTime(JobNumber()));
    if (Number(8) == 0) job.mutable_spec()->mutable_model()->set_config_json(std::string(20'000, 'x'));
    return job;
  }
  JobQuery Query() {
    JobQuery query{.project = ProjectOf(Number(2)), .states = States(), .limit = Number(10) - 1};
    query.display_name_contains = std::vector<std::string>{"", "", "A", "%", "_b", "none"}[static_cast<size_t>(Number(6))];
    if (Number(3) == 0) query.text_contains = std::vector<std::string>{"a", "1", "0003", "b"}[static_cast<size_t>(Number(4))];
    if (Number(2) == 0) query.before_id = JobId(JobNumber());
    if (Number(3) == 0) query.created_from_us = CreateTime(JobNumber());
    if (Number(3) == 0) query.created_until_us = CreateTime(JobNumber());
    return query;
  }
  Operation Insert() {
    std::optional<Submission> submission;
    if (Number(2) == 0) submission = {"projects/p0", Request(), absl::StrCat("content ", Number(3))};
    return [job = SomeJob(), submission](Transaction& t) { return Text(t.InsertJob(job, submission)); };
  }
  Operation Update() {
    return [job = SomeJob(), expected = 1 + Number(4), next = Number(4) > 0](Transaction& t) mutable {
      // Most of them know the version; some do not.
      const absl::StatusOr<std::optional<v1::Job>> found = next ? t.GetJob(job.name()) : std::nullopt;
      if (found.ok() && *found) job.set_version((expected = (*found)->version()) + 1);
      return Text(t.UpdateJob(job, expected));
    };
  }
  template <class M>
  M Numbered() {
    M message;
    message.set_attempt(Number(4));
    message.set_epoch(Number(100));
    return message;
  }
  v1::Transition Transition() {
    v1::Transition transition;
    transition.set_job(Job());
    transition.set_version(Number(10));
    transition.set_time_us(Number(1000));
    return transition;
  }
  v1::Checkpoint Checkpoint() {
    v1::Checkpoint checkpoint = Numbered<v1::Checkpoint>();
    checkpoint.set_epoch(Number(3));
    checkpoint.set_step(Number(5));
    if (Number(2) == 0) checkpoint.set_remove_time_us(Number(1000));
    return checkpoint;
  }
  v1::StepMetrics Metrics() {
    v1::StepMetrics metrics;
    metrics.set_attempt(Number(4));
    metrics.set_step(Number(12));
    metrics.set_learning_rate(static_cast<double>(Number(1000)));
    const int64_t ranks = Number(4);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      metrics.add_ranks()->set_rank(rank);
      if (Number(2) == 0) metrics.mutable_ranks(static_cast<int>(rank))->add_collectives()->set_count(Number(9));
    }
    return metrics;
  }
  // Sizes are as told: of a dozen of the largest only the latest are kept.
  Operation Trace() {
    v1::StepTraceInfo info;
    info.set_attempt(Number(3));
    info.set_step(Number(6) - 1);
    info.set_rank(Number(3));
    info.set_bytes(Number(kStepTraceBytes / 4));
    v1::TraceFile file;
    file.set_trace_gzip(absl::StrCat("trace ", Number(1000)));
    return [job = Job(), info, file](Transaction& t) { return Text(t.PutStepTrace(job, info, file)); };
  }
  v1::LogLine Line() {
    v1::LogLine line = Numbered<v1::LogLine>();
    if (Number(2) == 0) line.set_rank(Number(3));
    line.set_text(absl::StrCat("text ", Number(1000)));
    return line;
  }
  Operation Plan() {
    v1::PlanResult plan;
    plan.set_seconds(static_cast<double>(Number(1000)));
    if (Number(3) > 0) return [job = Job(), plan](Transaction& t) { return Text(t.PutPlan(job, plan)); };
    v1::CachedPlan cached;
    cached.set_key(Request());
    cached.set_time_us(Number(1000));
    return [cached](Transaction& t) { return Text(t.PutCachedPlan(cached)); };
  }
  Operation Flight() {
    v1::FlightRecord head;
    head.set_attempt(Number(3));
    head.set_time_us(Number(1000));
    head.add_dumps()->set_rank(7);
    v1::FlightDump dump;
    dump.set_rank(Number(3));
    dump.set_world_size(Number(1000));
    return [job = Job(), head, dump, alone = Number(3) == 0](Transaction& t) {
      return Text(t.PutFlightRecord(job, head, alone ? nullptr : &dump));
    };
  }
  Operation OfWorkersAndTokens() {
    v1::Worker worker;
    worker.set_name(WorkerName());
    worker.set_slots(Number(1000));
    (*worker.mutable_labels())["a"] = absl::StrCat(Number(9));
    v1::StoredToken token;
    token.mutable_token()->set_name(WorkerName());
    token.set_secret_sha256(absl::StrCat(Number(1000)));
    switch (Number(5)) {
      case 3: return [token](Transaction& t) { return Text(t.DeleteToken(token.token().name())); };
      case 4: return [token](Transaction& t) { return Text(t.PutToken(token)); };
      case 0: return [worker](Transaction& t) { return Text(t.DeleteWorker(worker.name())); };
      case 1: return [worker](Transaction& t) { return Text(t.SetTelemetrySequence(worker.name(), worker.slots())); };
      default: return [worker](Transaction& t) { return Text(t.PutWorker(worker)); };
    }
  }

  std::mt19937 random_;
};

TEST_P(StoreContract, RandomOperationsAnswerAsTheOracleDoes) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::cout << "seed " << seed << "\n";
  Operations operations(seed);
  Oracle oracle;
  int64_t done = 0;
  for (int round = 0; round < 600 && !HasFailure(); ++round) {
    std::vector<Operations::Operation> writes;
    for (int64_t i = operations.Number(12); i >= 0; --i) {
      writes.push_back(operations.Number(6) == 0 ? Operations::Operation(operations.Read()) : operations.Write());
    }
    const bool undone = operations.Number(5) == 0;
    Oracle changed = oracle;
    std::string expected, answered;
    for (const auto& write : writes) expected += write(changed);
    const absl::Status status = Write([&](Transaction& t) {
      answered.clear();
      for (const auto& write : writes) answered += write(t);
      return undone ? absl::CancelledError() : absl::OkStatus();
    });
    ASSERT_EQ(status.ok(), !undone) << status;
    ASSERT_EQ(answered, expected) << "round " << round;
    if (!undone) oracle = changed;
    if (operations.Number(100) == 0) Reopen();
    const Operations::Question read = operations.Read();
    ASSERT_TRUE(store()
                    .Read([&](ReadTransaction& t) {
                      answered = read(t);
                      return absl::OkStatus();
                    })
                    .ok());
    ASSERT_EQ(answered, read(oracle)) << "round " << round;
    done += static_cast<int64_t>(writes.size()) + 1;
  }
  EXPECT_GT(done, 2000);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreComparison);

// The same operations on two back ends: the same answers, whatever the oracle would say.
TEST_P(StoreComparison, BothAnswerTheSame) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::cout << "seed " << seed << "\n";
  const auto other = GetParam().open_other(folder());
  ASSERT_TRUE(other.ok()) << other.status();
  Operations operations(seed);
  for (int round = 0; round < 300 && !HasFailure(); ++round) {
    std::vector<Operations::Operation> writes;
    for (int64_t i = operations.Number(12); i >= 0; --i) {
      writes.push_back(operations.Number(6) == 0 ? Operations::Operation(operations.Read()) : operations.Write());
    }
    const bool undone = operations.Number(5) == 0;
    const Operations::Question read = operations.Read();
    std::string answered[2];
    for (Store* const one : {&store(), other->get()}) {
      std::string& answers = answered[one != &store()];
      const absl::Status status = one->Write([&](Transaction& t) {
        answers.clear();
        for (const auto& write : writes) answers += write(t);
        return undone ? absl::CancelledError() : absl::OkStatus();
      });
      ASSERT_EQ(status.ok(), !undone) << status;
      ASSERT_TRUE(one->Read([&](ReadTransaction& t) {
                       answers += read(t);
                       return absl::OkStatus();
                     })
                      .ok());
    }
    ASSERT_EQ(answered[0], answered[1]) << "round " << round;
  }
}

}  // namespace
}  // namespace legoai::store
