// What a transaction promises, alone and beside others.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "server/store/contract_test.h"

namespace legoai::store {
namespace {

// The job with its step increased by `by`, as of its own version.
absl::Status AddSteps(Transaction& t, int64_t job, int64_t by) {
  absl::StatusOr<std::optional<v1::Job>> found = t.GetJob(JobName(job));
  if (!found.ok()) return found.status();
  v1::Job next = Next(**found, v1::RUNNING);
  next.mutable_progress()->set_step(next.progress().step() + by);
  return t.UpdateJob(next, next.version() - 1);
}

absl::StatusOr<int64_t> Steps(ReadTransaction& t, int64_t job) {
  absl::StatusOr<std::optional<v1::Job>> found = t.GetJob(JobName(job));
  if (!found.ok()) return found.status();
  return (*found)->progress().step();
}

void Together(int threads, const std::function<void(int)>& work) {
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) running.emplace_back([&work, i] { work(i); });
  for (std::thread& thread : running) thread.join();
}

TEST_P(StoreContract, AnErrorUndoesAllOfTheFunction) {
  ASSERT_TRUE(Insert(MakeJob(1)).ok());
  const absl::Status refused = Write([](Transaction& t) {
    EXPECT_TRUE(AddSteps(t, 1, 5).ok());
    EXPECT_TRUE(t.InsertJob(MakeJob(2), Submission{"projects/default", "request-1", "x"}).ok());
    EXPECT_TRUE(t.AppendLog(JobName(1), {}).ok());
    EXPECT_EQ(*Steps(t, 1), 5);  // its own changes are seen
    return absl::UnauthenticatedError("said the function");
  });
  EXPECT_EQ(refused, absl::UnauthenticatedError("said the function"));
  EXPECT_TRUE(store()
                  .Read([](ReadTransaction& t) {
                    EXPECT_EQ(*Steps(t, 1), 0);
                    EXPECT_FALSE(*t.GetJob(JobName(2)));
                    EXPECT_FALSE(*t.FindSubmission("projects/default", "request-1"));
                    EXPECT_TRUE(t.ListLogs({.job = JobName(1)})->empty());
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_TRUE(Insert(MakeJob(2)).ok());
}

TEST_P(StoreContract, AReadPassesTheFunctionsErrorOn) {
  EXPECT_EQ(store().Read([](ReadTransaction&) { return absl::NotFoundError("said the function"); }),
            absl::NotFoundError("said the function"));
}

TEST_P(StoreContract, AbortedIsTriedAgainAFewTimes) {
  ASSERT_TRUE(Insert(MakeJob(1)).ok());
  int runs = 0;
  EXPECT_TRUE(Write([&](Transaction& t) {
                EXPECT_EQ(*Steps(t, 1), 0);  // what the run before did is undone
                EXPECT_TRUE(AddSteps(t, 1, 1).ok());
                return ++runs < 3 ? absl::AbortedError("once more") : absl::OkStatus();
              }).ok());
  EXPECT_EQ(runs, 3);
  runs = 0;
  EXPECT_EQ(Write([&](Transaction&) {
              ++runs;
              return absl::AbortedError("always");
            }).code(),
            absl::StatusCode::kAborted);
  EXPECT_GE(runs, 2);
  EXPECT_LE(runs, 20);
}

TEST_P(StoreContract, AFunctionMayNotCallItsStore) {
  const auto write = [&] { return Write([](Transaction&) { return absl::OkStatus(); }); };
  const auto read = [&] { return store().Read([](ReadTransaction&) { return absl::OkStatus(); }); };
  for (const std::function<absl::Status()>& inner : {std::function<absl::Status()>(write), std::function<absl::Status()>(read)}) {
    EXPECT_EQ(Write([&](Transaction&) { return inner(); }).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(store().Read([&](ReadTransaction&) { return inner(); }).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(inner().ok());
  }
}

TEST_P(StoreContract, NothingIsLostBetweenThreads) {
  // A process that is killed in the middle of writing loses nothing that it was told is durable, and leaves no half transactions.

  constexpr int kThreads = 8, kEach = 40;
  ASSERT_TRUE(Insert(MakeJob(1)).ok());
  Together(kThreads, [&](int) {
    for (int i = 0; i < kEach; ++i) {
      const absl::Status status = Write([](Transaction& t) { return AddSteps(t, 1, 1); });
      EXPECT_TRUE(status.ok()) << status;
    }
  });
  EXPECT_EQ(Read([](ReadTransaction& t) { return Steps(t, 1); }), kThreads * kEach);
}

// Optimistic changes, with the version read before: those that are refused are not done, those that are accepted are.
TEST_P(StoreContract, ChangesByVersionAreRefusedOrDone) {
  ASSERT_TRUE(Insert(MakeJob(1)).ok());
  std::atomic<int> accepted = 0, refused = 0;
  Together(4, [&](int) {
    for (int i = 0; i < 40; ++i) {
      v1::Job job = *Read([](ReadTransaction& t) { return t.GetJob(JobName(1)); });
      job.mutable_progress()->set_step(job.progress().step() + 1);
      job = Next(job, v1::RUNNING);
      const absl::Status status = Write([&](Transaction& t) { return t.UpdateJob(job, job.version() - 1); });
      ++(status.ok() ? accepted : refused);
      EXPECT_TRUE(status.ok() || absl::IsAborted(status)) << status;
    }
  });
  EXPECT_EQ(Read([](ReadTransaction& t) { return Steps(t, 1); }), accepted);
  EXPECT_EQ(accepted + refused, 160);
}

// Some functions fail after they have changed something: only they are undone, whoever is made durable together with them.
TEST_P(StoreContract, ErrorsOfOthersDoNoHarm) {
  constexpr int kThreads = 8, kEach = 40;
  for (int i = 0; i < kThreads; ++i) ASSERT_TRUE(Insert(MakeJob(i)).ok());
  Together(kThreads, [&](int thread) {
    for (int i = 0; i < kEach; ++i) {
      const bool fails = (i + thread) % 3 == 0;
      const absl::Status status = Write([&](Transaction& t) {
        EXPECT_TRUE(AddSteps(t, thread, 1).ok());
        return fails ? absl::CancelledError("no") : absl::OkStatus();
      });
      EXPECT_EQ(status.code(), fails ? absl::StatusCode::kCancelled : absl::StatusCode::kOk) << status;
    }
  });
  Reopen();
  for (int thread = 0; thread < kThreads; ++thread) {
    int expected = 0;
    for (int i = 0; i < kEach; ++i) expected += (i + thread) % 3 != 0;
    EXPECT_EQ(Read([&](ReadTransaction& t) { return Steps(t, thread); }), expected);
  }
}

// Steps move between two jobs: every reader sees as many as there are, and sees the same twice.
TEST_P(StoreContract, ReadsSeeOneStateWhateverIsWritten) {
  ASSERT_TRUE(Insert(MakeJob(1)).ok());
  ASSERT_TRUE(Insert(MakeJob(2)).ok());
  std::atomic<int> writers = 2;
  std::atomic<int> reads = 0;
  Together(5, [&](int thread) {
    if (thread < 2) {
      for (int i = 0; i < 60; ++i) {
        EXPECT_TRUE(Write([&](Transaction& t) {
                      RETURN_IF_ERROR(AddSteps(t, 1, i));
                      return AddSteps(t, 2, -i);
                    }).ok());
      }
      --writers;
      return;
    }
    do {
      const absl::Status status = store().Read([&](ReadTransaction& t) {
        const int64_t first = *Steps(t, 1);
        EXPECT_EQ(first + *Steps(t, 2), 0);
        std::this_thread::yield();
        EXPECT_EQ(*Steps(t, 1), first);
        return absl::OkStatus();
      });
      EXPECT_TRUE(status.ok()) << status;
      ++reads;
    } while (writers > 0);
  });
  EXPECT_GE(reads, 3);
}

TEST_P(StoreContract, AReadAfterAWriteSeesIt) {
  Together(4, [&](int thread) {
    for (int i = 0; i < 20; ++i) {
      const int64_t number = thread * 100 + i;
      EXPECT_TRUE(Insert(MakeJob(number)).ok());
      EXPECT_TRUE(Read([&](ReadTransaction& t) { return t.GetJob(JobName(number)); }));
    }
  });
  EXPECT_EQ(Read([](ReadTransaction& t) { return t.CountJobs({.project = "projects/default"}); }), 80);
}

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
