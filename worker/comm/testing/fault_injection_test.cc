#include "worker/comm/testing/fault_injection.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/comm/local_communicator.h"

namespace legoai::comm::testing {
namespace {

CommunicatorFactory Local() {
  return [](const mesh::Group&, int64_t, int64_t) -> absl::StatusOr<std::unique_ptr<Communicator>> {
    return MakeLocalCommunicator();
  };
}

absl::Status AllReduceOnce(Communicator& communicator) {
  float value = 1;
  return communicator.AllReduce(&value, 1, c10::ScalarType::Float, ReduceOp::kSum);
}

TEST(FaultInjection, FailsAtItsStepAndOperationOnly) {
  FaultClock clock;
  auto factory = WithFault(Local(), 1, {.kind = Fault::Kind::kError, .rank = 1, .step = 2, .sequence = 1}, &clock);
  auto first = factory({mesh::Dim::kTp, {1, 1, 1}}, 0, 0).value(), second = factory({mesh::Dim::kDp, {1, 1, 1}}, 0, 0).value();
  for (int64_t step = 0; step < 4; ++step) {
    clock.BeginStep(step);
    EXPECT_TRUE(AllReduceOnce(*first).ok()) << step;
    EXPECT_EQ(AllReduceOnce(*second).ok(), step != 2) << step;
    EXPECT_TRUE(AllReduceOnce(*second).ok()) << step;
  }
}

TEST(FaultInjection, LeavesOtherRanksAlone) {
  FaultClock clock;
  auto communicator = WithFault(Local(), 0, {.rank = 1}, &clock)({mesh::Dim::kTp, {0, 1, 1}}, 0, 0).value();
  EXPECT_TRUE(AllReduceOnce(*communicator).ok());
}

TEST(FaultInjection, KillsTheProcess) {
  const pid_t child = fork();
  if (child == 0) {
    FaultClock clock;
    (void)AllReduceOnce(*WithFault(Local(), 0, {.kind = Fault::Kind::kKill}, &clock)({mesh::Dim::kTp, {0, 1, 1}}, 0, 0).value());
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

}  // namespace
}  // namespace legoai::comm::testing
