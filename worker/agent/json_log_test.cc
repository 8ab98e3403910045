#include "worker/agent/json_log.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace legoai::agent {
namespace {

TEST(JsonLogTest, ALineHoldsWhatItIsAbout) {
  const std::string line = LogLineJson(1767323045678901, "warning", "a \"quoted\"\nline", {.job = "j", .epoch = 7, .rank = 0});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto parsed = nlohmann::json::parse(line);
  EXPECT_EQ(parsed["time"], "2026-01-02T03:04:05.678901Z");
  EXPECT_EQ(parsed["level"], "warning");
  EXPECT_EQ(parsed["message"], "a \"quoted\"\nline");
  EXPECT_EQ(parsed["job"], "j");
  EXPECT_EQ(parsed["epoch"], 7);
  EXPECT_EQ(parsed["rank"], 0);
  EXPECT_FALSE(parsed.contains("attempt"));
}

TEST(JsonLogTest, BytesThatAreNoTextAreWrittenAllTheSame) {
  const auto parsed = nlohmann::json::parse(LogLineJson(0, "error", "caf\xe9", {}));
  EXPECT_EQ(parsed["message"], "caf\xef\xbf\xbd");
  EXPECT_EQ(parsed["time"], "1970-01-01T00:00:00.000000Z");
}

}  // namespace
}  // namespace legoai::agent
