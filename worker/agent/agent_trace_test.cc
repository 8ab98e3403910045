// Traces of steps on their way from trainers to the server: the agent as a process, and trainers that write what a test says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/agent/testing/agent_fixture.h"

namespace legoai::agent {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using State = testing::ScriptedServer::State;

class TraceTest : public testing::AgentTest {
 protected:
  TraceTest() : AgentTest("worker/launch/test_trainer") {}
  ~TraceTest() override { unsetenv("LEGOAI_TEST_TRACE_BYTES"); }

  // An attempt of two ranks, each of which leaves a trace of step 2 with so many bytes; what came of them, by rank.
  std::map<int64_t, v1::StepTrace> Traces(int64_t bytes) {
    setenv("LEGOAI_TEST_TRACE_BYTES", absl::StrCat(bytes).c_str(), 1);
    EXPECT_TRUE(Begin(Attempt(1, 2)));
    EXPECT_TRUE(AwaitEnd(1));
    const State state = server_.Get();
    EXPECT_FALSE(state.Ended(1)->has_error()) << state.Ended(1)->error().message();
    std::map<int64_t, v1::StepTrace> traces;
    bool ended = false;
    for (const auto& [sequence, fact] : state.telemetry) {
      ended = ended || fact.has_ended();
      if (!fact.has_step_trace()) continue;
      EXPECT_FALSE(ended) << "before the end, after which nothing counts";
      EXPECT_EQ(fact.lease().epoch(), 1);
      traces[fact.step_trace().rank()] = fact.step_trace();
    }
    return traces;
  }
};

TEST_F(TraceTest, EachRanksTraceIsSentWhole) {
  const auto traces = Traces(300'000);
  ASSERT_EQ(traces.size(), 2u);
  for (const auto& [rank, trace] : traces) {
    EXPECT_EQ(trace.step(), 2);
    EXPECT_EQ(trace.trace_gzip(), std::string(300'000, 'x'));
  }
}

TEST_F(TraceTest, OneThatIsTooLargeStaysWhereItIsAndThatIsSaid) {
  EXPECT_TRUE(Traces((2 << 20) + 1).empty());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(server_.Get().Logs(),
                Contains(AllOf(HasSubstr("the trace of step 2 is not sent to the server"),
                               HasSubstr(absl::StrCat("its place is ", EpochFolder(1), "/trace-", rank, ".json.gz")))));
  }
}

}  // namespace
}  // namespace legoai::agent
