// A rank that hangs under `lego train`: `lego fr` says while it lasts who waits for it, and the error names it with the
// collective.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <regex>

#include "server/cli/testing/lego_process.h"
#include "worker/launch/testing/rank_stopper.h"

namespace legoai::cli::testing {
namespace {

class HangTest : public LegoTest {
 protected:
  // Two ranks that have done a step.
  void Begin() {
    train_ = Start({"train", Path("recipe.toml"), "--nproc", "2", "--training.steps=1000000", "--comm.train_timeout_seconds=20"});
    WaitUntil("the first step", [&] {
      std::error_code none;
      return std::filesystem::file_size(folder_ / "run/metrics.jsonl", none) > 0 && !none;
    });
    stopped_ = Trainer(1);
    ASSERT_TRUE(Trainer(0) != 0 && stopped_ != 0);
    stopper_.emplace(Path("run"), std::array<pid_t, 2>{Trainer(0), stopped_});
  }

  Result Flight(const std::string& format) const { return Run({"fr", Path("run"), "-o", format}); }

  // The training ends by itself, and says why in its error's first line.
  std::string AwaitFailure() {
    const Result result = Wait(train_);
    EXPECT_EQ(result.code, 1) << result.err;
    EXPECT_NE(result.err.find("`lego fr " + Path("run") + "`"), std::string::npos) << result.err;
    return result.err;
  }

  pid_t train_ = 0, stopped_ = 0;
  std::optional<launch::testing::RankStopper> stopper_;
};

TEST_F(HangTest, ARankThatStandsStillIsNamedWhileItLastsAndAtTheEnd) {
  Begin();
  ASSERT_TRUE(stopper_->StopOutside());
  std::smatch live;
  const std::regex waits(
      "rank 0 waits for rank 1 since [0-9]+ s: rank 1 has not entered ([a-z_]+ [0-9]+ of [a-z_]+), in which rank 0 waits");
  std::string said;
  WaitUntil("what `lego fr` says of it", [&] {
    said = Flight("table").out;
    return std::regex_search(said, live, waits) || said.find("culprit") != std::string::npos;
  });
  ASSERT_TRUE(std::regex_search(said, live, waits)) << said;  // before the time-out
  const std::string failure = AwaitFailure();
  EXPECT_TRUE(std::regex_search(
      failure,
      std::regex(
          "rank 1 \\([a-z]+, step [0-9]+\\): does not answer: the process is stopped \\(SIGSTOP\\); rank 1 has not entered " +
          live[1].str() + ", in which rank 0 waits\n")))
      << failure;
  // Of what was kept, too, everything has its bytes.
  const Result json = Flight("json");
  ASSERT_EQ(json.code, 0) << json.err;
  const Json flight = Json::parse(json.out);
  ASSERT_GT(flight["operations"].size(), 0u);
  for (const Json& operation : flight["operations"]) EXPECT_GT(operation["bytes"], 0) << operation;
}

TEST_F(HangTest, ARankThatStandsStillInsideOfACollectiveIsNamedWithIt) {
  Begin();
  const auto inside = stopper_->StopInside();
  ASSERT_TRUE(inside);
  const std::string failure = AwaitFailure(),
                    name = "all_reduce " + std::to_string(inside->collective_seq_id()) + " of " + inside->process_group();
  EXPECT_NE(failure.find("(SIGSTOP); rank 1 has entered " + name + " and stands still in it; rank 0 waits there\n"),
            std::string::npos)
      << failure;
}

}  // namespace
}  // namespace legoai::cli::testing
