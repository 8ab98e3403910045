#include "server/jobs/names.h"

#include <gtest/gtest.h>

#include <tuple>

#include "proto/errors.h"
#include "proto/testing/assert_ok.h"

namespace legoai::server {
namespace {

constexpr char kId[] = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

TEST(Names, WhatIsFormattedIsParsed) {
  const std::string job = FormatJobName("default", kId);
  EXPECT_EQ(job, "projects/default/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV");
  ASSERT_OK_AND_ASSIGN(const auto parsed, ParseJobName("name", job));
  EXPECT_EQ(parsed.project, "default");
  EXPECT_EQ(parsed.id, kId);
  const auto attempt = ParseAttemptName("name", FormatAttemptName(job, 12));
  ASSERT_TRUE(attempt.ok()) << attempt.status();
  EXPECT_EQ(attempt->job, job);
  EXPECT_EQ(attempt->attempt, 12);
  EXPECT_EQ(FormatCheckpointName(job, 7), job + "/checkpoints/7");
  ASSERT_OK_AND_ASSIGN(const auto trace, ParseStepTraceName("name", FormatStepTraceName({job, 2, 100, 0})));
  EXPECT_EQ(trace.job, job);
  EXPECT_EQ(std::tuple(trace.attempt, trace.step, trace.rank), std::tuple(2, 100, 0));
  EXPECT_EQ(FormatStepTraceName(trace), job + "/stepTraces/2-100-0");
  EXPECT_EQ(*ParseWorkerName("name", FormatWorkerName("Node-7.rack_2")), "Node-7.rack_2");
  EXPECT_EQ(*ParseProjectName("parent", "projects/llama-3"), "llama-3");
}

TEST(Names, OthersAreRefusedWithFieldAndForm) {
  for (const char* name : {"", "projects", "projects/", "projects/Default", "projects/default/", "projects/-a", "project/default",
                           "projects/a_b", "projects/default/jobs"}) {
    const auto parsed = ParseProjectName("parent", name);
    ASSERT_FALSE(parsed.ok()) << name;
    EXPECT_EQ(GetFieldViolation(parsed.status())->field(), "parent");
  }
  const std::string job = FormatJobName("default", kId);
  for (const std::string& name :
       {std::string(), std::string(kId), job + "/", job + "X", FormatJobName("default", "01ARZ"),
        FormatJobName("default", "01arz3ndektsv4rrffq69g5fav"), FormatJobName("default", "81ARZ3NDEKTSV4RRFFQ69G5FAV"),
        FormatJobName("default", "01ARZ3NDEKTSV4RRFFQ69G5FAU"), FormatJobName("../..", kId)}) {
    EXPECT_FALSE(ParseJobName("name", name).ok()) << name;
  }
  for (const std::string& name : {job, job + "/attempts/", job + "/attempts/0", job + "/attempts/01", job + "/attempts/-1",
                                  job + "/attempts/+1", job + "/attempts/1/x", std::string("x/attempts/1")}) {
    EXPECT_FALSE(ParseAttemptName("name", name).ok()) << name;
  }
  for (const std::string& name :
       {job, job + "/stepTraces/", job + "/stepTraces/1-2", job + "/stepTraces/1-2-3-4", job + "/stepTraces/01-2-3",
        job + "/stepTraces/1--2-3", job + "/stepTraces/a-2-3", std::string("x/stepTraces/1-2-3")}) {
    EXPECT_FALSE(ParseStepTraceName("name", name).ok()) << name;
  }
  for (const std::string& name : {std::string("workers/"), std::string("workers/.."), std::string("workers/a/b"),
                                  "workers/" + std::string(64, 'a'), std::string("node-7"), std::string("workers/a b")}) {
    EXPECT_FALSE(ParseWorkerName("name", name).ok()) << name;
  }
}

TEST(Names, ALongNameIsShownInPart) {
  const auto parsed = ParseJobName("name", std::string(1 << 20, 'x'));
  EXPECT_LT(parsed.status().message().size(), 1000u);
}

}  // namespace
}  // namespace legoai::server
