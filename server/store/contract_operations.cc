// Every operation by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/store/contract_test.h"

namespace legoai::store {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Jobs = std::vector<v1::Job>;

std::string Text(const google::protobuf::Message& message) { return message.ShortDebugString(); }

std::vector<int64_t> Numbers(const Jobs& jobs) {
  std::vector<int64_t> numbers;
  for (const v1::Job& job : jobs) numbers.push_back(std::stoll(job.name().substr(job.name().rfind('/') + 1)));
  return numbers;
}

TEST_P(StoreContract, JobComesBackAsItWas) {
  v1::Job job = MakeJob(7, v1::RUNNING);
  job.mutable_spec()->set_display_name("Ärger \xF0\x9F\x94\xA5");
  job.mutable_spec()->mutable_model()->set_config_json(std::string(100'000, 'x') + "\n\t\"");
  job.mutable_progress()->set_loss(0.1);
  job.set_committed_step(0);
  ASSERT_TRUE(Insert(job).ok());
  const auto get = [](ReadTransaction& t) { return t.GetJob(JobName(7)); };
  EXPECT_EQ(Text(*Read(get)), Text(job));
  Reopen();
  EXPECT_EQ(Text(*Read(get)), Text(job));
  EXPECT_FALSE(Read([](ReadTransaction& t) { return t.GetJob(JobName(8)); }));
}

TEST_P(StoreContract, InsertRefusesWhatIsThereAndWhatIsNoName) {
  ASSERT_TRUE(Insert(MakeJob(1)).ok());
  EXPECT_EQ(Insert(MakeJob(1)).code(), absl::StatusCode::kAlreadyExists);
  for (const char* name : {"", "jobs/1", "projects/default", "projects//jobs/1", "projects/a/jobs/", "projects/a/jobs/1/plan",
                           "projects/a/b/jobs/1", "other/a/jobs/1"}) {
    v1::Job job = MakeJob(2);
    job.set_name(name);
    EXPECT_EQ(Insert(job).code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST_P(StoreContract, SubmissionIsRememberedWithItsContent) {
  const Submission submission{"projects/default", "request-1", "abc"};
  ASSERT_TRUE(Write([&](Transaction& t) { return t.InsertJob(MakeJob(1), submission); }).ok());
  const auto again = Write([&](Transaction& t) { return t.InsertJob(MakeJob(2), submission); });
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(again.message().find(JobName(1)), std::string::npos) << again;
  // Nothing of the refused insertion is left, though the function went on.
  EXPECT_TRUE(Write([&](Transaction& t) {
                (void)t.InsertJob(MakeJob(2), submission);
                return absl::OkStatus();
              }).ok());
  EXPECT_FALSE(Read([](ReadTransaction& t) { return t.GetJob(JobName(2)); }));
  // Nor is the submission of a job that was refused.
  EXPECT_TRUE(Write([&](Transaction& t) {
                (void)t.InsertJob(MakeJob(1), Submission{"projects/default", "request-2", "abc"});
                return absl::OkStatus();
              }).ok());
  const auto find = [&](const std::string& project, const std::string& id) {
    return Read([&](ReadTransaction& t) { return t.FindSubmission(project, id); });
  };
  ASSERT_TRUE(find("projects/default", "request-1"));
  EXPECT_EQ(find("projects/default", "request-1")->job, JobName(1));
  EXPECT_EQ(find("projects/default", "request-1")->content_sha256, "abc");
  EXPECT_FALSE(find("projects/default", "request-2"));
  EXPECT_FALSE(find("projects/other", "request-1"));
  EXPECT_TRUE(Write([&](Transaction& t) {
                return t.InsertJob(MakeJob(1, v1::SUBMITTED, "projects/other"), Submission{"projects/other", "request-1", "abc"});
              }).ok());
}

TEST_P(StoreContract, UpdateNeedsTheVersionThatIsThere) {
  const v1::Job job = MakeJob(1);
  ASSERT_TRUE(Insert(job).ok());
  const v1::Job planning = Next(job, v1::PLANNING);
  EXPECT_TRUE(Write([&](Transaction& t) { return t.UpdateJob(planning, 1); }).ok());
  EXPECT_EQ(Write([&](Transaction& t) { return t.UpdateJob(planning, 1); }).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Write([&](Transaction& t) { return t.UpdateJob(planning, 2); }).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Write([&](Transaction& t) { return t.UpdateJob(MakeJob(2), 0); }).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Text(*Read([](ReadTransaction& t) { return t.GetJob(JobName(1)); })), Text(planning));
}

TEST_P(StoreContract, ListsFollowEveryChange) {
  v1::Job job = MakeJob(1);
  ASSERT_TRUE(Insert(job).ok());
  const auto listed = [&](v1::JobState state, const std::string& name) {
    JobQuery query{.project = "projects/default", .states = {state}, .display_name_contains = name};
    const Jobs jobs = Read([&](ReadTransaction& t) { return t.ListJobs(query); });
    EXPECT_EQ(Read([&](ReadTransaction& t) { return t.CountJobs(query); }), static_cast<int64_t>(jobs.size()));
    return jobs.size();
  };
  EXPECT_EQ(listed(v1::SUBMITTED, "job 1"), 1u);
  job = Next(job, v1::QUEUED);
  job.mutable_spec()->set_display_name("other");
  ASSERT_TRUE(Write([&](Transaction& t) { return t.UpdateJob(job, 1); }).ok());
  EXPECT_EQ(listed(v1::SUBMITTED, ""), 0u);
  EXPECT_EQ(listed(v1::QUEUED, "job 1"), 0u);
  EXPECT_EQ(listed(v1::QUEUED, "OTHER"), 1u);
}

// Jobs 1 ... 30 of three states, inserted in no order, and one of another project; and what lists say of them.
class Lists {
 public:
  explicit Lists(Store& store) : store_(store) {
    const absl::Status status = store_.Write([](Transaction& t) {
      for (int64_t i = 0; i < 30; ++i) {
        const int64_t number = i * 7 % 30 + 1;
        const v1::JobState state = number % 3 == 0 ? v1::QUEUED : number % 3 == 1 ? v1::RUNNING : v1::SUCCEEDED;
        v1::Job job = MakeJob(number, state);
        job.mutable_spec()->set_display_name(absl::StrCat(number % 2 == 0 ? "Llama 100% " : "GPT_2 ", number));
        if (absl::Status status = t.InsertJob(job, {}); !status.ok()) return status;
      }
      return t.InsertJob(MakeJob(15, v1::QUEUED, "projects/other"), {});
    });
    EXPECT_TRUE(status.ok()) << status;
  }
  std::vector<int64_t> List() {
    return Get([&](ReadTransaction& t) { return t.ListJobs(query); });
  }
  std::vector<int64_t> InStates(const std::vector<v1::JobState>& states) {
    return Get([&](ReadTransaction& t) { return t.JobsInStates(states); });
  }
  int64_t Count() {
    int64_t count = -1;
    EXPECT_TRUE(store_
                    .Read([&](ReadTransaction& t) {
                      count = t.CountJobs(query).value_or(-1);
                      return absl::OkStatus();
                    })
                    .ok());
    return count;
  }
  JobQuery query{.project = "projects/default"};

 private:
  std::vector<int64_t> Get(const std::function<absl::StatusOr<Jobs>(ReadTransaction&)>& read) {
    Jobs jobs;
    EXPECT_TRUE(store_
                    .Read([&](ReadTransaction& t) {
                      jobs = read(t).value_or(Jobs());
                      return absl::OkStatus();
                    })
                    .ok());
    return Numbers(jobs);
  }
  Store& store_;
};

TEST_P(StoreContract, JobsAreListedLatestFirstInPages) {
  Lists lists(store());
  lists.query.limit = 4;
  EXPECT_THAT(lists.List(), ElementsAre(30, 29, 28, 27));
  lists.query.before_id = JobId(27);
  EXPECT_THAT(lists.List(), ElementsAre(26, 25, 24, 23));
  lists.query.before_id = JobId(3);
  EXPECT_THAT(lists.List(), ElementsAre(2, 1));
  lists.query.before_id = JobId(1);
  EXPECT_THAT(lists.List(), IsEmpty());
  EXPECT_EQ(lists.Count(), 30);
  lists.query.before_id.clear();
  for (int64_t limit : {0, -1}) {
    lists.query.limit = limit;
    EXPECT_THAT(lists.List(), IsEmpty());
    lists.query.states = {v1::QUEUED};
    EXPECT_THAT(lists.List(), IsEmpty());
    lists.query.states.clear();
  }
}

TEST_P(StoreContract, ListsOfSeveralStatesAreInOrder) {
  Lists lists(store());
  lists.query.states = {v1::SUCCEEDED, v1::QUEUED, v1::SUCCEEDED, v1::FAILED};
  lists.query.limit = 5;
  EXPECT_THAT(lists.List(), ElementsAre(30, 29, 27, 26, 24));
  lists.query.before_id = JobId(24);
  EXPECT_THAT(lists.List(), ElementsAre(23, 21, 20, 18, 17));
  EXPECT_EQ(lists.Count(), 20);
}

TEST_P(StoreContract, NamesContainTextNotPatterns) {
  Lists lists(store());
  lists.query.limit = 3;
  for (const char* text : {"llama", "LLAMA 100%", "%"}) {
    lists.query.display_name_contains = text;
    EXPECT_THAT(lists.List(), ElementsAre(30, 28, 26)) << text;
    EXPECT_EQ(lists.Count(), 15) << text;
  }
  lists.query.display_name_contains = "_";
  EXPECT_EQ(lists.Count(), 15);
  lists.query.display_name_contains = "a_";
  EXPECT_EQ(lists.Count(), 0);
  lists.query.display_name_contains = "gpt_2 1";
  lists.query.states = {v1::RUNNING};
  EXPECT_THAT(lists.List(), ElementsAre(19, 13, 1));
}

TEST_P(StoreContract, TextIsInTheNameOrInTheId) {
  Lists lists(store());
  lists.query.text_contains = JobId(17);
  EXPECT_THAT(lists.List(), ElementsAre(17));
  lists.query.text_contains = "0028";
  EXPECT_THAT(lists.List(), ElementsAre(28));
  lists.query.text_contains = "gpt_2 1";
  EXPECT_THAT(lists.List(), ElementsAre(19, 17, 15, 13, 11, 1));
  lists.query.text_contains = "13";
  EXPECT_EQ(lists.Count(), 1);
  lists.query.states = {v1::QUEUED};
  EXPECT_THAT(lists.List(), IsEmpty());
  EXPECT_EQ(lists.Count(), 0);
  lists.query.text_contains = "012";
  EXPECT_THAT(lists.List(), ElementsAre(12));
  lists.query.display_name_contains = "gpt";
  EXPECT_THAT(lists.List(), IsEmpty());
}

TEST_P(StoreContract, CreatedFromInclusiveUntilExclusive) {
  Lists lists(store());
  lists.query.created_from_us = CreateTime(10);
  lists.query.created_until_us = CreateTime(13);
  EXPECT_THAT(lists.List(), ElementsAre(12, 11, 10));
  EXPECT_EQ(lists.Count(), 3);
  lists.query.states = {v1::QUEUED, v1::RUNNING};
  EXPECT_THAT(lists.List(), ElementsAre(12, 10));
  EXPECT_EQ(lists.Count(), 2);
  lists.query.created_until_us = 0;
  EXPECT_EQ(lists.Count(), 14);
}

TEST_P(StoreContract, ProjectsAreApart) {
  Lists lists(store());
  lists.query.project = "projects/other";
  EXPECT_THAT(lists.List(), ElementsAre(15));
  lists.query.project = "projects/none";
  EXPECT_THAT(lists.List(), IsEmpty());
  EXPECT_EQ(lists.Count(), 0);
}

TEST_P(StoreContract, JobsInStatesOfAllProjectsEarliestFirst) {
  Lists lists(store());
  EXPECT_THAT(lists.InStates({v1::QUEUED}), ElementsAre(3, 6, 9, 12, 15, 15, 18, 21, 24, 27, 30));
  EXPECT_EQ(lists.InStates({v1::RUNNING, v1::QUEUED, v1::QUEUED}).size(), 21u);
  const std::vector<int64_t> all = lists.InStates({v1::SUCCEEDED, v1::RUNNING, v1::QUEUED});
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  EXPECT_THAT(lists.InStates({}), IsEmpty());
}

TEST_P(StoreContract, CountsByStateAreOfAllProjectsAndFollowEveryChange) {
  using Counts = std::map<v1::JobState, int64_t>;
  const auto counts = [this] { return Read([](ReadTransaction& t) { return t.CountJobsByState(); }); };
  EXPECT_EQ(counts(), Counts());
  const Lists lists(store());
  EXPECT_EQ(counts(), (Counts{{v1::QUEUED, 11}, {v1::RUNNING, 10}, {v1::SUCCEEDED, 10}}));
  ASSERT_TRUE(Insert(MakeJob(99)).ok());
  EXPECT_EQ(counts()[v1::SUBMITTED], 1);
  ASSERT_TRUE(Write([](Transaction& t) { return t.UpdateJob(Next(MakeJob(99), v1::PLANNING), 1); }).ok());
  EXPECT_EQ(counts(), (Counts{{v1::QUEUED, 11}, {v1::RUNNING, 10}, {v1::SUCCEEDED, 10}, {v1::PLANNING, 1}}));
}

TEST_P(StoreContract, ProjectsAreThoseThatHaveJobs) {
  const auto projects = [this] { return Read([](ReadTransaction& t) { return t.ListProjects(); }); };
  EXPECT_THAT(projects(), IsEmpty());
  ASSERT_TRUE(Insert(MakeJob(1, v1::SUBMITTED, "projects/other")).ok());
  ASSERT_TRUE(Insert(MakeJob(2)).ok());
  ASSERT_TRUE(Insert(MakeJob(3)).ok());
  ASSERT_TRUE(Write([](Transaction& t) { return t.UpdateJob(Next(MakeJob(2), v1::CANCELLED), 1); }).ok());
  EXPECT_THAT(projects(), ElementsAre("projects/default", "projects/other"));
}

TEST_P(StoreContract, WhatBelongsToAJobNeedsIt) {
  v1::Transition transition;
  transition.set_job(JobName(1));
  const std::vector<std::function<absl::Status(Transaction&)>> writes = {
      [&](Transaction& t) { return t.AppendTransition(transition); },
      [&](Transaction& t) { return t.PutAttempt(JobName(1), {}); },
      [&](Transaction& t) { return t.PutCheckpoint(JobName(1), {}); },
      [&](Transaction& t) { return t.PutPlan(JobName(1), {}); },
      [&](Transaction& t) { return t.AppendMetrics(JobName(1), {}); },
      [&](Transaction& t) { return t.PutStepTrace(JobName(1), {}, {}); },
      [&](Transaction& t) { return t.AppendLog(JobName(1), {}); },
      [&](Transaction& t) { return t.PutFlightRecord(JobName(1), {}, nullptr); },
  };
  for (const auto& write : writes) EXPECT_EQ(Write(write).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Read([](ReadTransaction& t) { return t.ListTransitions(JobName(1), 0, 9); }), IsEmpty());
  EXPECT_THAT(Read([](ReadTransaction& t) { return t.ListAttempts(JobName(1)); }), IsEmpty());
  EXPECT_THAT(Read([](ReadTransaction& t) { return t.ListCheckpoints(JobName(1)); }), IsEmpty());
  EXPECT_THAT(Read([](ReadTransaction& t) { return t.ListKeptCheckpoints(JobName(1)); }), IsEmpty());
  EXPECT_FALSE(Read([](ReadTransaction& t) { return t.GetPlan(JobName(1)); }));
  EXPECT_THAT(Read([](ReadTransaction& t) { return ListMetrics(t, JobName(1), 0); }), IsEmpty());
  EXPECT_THAT(Read([](ReadTransaction& t) { return t.ListRankReports(JobName(1), 9); }), IsEmpty());
  EXPECT_THAT(Read([](ReadTransaction& t) { return t.ListStepTraces(JobName(1)); }), IsEmpty());
  EXPECT_FALSE(Read([](ReadTransaction& t) { return t.GetStepTrace(JobName(1), 1, 1, 0); }));
  EXPECT_THAT(Read([](ReadTransaction& t) { return t.ListLogs({.job = JobName(1)}); }), IsEmpty());
  EXPECT_FALSE(Read([](ReadTransaction& t) { return t.GetFlightRecord(JobName(1)); }));
}

}  // namespace
}  // namespace legoai::store
