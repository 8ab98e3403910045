// A rank that hangs: noticed by missing progress, explained by the dumps of all ranks, and survived.
#include <signal.h>

#include <algorithm>

#include "tests/service/service_test_fixture.h"

namespace legoai::service {
namespace {

using cli::testing::WaitUntil;

class HangTest : public ServiceTest {};

TEST_F(HangTest, AStoppedRankIsNamedWithItsCollectiveAndTheJobGoesOn) {
  StartAgent("a", 2);
  const std::string job = Submit(2, 300, 20);
  AwaitCommit(job, 20);
  const pid_t hanging = Trainer(1);
  ASSERT_NE(hanging, 0);
  Signal(hanging, SIGSTOP);
  Await(job, "the end of the attempt", [](const v1::Job& now) { return now.restarts() == 1; });
  const v1::Attempt attempt = Attempts(job)[0];
  EXPECT_EQ(attempt.state(), "failed");
  EXPECT_NE(attempt.error().message().find("rank 1"), std::string::npos) << attempt.error().message();
  v1::GetFlightRecordRequest request;
  request.set_name(job);
  v1::FlightRecord record;
  WaitUntil("the dumps of both ranks", [&] {
    grpc::ClientContext context;
    return stub_->GetFlightRecord(&context, request, &record).ok() && record.dumps_size() == 2;
  });
  EXPECT_EQ(record.attempt(), 1);
  EXPECT_FALSE(record.reason().empty());
  // Stopped before a collective it is the culprit; stopped inside of one it is among those who may be.
  const auto& culprits = record.analysis().culprits();
  const bool blamed = std::count(culprits.begin(), culprits.end(), 1) > 0;
  EXPECT_TRUE(blamed || culprits.empty()) << record.analysis().text();
  EXPECT_FALSE(record.analysis().text().empty());
  const cli::testing::Result fr = Run({"fr", job, "--server", address()});
  EXPECT_EQ(fr.code, 0) << fr.err;
  EXPECT_NE(fr.out.find("rank"), std::string::npos) << fr.out;
  AwaitSuccess(job);
  EXPECT_EQ(Losses(job).size(), 300);
}

}  // namespace
}  // namespace legoai::service
