// What the server says on standard error of a job: whoever follows one attempt, or one worker, finds all of it by the fields.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "core/process/mutex.h"
#include "nlohmann/json.hpp"
#include "server/fleet/testing/fleet_fixture.h"
#include "server/metrics/log.h"

namespace legoai::server {
namespace {

using Json = nlohmann::json;

class ServerLogTest : public FleetTest {
 protected:
  void SetUp() override {
    SetLogSink([this](std::string_view line) {
      const MutexLock lock(mutex_);
      lines_.push_back(Json::parse(line));
    });
    FleetTest::SetUp();
  }
  void TearDown() override {
    FleetTest::TearDown();
    SetLogSink(nullptr);
  }
  // The first line that has this in its message; null: none.
  Json Line(const std::string& part) {
    const MutexLock lock(mutex_);
    for (const Json& line : lines_) {
      if (line["message"].get<std::string>().find(part) != std::string::npos) return line;
    }
    ADD_FAILURE() << "no line says: " << part;
    return Json();
  }
  void ExpectAbout(const Json& line, const std::string& job, int64_t attempt, const std::string& worker) {
    EXPECT_EQ(line.value("job", ""), job) << line;
    EXPECT_EQ(line.value("attempt", 0), attempt) << line;
    EXPECT_EQ(line.value("epoch", 0), attempt) << line;
    EXPECT_EQ(line.value("worker", ""), worker) << line;
  }

 private:
  Mutex mutex_;
  std::vector<Json> lines_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(ServerLogTest, LinesOfAnAttemptSayItsJobNumberEpochAndWorker) {
  TestAgent agent("a");
  Connect(&agent);
  EXPECT_EQ(Line("has connected").value("worker", ""), "workers/a");
  const std::string job = Submit(2);
  v1::LeaseId lease = agent.link.NextStart().lease();
  EXPECT_EQ(Line("ranks recipes").value("job", ""), job);
  EXPECT_EQ(Line("ranks recipes").value("worker", ""), "workers/a");
  EXPECT_FALSE(Line("ranks recipes").contains("attempt")) << "there is none yet";
  ExpectAbout(Line("leased"), job, 1, "workers/a");
  ReportEnd(&agent, lease, absl::UnavailableError("rank 1 died"));
  lease = agent.link.NextStart().lease();
  EXPECT_TRUE(Commit(&agent, lease, 4).commit());
  ExpectAbout(Line("step 4 is committed"), job, 2, "workers/a");
  StopController();
  StartController();  // it knows the attempt from the store
  *agent.hello.add_leases() = lease;
  Connect(&agent);
  EXPECT_TRUE(Commit(&agent, lease, 5).commit());
  ExpectAbout(Line("step 5 is committed"), job, 2, "workers/a");
  controller_->Disconnected(agent.session);
  EXPECT_EQ(Line("has disconnected").value("worker", ""), "workers/a");
  skew_seconds_ = 1100;
  AwaitState(job, v1::RESTARTING);
  ExpectAbout(Line("the lease has expired"), job, 2, "workers/a");
}

}  // namespace
}  // namespace legoai::server
