// The health of workers, from the agent's check or its GPU's driver to what `lego workers` says and what jobs get.
#include <gmock/gmock.h>

#include "core/hardware/testing/fake_gpus.h"
#include "server/cli/testing/lego_process.h"
#include "tests/service/service_processes.h"
#include "tests/service/service_test_fixture.h"

namespace legoai::service {
namespace {

using cli::testing::Result;
using ::testing::HasSubstr;
using ::testing::Not;
using sim::testing::FakeGpus;
using sim::testing::FakeH100;

class HealthTest : public ServiceTest {
 protected:
  std::string Show(const std::string& worker) { return Run({"workers", worker, "--server", address()}).out; }
  void AwaitShown(const std::string& worker, const std::string& text) {
    cli::testing::WaitUntil(text + " of " + worker, [&] { return Show(worker).find(text) != std::string::npos; });
  }
};

TEST_F(HealthTest, AMachineIsCheckedAndThenTrains) {
  StartAgent("a", 2, {"--check=true"});
  const std::string job = Submit(2, 20, 10);
  AwaitShown("a", "check 1 of ");
  const std::string shown = Show("a");
  for (const char* part : {"  disk: passed in ", "B/s written", "  device of slot 0: passed in ",
                           "  device of slot 1: passed in ", "  all_gather of slots 0 and 1: passed in "})
    EXPECT_THAT(shown, HasSubstr(part));
  EXPECT_THAT(shown, Not(HasSubstr("gets nothing new")));
  AwaitSuccess(job);
  const Result again = Run({"workers", "a", "--check", "--server", address()});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("check 2 of "));
}

// The driver is a fake, and so are the trainers that check its cards.
TEST_F(HealthTest, AGpuThatFallsIllGetsNothingUntilAnOperatorTakesItBack) {
  FakeGpus fake({FakeH100("GPU-a"), FakeH100("GPU-b") + ",ecc=0"});
  StartAgent("g", 2, {"--device=cuda", "--trainer=worker/launch/test_trainer"});
  EXPECT_THAT(Show("g"), HasSubstr("slot 1: GPU 1, NVIDIA H100 80GB HBM3, GPU-b"));
  fake.Change("GPU-a", "xid=79");
  AwaitShown("g", "slot 0 gets nothing new");
  EXPECT_THAT(Show("g"), HasSubstr("(gpu_xid): its driver told of Xid 79"));
  EXPECT_THAT(Show("g"), HasSubstr("ready, 1 slot faulty"));
  fake.Change("GPU-b", "ecc=1,reasons=64");
  AwaitShown("g", "2 slots faulty");
  AwaitShown("g", "slowed down: hw_thermal");
  EXPECT_THAT(Show("g"), HasSubstr("(gpu_memory): 1 ECC error of its memory could not be corrected"));
  const std::string job = Submit(1, 20, 10);
  Await(job, "why it waits", [](const v1::Job& now) { return now.reason().find("has faulty slots") != std::string::npos; });

  const Result taken = Run({"workers", "g", "--check", "--server", address()});
  EXPECT_EQ(taken.code, 0) << taken.err;
  EXPECT_THAT(taken.out, HasSubstr("check 1 of "));
  cli::testing::WaitUntil("sound slots", [&] { return Show("g").find("gets nothing new") == std::string::npos; });
  Await(job, "a plan", [](const v1::Job& now) { return now.state() != v1::SUBMITTED; });
}

}  // namespace
}  // namespace legoai::service
