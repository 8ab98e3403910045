#include "server/cli/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace legoai::cli {
namespace {

TEST(Interrupt, TheFirstSignalSavesAndTheSecondDoesNot) {
  InterruptGuard guard;
  EXPECT_FALSE(guard.interrupted());
  raise(SIGTERM);
  EXPECT_TRUE(guard.interrupted());
  EXPECT_EQ(guard.stop_pipe()->Take(), launch::Stop::kSave);
  raise(SIGINT);
  EXPECT_EQ(guard.stop_pipe()->Take(), launch::Stop::kDiscard);
}

TEST(Interrupt, SignalsAreAnsweredAtOnce) {
  for (const bool announced : {true, false}) {
    InterruptGuard guard;
    if (announced) guard.Announce("stopping after this step", "stopping now");
    ::testing::internal::CaptureStderr();
    raise(SIGINT);
    raise(SIGTERM);
    raise(SIGINT);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(),
              announced ? "stopping after this step\nstopping now\nstopping now\n" : "");
  }
}

TEST(Interrupt, WhatWasIgnoredStaysSo) {
  signal(SIGHUP, SIG_IGN);
  {
    InterruptGuard guard;
    raise(SIGHUP);
    EXPECT_FALSE(guard.interrupted());
  }
  EXPECT_EQ(signal(SIGHUP, SIG_DFL), SIG_IGN);
  EXPECT_EQ(signal(SIGINT, SIG_DFL), SIG_DFL) << "as it was before";
}

TEST(Interrupt, APipeWithoutReaderEndsNothing) {
  InterruptGuard guard;
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  close(fds[0]);
  EXPECT_EQ(write(fds[1], "x", 1), -1);
  close(fds[1]);
}

TEST(Interrupt, ALookerOnEndsWithItsReader) {
  EXPECT_EXIT(
      {
        InterruptGuard guard(InterruptGuard::ClosedOutput::kEndsProcess);
        int fds[2];
        if (pipe(fds) != 0) _exit(1);
        close(fds[0]);
        (void)!write(fds[1], "x", 1);
        _exit(2);
      },
      testing::KilledBySignal(SIGPIPE), "");
}

}  // namespace
}  // namespace legoai::cli
