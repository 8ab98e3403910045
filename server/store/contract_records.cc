// What belongs to a job, and workers: each kind of record by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/store/contract_test.h"

namespace legoai::store {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST_P(StoreContract, TransitionsInOrderOfVersionsInPages) {
  ASSERT_TRUE(Insert(MakeJob(1)).ok());
  ASSERT_TRUE(Insert(MakeJob(2)).ok());
  const auto append = [&](int64_t job, int64_t version) {
    v1::Transition transition;
    transition.set_job(JobName(job));
    transition.set_version(version);
    transition.set_reason(absl::StrCat("to ", version));
    return Write([&](Transaction& t) { return t.AppendTransition(transition); });
  };
  for (int64_t version : {3, 1, 2, 10}) ASSERT_TRUE(append(1, version).ok());
  ASSERT_TRUE(append(2, 1).ok());
  EXPECT_EQ(append(1, 3).code(), absl::StatusCode::kAlreadyExists);
  const auto list = [&](int64_t after, int64_t limit) {
    std::vector<std::string> reasons;
    for (const v1::Transition& transition :
         Read([&](ReadTransaction& t) { return t.ListTransitions(JobName(1), after, limit); })) {
      reasons.push_back(transition.reason());
    }
    return reasons;
  };
  EXPECT_THAT(list(0, 10), ElementsAre("to 1", "to 2", "to 3", "to 10"));
  EXPECT_THAT(list(1, 2), ElementsAre("to 2", "to 3"));
  EXPECT_THAT(list(10, 2), IsEmpty());
  EXPECT_THAT(list(0, 0), IsEmpty());
  EXPECT_THAT(list(0, -1), IsEmpty());
}

TEST_P(StoreContract, AttemptsAreReplacedByTheirNumber) {
  ASSERT_TRUE(Insert(MakeJob(1)).ok());
  for (const auto& [number, state] : {std::pair<int, const char*>{10, "lost"}, {2, "leased"}, {2, "running"}}) {
    v1::Attempt attempt;
    attempt.set_attempt(number);
    attempt.set_state(state);
    ASSERT_TRUE(Write([&](Transaction& t) { return t.PutAttempt(JobName(1), attempt); }).ok());
  }
  const auto attempts = Read([](ReadTransaction& t) { return t.ListAttempts(JobName(1)); });
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_EQ(attempts[0].state(), "running");
  EXPECT_EQ(attempts[1].attempt(), 10);
}

TEST_P(StoreContract, CheckpointsByStepThenEpoch) {
  ASSERT_TRUE(Insert(MakeJob(1)).ok());
  for (const auto& [step, epoch] : {std::pair<int64_t, int64_t>{20, 1}, {10, 2}, {20, 2}, {10, 1}, {20, 1}}) {
    v1::Checkpoint checkpoint;
    checkpoint.set_step(step);
    checkpoint.set_epoch(epoch);
    ASSERT_TRUE(Write([&](Transaction& t) { return t.PutCheckpoint(JobName(1), checkpoint); }).ok());
  }
  std::vector<std::pair<int64_t, int64_t>> listed;
  for (const auto& c : Read([](ReadTransaction& t) { return t.ListCheckpoints(JobName(1)); })) {
    listed.emplace_back(c.step(), c.epoch());
  }
  EXPECT_THAT(listed, ElementsAre(std::pair(10, 1), std::pair(10, 2), std::pair(20, 1), std::pair(20, 2)));
}

TEST_P(StoreContract, CheckpointsThatAreRemovedStayAndAreNotAmongTheKept) {
  ASSERT_TRUE(Insert(MakeJob(1)).ok());
  const auto put = [&](int64_t step, bool removed) {
    v1::Checkpoint checkpoint;
    checkpoint.set_step(step);
    checkpoint.set_epoch(1);
    if (removed) checkpoint.set_remove_time_us(0);
    ASSERT_TRUE(Write([&](Transaction& t) { return t.PutCheckpoint(JobName(1), checkpoint); }).ok());
  };
  const auto steps = [&](auto list) {
    std::vector<int64_t> steps;
    for (const auto& c : Read([&](ReadTransaction& t) { return (t.*list)(JobName(1)); })) steps.push_back(c.step());
    return steps;
  };
  for (const int64_t step : {30, 20, 10}) put(step, false);
  EXPECT_THAT(steps(&ReadTransaction::ListKeptCheckpoints), ElementsAre(10, 20, 30));
  put(20, true);
  EXPECT_THAT(steps(&ReadTransaction::ListKeptCheckpoints), ElementsAre(10, 30));
  EXPECT_THAT(steps(&ReadTransaction::ListCheckpoints), ElementsAre(10, 20, 30));
  put(20, false);
  EXPECT_THAT(steps(&ReadTransaction::ListKeptCheckpoints), ElementsAre(10, 20, 30));
}

TEST_P(StoreContract, TheLatestPlanIsKept) {
  ASSERT_TRUE(Insert(MakeJob(1)).ok());
  for (const char* explanation : {"first", "second"}) {
    v1::PlanResult plan;
    plan.set_explanation(explanation);
    ASSERT_TRUE(Write([&](Transaction& t) { return t.PutPlan(JobName(1), plan); }).ok());
    EXPECT_EQ(Read([](ReadTransaction& t) { return t.GetPlan(JobName(1)); })->explanation(), explanation);
  }
}

TEST_P(StoreContract, OfCachedPlansTheLatestAreKept) {
  const auto put = [&](int64_t key, int64_t time) {
    v1::CachedPlan plan;
    plan.set_key(absl::StrCat("plan:", key));
    plan.set_time_us(time);
    ASSERT_TRUE(Write([&](Transaction& t) { return t.PutCachedPlan(plan); }).ok());
  };
  const auto time = [&](int64_t key) {
    const auto plan = Read([&](ReadTransaction& t) { return t.GetCachedPlan(absl::StrCat("plan:", key)); });
    return plan ? plan->time_us() : -1;
  };
  EXPECT_EQ(time(1), -1);
  for (int64_t key = 1; key <= kCachedPlans; ++key) put(key, 100);
  put(1, 200);  // again: the latest from now on
  EXPECT_EQ(time(1), 200);
  EXPECT_EQ(time(2), 100);
  put(kCachedPlans + 1, 300);
  EXPECT_EQ(time(2), -1) << "the oldest";
  EXPECT_EQ(time(3), 100);
  Reopen();
  EXPECT_EQ(time(1), 200);
  EXPECT_EQ(time(kCachedPlans + 1), 300);
}

TEST_P(StoreContract, MetricsAreThoseOfTheTrainingAsItWentInTheEnd) {
  ASSERT_TRUE(Insert(MakeJob(1)).ok());
  const auto append = [&](int64_t attempt, int64_t step, double loss) {
    v1::StepMetrics metrics;
    metrics.set_attempt(attempt);
    metrics.set_step(step);
    metrics.set_loss(loss);
    ASSERT_TRUE(Write([&](Transaction& t) { return t.AppendMetrics(JobName(1), metrics); }).ok());
  };
  const auto list = [&](int64_t after) {
    std::vector<std::pair<int64_t, double>> points;
    for (const auto& m : Read([&](ReadTransaction& t) { return ListMetrics(t, JobName(1), after); })) {
      points.emplace_back(m.step(), m.loss());
    }
    return points;
  };
  using P = std::pair<int64_t, double>;
  EXPECT_THAT(list(0), IsEmpty());
  for (int64_t step : {3, 1, 2, 5}) append(1, step, 1.0);
  append(1, 2, 9.0);  // again: what is there stays
  EXPECT_THAT(list(0), ElementsAre(P{1, 1}, P{2, 1}, P{3, 1}, P{5, 1}));
  append(2, 3, 2.0);  // began again after step 2: 3 and 5 of the first attempt are no part of it any more
  EXPECT_THAT(list(0), ElementsAre(P{1, 1}, P{2, 1}, P{3, 2}));
  append(2, 4, 2.0);
  append(4, 2, 4.0);  // an attempt that reported nothing lies between
  append(1, 6, 1.0);  // late news of a superseded attempt
  EXPECT_THAT(list(0), ElementsAre(P{1, 1}, P{2, 4}));
  append(4, 3, 4.0);
  EXPECT_THAT(list(1), ElementsAre(P{2, 4}, P{3, 4}));
  EXPECT_THAT(list(3), IsEmpty());
}

// A report's first row stays with the curve; all rows only of the latest reports of the latest attempt.
TEST_P(StoreContract, RowsOfRanksAreThoseOfTheLatestReports) {
  ASSERT_TRUE(Insert(MakeJob(1)).ok());
  const auto append = [&](int64_t attempt, int64_t step, int64_t ranks) {
    v1::StepMetrics metrics;
    metrics.set_attempt(attempt);
    metrics.set_step(step);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      metrics.add_ranks()->set_rank(rank);
      metrics.mutable_ranks(static_cast<int>(rank))->set_step_seconds(static_cast<double>(100 * step + rank));
      metrics.mutable_ranks(static_cast<int>(rank))->add_collectives()->set_count(7);
    }
    ASSERT_TRUE(Write([&](Transaction& t) { return t.AppendMetrics(JobName(1), metrics); }).ok());
  };
  const auto reports = [&](int64_t limit) {
    std::vector<std::pair<int64_t, int64_t>> steps;  // with the number of rows
    for (const auto& report : Read([&](ReadTransaction& t) { return t.ListRankReports(JobName(1), limit); }))
      steps.emplace_back(report.step(), report.ranks_size());
    return steps;
  };
  using P = std::pair<int64_t, int64_t>;
  append(1, 1, 0);
  EXPECT_THAT(reports(9), IsEmpty());
  for (int64_t step = 2; step < 2 + kRankReports + 3; ++step) append(1, step, 3);
  append(1, 2, 3);  // again: what is there stays, and what is gone stays gone
  ASSERT_EQ(static_cast<int64_t>(reports(1000).size()), kRankReports);
  EXPECT_EQ(reports(1000)[0], (P{5, 3}));
  EXPECT_THAT(reports(2), ElementsAre(P{kRankReports + 3, 3}, P{kRankReports + 4, 3}));
  const auto curve = Read([](ReadTransaction& t) { return ListMetrics(t, JobName(1), 0); });
  ASSERT_EQ(static_cast<int64_t>(curve.size()), kRankReports + 4);
  EXPECT_EQ(curve[0].ranks_size(), 0);
  EXPECT_EQ(curve[1].ranks_size(), 1);
  EXPECT_EQ(curve[1].ranks(0).step_seconds(), 200);
  EXPECT_EQ(curve[1].ranks(0).collectives_size(), 0);
  EXPECT_EQ(Read([](ReadTransaction& t) { return t.ListRankReports(JobName(1), 1); }).at(0).ranks(1).collectives(0).count(), 7);
  append(2, 4, 2);
  EXPECT_THAT(reports(1000), ElementsAre(P{4, 2})) << "of the latest attempt";
}

TEST_P(StoreContract, TheOldestTracesOfStepsGo) {
  for (int64_t job : {1, 2}) ASSERT_TRUE(Insert(MakeJob(job)).ok());
  const auto put = [&](int64_t job, int64_t attempt, int64_t step, int64_t rank, int64_t bytes) {
    v1::StepTraceInfo info;
    info.set_attempt(attempt);
    info.set_step(step);
    info.set_rank(rank);
    info.set_bytes(bytes);
    v1::TraceFile file;
    file.set_file_name(absl::StrCat(step));
    file.set_trace_gzip(std::string(9000, static_cast<char>('a' + bytes % 26)));  // over several pages
    ASSERT_TRUE(Write([&](Transaction& t) { return t.PutStepTrace(JobName(job), info, file); }).ok());
  };
  const auto list = [&](int64_t job) {
    std::vector<std::string> keys;
    for (const auto& info : Read([&](ReadTransaction& t) { return t.ListStepTraces(JobName(job)); }))
      keys.push_back(absl::StrCat(info.attempt(), "-", info.step(), "-", info.rank(), " ", info.bytes()));
    return keys;
  };
  const auto get = [&](int64_t step) { return Read([&](ReadTransaction& t) { return t.GetStepTrace(JobName(1), 1, step, 0); }); };
  put(2, 1, 1, 0, 5);
  put(1, 2, 5, 0, 7);
  put(1, 1, 20, 1, 8);
  put(1, 1, 20, 0, 9);
  EXPECT_THAT(list(1), ElementsAre("1-20-0 9", "1-20-1 8", "2-5-0 7"));
  EXPECT_EQ(get(20)->trace_gzip(), std::string(9000, 'j'));
  EXPECT_EQ(get(20)->file_name(), "20");
  EXPECT_FALSE(get(21));
  put(1, 2, 5, 0, 3);  // again: in its place, and the latest from now on
  put(1, 1, 30, 0, kStepTraceBytes - 4);
  EXPECT_THAT(list(1), ElementsAre(absl::StrCat("1-30-0 ", kStepTraceBytes - 4), "2-5-0 3"));
  for (int64_t step = 1; step <= kStepTraces + 2; ++step) put(1, 3, step, 0, 1);
  ASSERT_EQ(static_cast<int64_t>(list(1).size()), kStepTraces);
  EXPECT_EQ(list(1)[0], "3-3-0 1");
  EXPECT_THAT(list(2), ElementsAre("1-1-0 5")) << "of another job";
}

TEST_P(StoreContract, LogLinesAreNumberedPerJob) {
  ASSERT_TRUE(Insert(MakeJob(1)).ok());
  ASSERT_TRUE(Insert(MakeJob(2)).ok());
  // Lines 1 ... 12: attempts 1 and 2, ranks 0, 1 and none.
  for (int64_t i = 0; i < 12; ++i) {
    v1::LogLine line;
    line.set_sequence(777);  // not its own to give
    line.set_attempt(i < 6 ? 1 : 2);
    if (i % 3 < 2) line.set_rank(i % 3);
    line.set_text(absl::StrCat("line ", i + 1));
    ASSERT_TRUE(Write([&](Transaction& t) { return t.AppendLog(JobName(1), line); }).ok());
  }
  ASSERT_TRUE(Write([&](Transaction& t) { return t.AppendLog(JobName(2), {}); }).ok());
  const auto list = [&](LogQuery query) {
    query.job = query.job.empty() ? JobName(1) : query.job;
    std::vector<int64_t> numbers;
    for (const auto& line : Read([&](ReadTransaction& t) { return t.ListLogs(query); })) {
      EXPECT_EQ(line.text(), query.job == JobName(1) ? absl::StrCat("line ", line.sequence()) : "");
      numbers.push_back(line.sequence());
    }
    return numbers;
  };
  EXPECT_EQ(list({}).size(), 12u);
  EXPECT_THAT(list({.limit = 3}), ElementsAre(1, 2, 3));
  EXPECT_THAT(list({.limit = 3, .tail = true}), ElementsAre(10, 11, 12));
  EXPECT_THAT(list({.after_sequence = 9}), ElementsAre(10, 11, 12));
  EXPECT_THAT(list({.after_sequence = 10, .tail = true}), ElementsAre(11, 12));
  EXPECT_THAT(list({.after_sequence = 12}), IsEmpty());
  EXPECT_THAT(list({.limit = 0}), IsEmpty());
  EXPECT_THAT(list({.limit = -1, .tail = true}), IsEmpty());
  EXPECT_THAT(list({.attempt = 2}), ElementsAre(7, 8, 9, 10, 11, 12));
  EXPECT_THAT(list({.rank = 0}), ElementsAre(1, 4, 7, 10));
  EXPECT_THAT(list({.limit = 1, .tail = true, .attempt = 1, .rank = 1}), ElementsAre(5));
  EXPECT_THAT(list({.job = JobName(2)}), ElementsAre(1));
  Reopen();
  ASSERT_TRUE(Write([&](Transaction& t) { return t.AppendLog(JobName(2), {}); }).ok());
  EXPECT_THAT(list({.job = JobName(2)}), ElementsAre(1, 2));
}

TEST_P(StoreContract, TheOldestLinesOfALongLogGo) {
  ASSERT_TRUE(Insert(MakeJob(1)).ok());
  ASSERT_TRUE(Insert(MakeJob(2)).ok());
  const auto append = [&](int64_t number, int64_t lines) {
    ASSERT_TRUE(Write([&](Transaction& t) {
                  absl::Status status;
                  v1::LogLine line;
                  line.set_rank(0);
                  for (int64_t i = 0; i < lines && status.ok(); ++i) status = t.AppendLog(JobName(number), line);
                  return status;
                }).ok());
  };
  const auto first = [&](int64_t number, int64_t limit) {
    return Read([&](ReadTransaction& t) { return t.ListLogs({.job = JobName(number), .limit = limit}); });
  };
  append(2, 1);
  append(1, kLogLines + kLogPiece - 1);
  EXPECT_EQ(first(1, 1)[0].sequence(), 1);
  EXPECT_EQ(first(1, 1)[0].text(), "");
  append(1, 1);
  const auto lines = first(1, kLogLines + kLogPiece);
  ASSERT_EQ(lines.size(), kLogLines + 1);
  EXPECT_EQ(lines[0].sequence(), kLogPiece);
  EXPECT_FALSE(lines[0].has_rank());
  EXPECT_EQ(lines[0].text(), "the first 1000 lines were removed: of a job's log the latest 100000 are kept");
  EXPECT_EQ(lines[1].sequence(), kLogPiece + 1);
  EXPECT_EQ(lines.back().sequence(), kLogLines + kLogPiece);
  append(1, kLogPiece);
  EXPECT_EQ(first(1, 1)[0].sequence(), 2 * kLogPiece);
  EXPECT_EQ(first(1, 2)[1].sequence(), 2 * kLogPiece + 1);
  EXPECT_EQ(first(2, 10).size(), 1u) << "of another job";
}

TEST_P(StoreContract, FlightRecordGathersDumpsOfTheLatestAttempt) {
  ASSERT_TRUE(Insert(MakeJob(1)).ok());
  const auto put = [&](int64_t attempt, const std::string& reason, int64_t rank, const std::string& version) {
    v1::FlightRecord head;
    head.set_attempt(attempt);
    head.set_reason(reason);
    head.add_dumps()->set_rank(99);  // left out
    v1::FlightDump dump;
    dump.set_rank(rank);
    dump.set_version(version);
    ASSERT_TRUE(Write([&](Transaction& t) { return t.PutFlightRecord(JobName(1), head, rank < 0 ? nullptr : &dump); }).ok());
  };
  const auto get = [&] { return *Read([](ReadTransaction& t) { return t.GetFlightRecord(JobName(1)); }); };
  put(2, "asked for", -1, "");
  EXPECT_EQ(get().dumps_size(), 0);
  put(2, "late", 1, "old");
  put(2, "later", 0, "a");
  put(2, "last", 1, "new");
  put(1, "of an earlier attempt", 5, "b");
  EXPECT_EQ(get().attempt(), 2);
  EXPECT_EQ(get().reason(), "last");
  ASSERT_EQ(get().dumps_size(), 2);
  EXPECT_EQ(get().dumps(0).version(), "a");
  EXPECT_EQ(get().dumps(1).version(), "new");
}

TEST_P(StoreContract, WorkersByName) {
  const auto put = [&](const std::string& name, const std::string& host) {
    v1::Worker worker;
    worker.set_name(name);
    worker.set_host(host);
    (*worker.mutable_labels())["rack"] = "r1";
    ASSERT_TRUE(Write([&](Transaction& t) { return t.PutWorker(worker); }).ok());
  };
  put("workers/b", "first");
  put("workers/a", "other");
  put("workers/b", "second");
  auto workers = Read([](ReadTransaction& t) { return t.ListWorkers(); });
  ASSERT_EQ(workers.size(), 2u);
  EXPECT_EQ(workers[0].name(), "workers/a");
  EXPECT_EQ(workers[1].host(), "second");
  EXPECT_EQ(workers[1].labels().at("rack"), "r1");
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(Write([](Transaction& t) { return t.DeleteWorker("workers/b"); }).ok());
  }
  EXPECT_FALSE(Read([](ReadTransaction& t) { return t.GetWorker("workers/b"); }));
  EXPECT_EQ(Read([](ReadTransaction& t) { return t.GetWorker("workers/a"); })->host(), "other");
}

TEST_P(StoreContract, TokensByName) {
  const auto put = [&](const std::string& name, const std::string& digest) {
    v1::StoredToken token;
    token.mutable_token()->set_name(name);
    token.mutable_token()->set_role(v1::EDITOR);
    token.set_secret_sha256(digest);
    ASSERT_TRUE(Write([&](Transaction& t) { return t.PutToken(token); }).ok());
  };
  const std::string digest(64, 'f');
  put("tokens/b", "first");
  put("tokens/a", "other");
  put("tokens/b", digest);
  Reopen();
  const auto tokens = Read([](ReadTransaction& t) { return t.ListTokens(); });
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0].token().name(), "tokens/a");
  EXPECT_EQ(tokens[1].secret_sha256(), digest);
  EXPECT_EQ(tokens[1].token().role(), v1::EDITOR);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(Write([](Transaction& t) { return t.DeleteToken("tokens/a"); }).ok());
  }
  EXPECT_FALSE(Read([](ReadTransaction& t) { return t.GetToken("tokens/a"); }));
  EXPECT_EQ(Read([](ReadTransaction& t) { return t.GetToken("tokens/b"); })->secret_sha256(), digest);
}

TEST_P(StoreContract, TelemetrySequencesNeverFall) {
  const auto get = [&](const std::string& instance) {
    return Read([&](ReadTransaction& t) { return t.TelemetrySequence(instance); });
  };
  EXPECT_EQ(get("one"), 0);
  for (const auto& [set, expected] : {std::pair<int64_t, int64_t>{5, 5}, {3, 5}, {9, 9}}) {
    ASSERT_TRUE(Write([&](Transaction& t) { return t.SetTelemetrySequence("one", set); }).ok());
    EXPECT_EQ(get("one"), expected);
  }
  EXPECT_EQ(get("two"), 0);
}

}  // namespace
}  // namespace legoai::store
