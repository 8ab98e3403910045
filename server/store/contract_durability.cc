// A process that is killed in the middle of writing loses nothing that it was told is durable, and leaves no half transactions.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <set>
#include <thread>
#include <vector>

#include "proto/status.h"
#include "server/store/contract_test.h"

namespace legoai::store {
namespace {

constexpr int kThreads = 4;

// Jobs from `first` on, each with a transition and a log line, from several threads for ever. What is durable is written to
// `acknowledge`. Never returns.
[[noreturn]] void WriteUntilKilled(const Backend& backend, const std::string& folder, int64_t first, int acknowledge) {
  const auto opened = backend.open(folder);
  if (!opened.ok()) _exit(1);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int64_t number = first + thread;; number += kThreads) {
        const absl::Status status = (*opened)->Write([&](Transaction& t) {
          v1::Transition transition;
          transition.set_job(JobName(number));
          transition.set_version(1);
          if (absl::Status inserted = t.InsertJob(MakeJob(number), {}); !inserted.ok()) return inserted;
          RETURN_IF_ERROR(t.AppendTransition(transition));
          return t.AppendLog(JobName(number), {});
        });
        if (!status.ok() || write(acknowledge, &number, sizeof(number)) != sizeof(number)) _exit(2);
      }
    });
  }
  threads[0].join();
  _exit(3);
}

// Kills `child` after `enough` acknowledgements; all that came.
std::set<int64_t> KillAfter(pid_t child, int acknowledged, size_t enough) {
  std::set<int64_t> numbers;
  int64_t number = 0;
  // A write of eight bytes to a pipe is one piece.
  while (read(acknowledged, &number, sizeof(number)) == sizeof(number)) {
    numbers.insert(number);
    if (numbers.size() == enough) kill(child, SIGKILL);
  }
  return numbers;
}

TEST_P(StoreContract, WhatWasAcknowledgedSurvivesSigkill) {
  const unsigned seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  std::set<int64_t> acknowledged;
  for (int64_t round = 0; round < 6; ++round) {
    Close();  // a fork must not have its connections
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      WriteUntilKilled(GetParam(), folder(), round * 1'000'000, ends[1]);
    }
    close(ends[1]);
    const std::set<int64_t> now = KillAfter(child, ends[0], 1 + random() % 60);
    close(ends[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "exit code " << WEXITSTATUS(status);
    acknowledged.insert(now.begin(), now.end());
    Reopen();
    EXPECT_TRUE(store()
                    .Read([&](ReadTransaction& t) {
                      for (int64_t number : acknowledged) EXPECT_TRUE(*t.GetJob(JobName(number))) << number;
                      const auto jobs = t.ListJobs({.project = "projects/default", .limit = 1'000'000});
                      for (const v1::Job& job : *jobs) {
                        EXPECT_EQ(t.ListTransitions(job.name(), 0, 9)->size(), 1u);
                        EXPECT_EQ(t.ListLogs({.job = job.name()})->size(), 1u);
                      }
                      return absl::OkStatus();
                    })
                    .ok());
    EXPECT_TRUE(Insert(MakeJob(round, v1::SUBMITTED, "projects/other")).ok());  // it goes on
  }
}

}  // namespace
}  // namespace legoai::store
