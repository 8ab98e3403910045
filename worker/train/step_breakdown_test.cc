#include "worker/train/step_breakdown.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "core/trace/annotation.h"

namespace legoai::train {
namespace {

using comm::StepTimes;
using comm::TimeSpan;
using graph::Phase;

const std::vector<mesh::Group> kGroups = {{mesh::Dim::kWorld, {0, 1, 4}}, {mesh::Dim::kDpShard, {0, 2, 2}},
                                          {mesh::Dim::kTp, {0, 1, 1}}};

StepTimes::Call Call(const char* kind, int64_t group, int64_t stream, int64_t begin, int64_t end) {
  return {kind, group, stream, comm::kNotRecorded, {begin, end}};
}

TEST(StepBreakdown, PhasesAreSummedAndRecomputationIsBackward) {
  StepTimes times;
  times.phases = {{Phase::kForward, {0, 10}},   {Phase::kBackward, {10, 30}},  {Phase::kForward, {30, 35}},
                  {Phase::kRecompute, {35, 38}}, {Phase::kOptimizer, {38, 45}}};
  const StepBreakdown breakdown = BreakdownOf(times, kGroups);
  EXPECT_EQ(breakdown.forward_ns, 15);
  EXPECT_EQ(breakdown.backward_ns, 23);
  EXPECT_EQ(breakdown.optimizer_ns, 7);
}

TEST(StepBreakdown, ExposedIsWhatTheComputeStreamWaitsFor) {
  StepTimes times;
  times.calls = {Call("all_gather", 1, comm::kAllGather, 0, 100),    // 20 of it waited for
                 Call("all_gather", 1, comm::kAllGather, 100, 150),  // hidden
                 Call("all_reduce", 0, comm::kCompute, 200, 230),    // on the compute stream: all of it
                 Call("all_reduce", 2, comm::kCompute, 300, 400)};   // alone in its group: a copy
  times.waits = {{80, 100}, {160, 170}};
  const StepBreakdown breakdown = BreakdownOf(times, kGroups);
  ASSERT_EQ(breakdown.collectives.size(), 2u);
  const auto& gather = breakdown.collectives.at({"all_gather", "dp_shard"});
  EXPECT_EQ(gather.count, 2);
  EXPECT_EQ(gather.ns, 150);
  EXPECT_EQ(gather.exposed_ns, 20);
  const auto& reduce = breakdown.collectives.at({"all_reduce", "world"});
  EXPECT_EQ(reduce.ns, 30);
  EXPECT_EQ(reduce.exposed_ns, 30);
  EXPECT_EQ(breakdown.exposed_ns, 50);
}

TEST(StepBreakdown, WhatRunsAtTheSameTimeIsExposedOnceInAll) {
  StepTimes times;
  times.calls = {Call("all_gather", 1, comm::kAllGather, 0, 60), Call("reduce_scatter", 1, comm::kReduceScatter, 40, 100)};
  times.waits = {{30, 80}};
  const StepBreakdown breakdown = BreakdownOf(times, kGroups);
  EXPECT_EQ(breakdown.collectives.at({"all_gather", "dp_shard"}).exposed_ns, 30);
  EXPECT_EQ(breakdown.collectives.at({"reduce_scatter", "dp_shard"}).exposed_ns, 40);
  EXPECT_EQ(breakdown.exposed_ns, 50);
}

// Against a count, nanosecond by nanosecond.
TEST(StepBreakdown, RandomStepsAgreeWithACountOfEachNanosecond) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto draw = [&](int64_t below) { return static_cast<int64_t>(random() % static_cast<uint64_t>(below)); };
  constexpr int64_t kLength = 300;
  for (int trial = 0; trial < 200; ++trial) {
    StepTimes times;
    std::vector<bool> idle(kLength), communicates(kLength);
    const auto span = [&](int64_t most) {
      const int64_t begin = draw(kLength - most);
      return TimeSpan{begin, begin + draw(most)};
    };
    const auto mark = [](const TimeSpan& marked, std::vector<bool>* in) {
      for (int64_t at = marked.begin_ns; at < marked.end_ns; ++at) (*in)[static_cast<size_t>(at)] = true;
    };
    for (int i = 0; i < 6; ++i) times.waits.push_back(span(20)), mark(times.waits.back(), &idle);
    const auto calls = draw(12);
    for (int64_t i = 0; i < calls; ++i) {
      const TimeSpan at = span(80);
      const bool own = draw(4) == 0;
      times.calls.push_back(Call("all_gather", draw(2), own ? comm::kCompute : comm::kAllGather, at.begin_ns, at.end_ns));
      mark(at, &communicates);
      if (own) mark(at, &idle);
    }
    int64_t exposed = 0, each = 0;
    for (size_t at = 0; at < idle.size(); ++at) exposed += idle[at] && communicates[at] ? 1 : 0;
    for (const auto& call : times.calls) {
      for (int64_t at = call.span.begin_ns; at < call.span.end_ns; ++at) each += idle[static_cast<size_t>(at)] ? 1 : 0;
    }
    const StepBreakdown breakdown = BreakdownOf(times, kGroups);
    int64_t sum = 0;
    for (const auto& [_, collective] : breakdown.collectives) {
      EXPECT_GE(collective.exposed_ns, 0);
      EXPECT_LE(collective.exposed_ns, collective.ns);
      sum += collective.exposed_ns;
    }
    EXPECT_EQ(breakdown.exposed_ns, exposed);
    EXPECT_EQ(sum, each);
  }
}

TEST(StepBreakdown, MeansAreOverItsSteps) {
  StepBreakdown sum;
  StepTimes times;
  times.calls = {Call("all_gather", 1, comm::kAllGather, 0, 100)};
  times.waits = {{50, 100}};
  StepBreakdown step = BreakdownOf(times, kGroups);
  step.step_ns = 400, step.data_ns = 40;
  sum.Add(step);
  step.step_ns = 200;
  sum.Add(step);
  const v1::RankMetrics means = sum.Means(3);
  EXPECT_EQ(means.rank(), 3);
  EXPECT_DOUBLE_EQ(means.step_seconds(), 300e-9);
  EXPECT_DOUBLE_EQ(means.data_seconds(), 40e-9);
  ASSERT_EQ(means.collectives_size(), 1);
  EXPECT_EQ(means.collectives(0).collective(), "all_gather");
  EXPECT_EQ(means.collectives(0).group(), "dp_shard");
  EXPECT_EQ(means.collectives(0).count(), 1);
  EXPECT_DOUBLE_EQ(means.collectives(0).seconds(), 100e-9);
  EXPECT_DOUBLE_EQ(means.collectives(0).exposed_seconds(), 50e-9);
  EXPECT_EQ(StepBreakdown().Means(0).collectives_size(), 0);
}

}  // namespace
}  // namespace legoai::train
