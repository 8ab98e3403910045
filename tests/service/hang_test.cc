// A rank that hangs: noticed by missing progress, explained by the dumps of all ranks with what the launcher knows of them, and
// survived.
#include <gmock/gmock.h>

#include <array>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/service_processes.h"
#include "tests/service/service_test_fixture.h"
#include "worker/launch/testing/rank_stopper.h"

namespace legoai::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSteps = 1000, kInterval = 20;

class HangTest : public ServiceTest {
 protected:
  // A job of two ranks that trains.
  void Begin() {
    StartAgent("a", 2);
    auto spec = TinyJob(folder_, 2, kSteps, kInterval);
    ASSERT_TRUE(spec.ok()) << spec.status();
    spec->mutable_recipe()->mutable_comm()->set_train_timeout_seconds(10);
    job_ = Submit(*std::move(spec));
    AwaitCommit(job_, kInterval);
    run_directory_ = absl::StrCat(Path("runs"), job_.substr(job_.rfind('/')), "/epoch-1");
    ASSERT_TRUE(Trainer(0) != 0 && Trainer(1) != 0);
    stopper_.emplace(run_directory_, std::array<pid_t, 2>{Trainer(0), Trainer(1)});
  }

  // What the service tells of the hang, which is what the job's page shows.
  v1::FlightRecord AwaitRecord() {
    Await(job_, "the end of the attempt", [](const v1::Job& now) { return now.restarts() == 1; });
    const v1::Attempt attempt = Attempts(job_)[0];
    EXPECT_EQ(attempt.state(), "failed");
    EXPECT_THAT(attempt.error().message(), HasSubstr("rank 1 "));
    v1::GetFlightRecordRequest request;
    request.set_name(job_);
    v1::FlightRecord record;
    grpc::ClientContext context;
    EXPECT_TRUE(stub_->GetFlightRecord(&context, request, &record).ok());
    EXPECT_EQ(record.attempt(), 1);
    EXPECT_EQ(record.dumps_size(), 2);
    EXPECT_EQ(record.reason(), attempt.error().message());
    return record;
  }

  // `lego fr` says the same, be it asked of the service or of the run directory.
  void ExpectCommandSays(const v1::FlightAnalysis& analysis) {
    for (const std::vector<std::string>& call :
         {std::vector<std::string>{"fr", job_, "--server", address()}, {"fr", run_directory_}}) {
      const cli::testing::Result fr = Run(call);
      EXPECT_EQ(fr.code, 0) << fr.err;
      EXPECT_THAT(fr.out, HasSubstr("culprit: rank 1\n"));
      EXPECT_THAT(fr.out, HasSubstr(analysis.text()));
    }
  }

  // Of the hang of rank 1, which both have: it has a finding.
  v1::FlightAnalysis AwaitAnalysis() {
    v1::FlightAnalysis analysis = AwaitRecord().analysis();
    EXPECT_THAT(analysis.culprits(), ElementsAre(1)) << analysis.DebugString();
    EXPECT_EQ(analysis.verdict(), "collective_state_mismatch");
    EXPECT_THAT(analysis.text(), HasSubstr("the process is stopped (SIGSTOP)"));
    EXPECT_GT(analysis.findings_size(), 0);
    if (analysis.findings().empty()) analysis.add_findings();
    EXPECT_THAT(analysis.findings(0).culprits(), ElementsAre(1));
    ExpectCommandSays(analysis);
    return analysis;
  }

  // The job goes on from its last commit, and ends.
  void ExpectRecovery() {
    AwaitSuccess(job_);
    const auto attempts = Attempts(job_);
    ASSERT_EQ(attempts.size(), 2);
    EXPECT_GE(attempts[1].resume_step(), kInterval);
  }

  std::string job_, run_directory_;
  std::optional<launch::testing::RankStopper> stopper_;
};

TEST_F(HangTest, ARankThatIsStoppedInsideOfACollectiveIsNamedWithIt) {
  Begin();
  const auto stopped = stopper_->StopInside();
  ASSERT_TRUE(stopped);
  const v1::FlightEntry& inside = *stopped;
  const v1::FlightAnalysis analysis = AwaitAnalysis();
  const v1::FlightFinding& finding = analysis.findings(0);
  EXPECT_EQ(finding.process_group(), inside.process_group());
  EXPECT_EQ(finding.sequence(), inside.collective_seq_id());
  EXPECT_EQ(finding.profiling_name(), inside.profiling_name());
  EXPECT_THAT(analysis.text(), HasSubstr(absl::StrCat("rank 1 has entered all_reduce ", inside.collective_seq_id(), " of ",
                                                      inside.process_group(), " and stands still in it; rank 0 waits")));
  ExpectRecovery();
  const std::string undisturbed = Submit(2, kSteps, kInterval);
  AwaitSuccess(undisturbed);
  ASSERT_EQ(Attempts(undisturbed).size(), 1);
  ASSERT_EQ(Losses(undisturbed).size(), kSteps);
  ExpectUndisturbed(job_, Losses(undisturbed), 0);
  ExpectSoundHistory(job_);
}

TEST_F(HangTest, ARankThatIsStoppedBeforeACollectiveIsNamedWithIt) {
  Begin();
  ASSERT_TRUE(stopper_->StopOutside());
  const v1::FlightAnalysis analysis = AwaitAnalysis();
  const v1::FlightFinding& finding = analysis.findings(0);
  EXPECT_THAT(finding.missing_ranks(), ElementsAre(1));
  EXPECT_THAT(analysis.text(),
              HasSubstr(absl::StrCat(" ", finding.sequence(), " of ", finding.process_group(), ", in which rank 0 waits")));
  EXPECT_THAT(analysis.text(), HasSubstr("rank 1 has not entered "));
  ExpectRecovery();
  ExpectSoundHistory(job_);
}

}  // namespace
}  // namespace legoai::service
