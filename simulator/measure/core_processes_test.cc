#include "simulator/measure/core_processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "core/process/host_resources.h"

namespace legoai::sim {
namespace {

TEST(RunOnCoresTest, EachCoreIsAProcessOnOneProcessorOfItsOwn) {
  const std::vector<int> allowed = launch::AllowedCpus();
  auto results = RunOnCores(2, [](int64_t core) -> absl::StatusOr<std::vector<double>> {
    const std::vector<int> cpus = launch::AllowedCpus();
    return std::vector<double>{static_cast<double>(core), static_cast<double>(getpid()), static_cast<double>(cpus.size()),
                               static_cast<double>(cpus[0])};
  });
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 2u);
  for (int core = 0; core < 2; ++core) {
    EXPECT_EQ((*results)[core][0], core);
    EXPECT_EQ((*results)[core][2], 1);
  }
  EXPECT_NE((*results)[0][1], (*results)[1][1]);
  EXPECT_NE((*results)[0][1], getpid());
  if (allowed.size() > 1) {
    EXPECT_NE((*results)[0][3], (*results)[1][3]);
  }
}

TEST(RunOnCoresTest, LongResultsComeWhole) {
  constexpr int kNumbers = 200000;  // more than a pipe holds
  auto results = RunOnCores(2, [](int64_t core) -> absl::StatusOr<std::vector<double>> {
    std::vector<double> numbers(kNumbers);
    for (int i = 0; i < kNumbers; ++i) numbers[i] = static_cast<double>(i * (core + 1));
    return numbers;
  });
  ASSERT_TRUE(results.ok()) << results.status();
  for (int core = 0; core < 2; ++core) {
    ASSERT_EQ((*results)[core].size(), static_cast<size_t>(kNumbers));
    EXPECT_EQ((*results)[core].back(), static_cast<double>((kNumbers - 1) * (core + 1)));
  }
}

TEST(RunOnCoresTest, AFailureIsTold) {
  auto results = RunOnCores(2, [](int64_t core) -> absl::StatusOr<std::vector<double>> {
    if (core == 1) return absl::InternalError("the second core is unwell");
    return std::vector<double>{1};
  });
  EXPECT_EQ(results.status().message(), "the second core is unwell");
}

TEST(RunOnCoresTest, WhatTheyCountIsSeenWhileTheyWork) {
  SharedCounters counters(2), seen(1);
  auto results = RunOnCores(
      2,
      [&](int64_t core) -> absl::StatusOr<std::vector<double>> {
        counters[core] = 7 + core;
        while (seen[0] == 0) usleep(1000);  // so nobody ends before it was looked at
        return std::vector<double>{1};
      },
      [&] {
        if (counters.Smallest() == 7) seen[0] = 1;
      });
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(counters[0], 7);
  EXPECT_EQ(counters[1], 8);
}

TEST(RunOnCoresTest, AnExceptionIsTold) {
  auto results = RunOnCores(1, [](int64_t) -> absl::StatusOr<std::vector<double>> { throw std::runtime_error("thrown"); });
  EXPECT_EQ(results.status().message(), "thrown");
}

TEST(RunOnCoresTest, ADeadProcessIsTold) {
  auto results = RunOnCores(2, [](int64_t core) -> absl::StatusOr<std::vector<double>> {
    if (core == 0) raise(SIGKILL);
    return std::vector<double>{1};
  });
  EXPECT_EQ(results.status().code(), absl::StatusCode::kInternal);
  EXPECT_NE(results.status().message().find("signal 9"), std::string::npos) << results.status();
}

}  // namespace
}  // namespace legoai::sim
