// What cannot be is said clearly, and nothing is lost: ports and stores in use, data that agents do not see.
#include <gmock/gmock.h>
#include <signal.h>

#include "proto/legoai/v1/error.pb.h"
#include "tests/service/service_processes.h"
#include "tests/service/service_test_fixture.h"

namespace legoai::service {
namespace {

using cli::testing::Result;
using ::testing::HasSubstr;

class BadServiceInput : public ServiceTest {
 protected:
  Result StartAnother(const std::string& listen, const std::string& data) {
    return Wait(StartProgram(ServerCommand(listen, data)));
  }
};

TEST_F(BadServiceInput, ASecondServerOnThePortOrTheStoreIsRefusedAndTheFirstGoesOn) {
  const Result port = StartAnother(address(), Path("other"));
  EXPECT_EQ(port.code, 2);
  EXPECT_THAT(port.err, HasSubstr("--listen = " + address()));
  EXPECT_THAT(port.err, HasSubstr("the port is in use"));
  const Result store = StartAnother("127.0.0.1:0", Path("data"));
  EXPECT_EQ(store.code, 2);
  EXPECT_THAT(store.err, HasSubstr("works with it"));
  const Result nonsense = StartAnother("nowhere", Path("other"));
  EXPECT_EQ(nonsense.code, 2);
  EXPECT_THAT(nonsense.err, HasSubstr("--listen = nowhere"));
  EXPECT_EQ(Get(Submit(2, 10, 10)).state(), v1::SUBMITTED);
}

TEST_F(BadServiceInput, DataThatTheAgentDoesNotSeeFailTheJobAndNameTheField) {
  StartAgent("a", 2);
  const std::string job = Submit(2, 10, 10, 1, Path("nothing.txt"));
  cli::testing::WaitUntil("the end of the job", [&] { return Get(job).has_end_time_us(); });
  const v1::Job failed = Get(job);
  EXPECT_EQ(failed.state(), v1::FAILED);
  EXPECT_THAT(failed.reason(), HasSubstr(Path("nothing.txt")));
  v1::FieldViolation violation;
  ASSERT_EQ(failed.outcome().error().details_size(), 1);
  ASSERT_TRUE(failed.outcome().error().details(0).UnpackTo(&violation));
  EXPECT_THAT(violation.field(), HasSubstr("dataset"));
  EXPECT_FALSE(violation.remedy().empty());
  EXPECT_EQ(Attempts(job).size(), 1);
  const Result logs = Run({"logs", job, "--server", address()});
  EXPECT_EQ(logs.code, 0) << logs.err;
  for (const char* part : {"job leased: 2 slots of workers/a", "attempt 1 begins: 2 ranks of workers/a (",
                           "error: attempt 1 has failed: ", "error: job failed: "}) {
    EXPECT_THAT(logs.out, HasSubstr(part));
  }
  EXPECT_THAT(logs.out, HasSubstr(Path("nothing.txt")));
}

}  // namespace
}  // namespace legoai::service
