#include "core/trace/trace_text.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "proto/errors.h"

namespace legoai::graph {
namespace {

std::string ReadAll(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// By another program than the one that wrote it.
std::string Unzipped(const std::string& path) {
  FILE* pipe = popen(("gzip -dc '" + path + "'").c_str(), "r");
  std::string text;
  char buffer[4096];
  while (size_t count = fread(buffer, 1, sizeof(buffer), pipe)) text.append(buffer, count);
  EXPECT_EQ(pclose(pipe), 0);
  return text;
}

// Half a megabyte that does not repeat itself much, in parts of many sizes.
std::vector<std::string> Parts() {
  std::mt19937 random(1);
  std::vector<std::string> parts = {""};
  for (int i = 0; i < 300; ++i) {
    parts.emplace_back();
    for (uint32_t n = random() % 4000; n > 0; --n) parts.back() += static_cast<char>('a' + random() % 26);
  }
  return parts;
}

std::string Written(const std::string& path) {
  auto file = TraceFile::Create("--trace", path);
  EXPECT_TRUE(file.ok()) << file.status();
  std::string whole;
  for (const std::string& part : Parts()) {
    (*file)->Append(part);
    whole += part;
  }
  EXPECT_EQ((*file)->text_bytes(), static_cast<int64_t>(whole.size()));
  EXPECT_TRUE((*file)->Close().ok());
  return whole;
}

TEST(TraceTextTest, FilesHoldWhatWasAppended) {
  const std::string path = testing::TempDir() + "/trace.json";
  for (int i = 0; i < 2; ++i) {  // an older file is replaced
    const std::string whole = Written(path);
    EXPECT_TRUE(whole == ReadAll(path));
  }
}

TEST(TraceTextTest, NamesOnGzAreCompressed) {
  const std::string path = testing::TempDir() + "/trace.json.gz";
  const std::string whole = Written(path);
  EXPECT_TRUE(whole == Unzipped(path));
  EXPECT_LT(ReadAll(path).size(), whole.size() * 3 / 4);
}

TEST(TraceTextTest, WhatCannotBeWrittenIsAnErrorOfTheField) {
  const auto nowhere = TraceFile::Create("--trace", testing::TempDir() + "/no/such/folder/t.json");
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(GetFieldViolation(nowhere.status())->field(), "--trace");
  auto full = TraceFile::Create("--memory-timeline", "/dev/full");
  ASSERT_TRUE(full.ok()) << full.status();
  for (const std::string& part : Parts()) (*full)->Append(part);
  const absl::Status status = (*full)->Close();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(GetFieldViolation(status)->field(), "--memory-timeline");
  EXPECT_NE(status.message().find("No space left"), std::string::npos) << status;
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));
}

TEST(TraceTextTest, TextIsQuotedAsJsonHasIt) {
  for (const std::string text : {"plain", "a \"b\" \\ c", "line\nend\ttab", "\x01\x1f", "größer → 日本", ""}) {
    EXPECT_EQ(nlohmann::json::parse(Quoted(text)).get<std::string>(), text);
  }
}

// As Perfetto reads them: a double of microseconds, times 1000, the rest cut off.
TEST(TraceTextTest, TimesAreReadAsTheNanosecondThatIsMeant) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::vector<int64_t> times = {0, 1, 999, 1000, 1001, 1234567, 9999999999999};
  for (int i = 0; i < 100000; ++i) times.push_back(static_cast<int64_t>(random() >> (20 + random() % 40)));
  for (int64_t nanoseconds : times) {
    std::string text;
    AppendMicroseconds(nanoseconds, &text);
    const double microseconds = std::stod(text);
    EXPECT_EQ(static_cast<int64_t>(microseconds * 1000), nanoseconds) << text;
    EXPECT_NEAR(microseconds, static_cast<double>(nanoseconds) / 1000, 2e-4 + 1e-12 * microseconds) << text;
  }
  EXPECT_EQ(Nanoseconds(1.5e-9), 2);
  EXPECT_EQ(Nanoseconds(0.1234567891), 123456789);
}

}  // namespace
}  // namespace legoai::graph
