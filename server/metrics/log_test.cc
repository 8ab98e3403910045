#include "server/metrics/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace legoai::server {
namespace {

using nlohmann::json;

std::string LineOf(const std::function<void()>& log) {
  std::string line;
  SetLogSink([&line](std::string_view text) { line = text; });
  log();
  SetLogSink(nullptr);
  return line;
}

TEST(Log, SaysWhatIsSetAndNothingElse) {
  const json line = json::parse(LineOf([] { LogWarning("lease lost", {.job = "projects/default/jobs/1", .epoch = 3}); }));
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["message"], "lease lost");
  EXPECT_EQ(line["job"], "projects/default/jobs/1");
  EXPECT_EQ(line["epoch"], 3);
  EXPECT_TRUE(line.contains("time"));
  EXPECT_EQ(line.size(), 5u);
}

TEST(Log, CarriesFactsOfEveryKind) {
  const json line = json::parse(LineOf([] {
    Log(LogLevel::kInfo, "m", {.attempt = 1, .rank = 0, .worker = "workers/w"},
        {{"path", "/v1"}, {"code", 200}, {"seconds", 0.5}});
  }));
  EXPECT_EQ(line["attempt"], 1);
  EXPECT_EQ(line["rank"], 0);
  EXPECT_EQ(line["worker"], "workers/w");
  EXPECT_EQ(line["path"], "/v1");
  EXPECT_EQ(line["code"], 200);
  EXPECT_EQ(line["seconds"], 0.5);
}

TEST(Log, IsOneLineOfJsonWhateverTheMessageHolds) {
  const std::string line = LineOf([] { LogError("a \"b\"\nc \x01 \xff"); });
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const json parsed = json::parse(line);
  EXPECT_EQ(parsed["message"], "a \"b\"\nc \x01 \uFFFD");
}

TEST(Log, WritesTimesInUtc) {
  EXPECT_EQ(LogTime(0), "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(LogTime(951782400000001), "2000-02-29T00:00:00.000001Z");
}

TEST(Log, WholeLinesOfManyThreadsArriveOnStderr) {
  const std::string path = testing::TempDir() + "/stderr.log";
  const int kept = dup(STDERR_FILENO);
  const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
  ASSERT_GE(file, 0);
  dup2(file, STDERR_FILENO);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) LogInfo(std::string(500, 'a' + t), {.attempt = t, .rank = i});
    });
  }
  for (std::thread& thread : threads) thread.join();
  dup2(kept, STDERR_FILENO);
  close(kept);
  close(file);
  std::ifstream in(path);
  std::string text;
  int lines = 0;
  for (; std::getline(in, text); ++lines) EXPECT_TRUE(json::accept(text)) << text;
  EXPECT_EQ(lines, 400);
}

}  // namespace
}  // namespace legoai::server
