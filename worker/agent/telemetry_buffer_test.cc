#include "worker/agent/telemetry_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

namespace legoai::agent {
namespace {

using ::testing::ElementsAre;

v1::Telemetry Metrics(int64_t step) {
  v1::Telemetry fact;
  fact.mutable_metrics()->set_step(step);
  return fact;
}

v1::Telemetry LogOf(size_t bytes) {
  v1::Telemetry fact;
  fact.mutable_log()->set_text(std::string(bytes, 'x'));
  return fact;
}

v1::Telemetry TraceOf(size_t bytes) {
  v1::Telemetry fact;
  fact.mutable_step_trace()->set_trace_gzip(std::string(bytes, 'x'));
  return fact;
}

v1::Telemetry Ended() {
  v1::Telemetry fact;
  fact.mutable_ended()->set_last_step(7);
  return fact;
}

std::vector<int64_t> SendAll(TelemetryBuffer& buffer) {
  std::vector<int64_t> sent;
  while (const auto fact = buffer.Next()) sent.push_back(fact->sequence());
  return sent;
}

TEST(TelemetryBufferTest, KeepsUntilAcknowledgedAndReplays) {
  int added = 0;
  TelemetryBuffer buffer(1 << 20, [&] { ++added; });
  EXPECT_TRUE(buffer.empty());
  for (int64_t step = 1; step <= 5; ++step) EXPECT_EQ(buffer.Add(Metrics(step)), step);
  EXPECT_EQ(added, 5);
  EXPECT_THAT(SendAll(buffer), ElementsAre(1, 2, 3, 4, 5));
  buffer.Acknowledge(2);
  EXPECT_THAT(SendAll(buffer), ElementsAre());
  buffer.ReplayAfter(3);
  EXPECT_EQ(buffer.acknowledged(), 3);
  EXPECT_THAT(SendAll(buffer), ElementsAre(4, 5));
  EXPECT_EQ(buffer.Add(Metrics(6)), 6);
  EXPECT_THAT(SendAll(buffer), ElementsAre(6));
  buffer.Acknowledge(6);
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.last(), 6);
}

TEST(TelemetryBufferTest, WhatWasNotSentIsNotAcknowledged) {
  TelemetryBuffer buffer(1 << 20, nullptr);
  buffer.Add(Metrics(1));
  buffer.Add(Metrics(2));
  buffer.Next();
  buffer.Acknowledge(1000);
  EXPECT_EQ(buffer.acknowledged(), 1);
  EXPECT_THAT(SendAll(buffer), ElementsAre(2));
}

TEST(TelemetryBufferTest, TheOldestMetricsGoFirstAndEndsStay) {
  TelemetryBuffer buffer(10'000, nullptr);
  buffer.Add(Ended());
  for (int i = 0; i < 30; ++i) buffer.Add(LogOf(1000));
  EXPECT_EQ(buffer.dropped(), 21) << "nine lines of somewhat more than 1000 bytes fit";
  const std::vector<int64_t> sent = SendAll(buffer);
  EXPECT_EQ(sent.front(), 1) << "how the attempt ended";
  EXPECT_EQ(sent[1], 23);
  EXPECT_EQ(sent.back(), 31);
  buffer.Acknowledge(31);
  for (int i = 0; i < 5; ++i) buffer.Add(LogOf(1000));
  EXPECT_EQ(buffer.dropped(), 21) << "what was acknowledged takes no room";
}

// They are large: one would push out thousands of lines.
TEST(TelemetryBufferTest, TracesGoBeforeAllElseTheOldestFirst) {
  TelemetryBuffer buffer(10'000, nullptr);
  buffer.Add(LogOf(1000));    // 1
  buffer.Add(TraceOf(4000));  // 2
  buffer.Add(Ended());        // 3
  buffer.Add(TraceOf(4000));  // 4
  EXPECT_EQ(buffer.dropped(), 0);
  EXPECT_EQ(buffer.Next()->sequence(), 1);
  EXPECT_EQ(buffer.Next()->sequence(), 2);
  buffer.Add(LogOf(2000));  // 5: the oldest trace gives way, though it is under way
  EXPECT_EQ(buffer.dropped(), 1);
  buffer.Add(LogOf(4000));  // 6
  EXPECT_EQ(buffer.dropped(), 2);
  buffer.Add(TraceOf(4000));  // 7: without room it gives way itself
  EXPECT_EQ(buffer.dropped(), 3);
  EXPECT_THAT(SendAll(buffer), ElementsAre(3, 5, 6));
  buffer.Add(LogOf(6000));  // 8: no trace is left, so all other lines go
  EXPECT_EQ(buffer.dropped(), 6);
  buffer.ReplayAfter(0);
  EXPECT_THAT(SendAll(buffer), ElementsAre(3, 8));
  buffer.Acknowledge(8);
  EXPECT_TRUE(buffer.empty());
  buffer.Add(TraceOf(9000));
  EXPECT_EQ(buffer.dropped(), 6) << "what was acknowledged takes no room";
}

TEST(TelemetryBufferTest, NotMoreThanAWindowIsUnderWay) {
  TelemetryBuffer buffer(int64_t{1} << 30, nullptr);
  for (int64_t i = 0; i < kWindowFacts + 10; ++i) buffer.Add(Metrics(i));
  EXPECT_EQ(SendAll(buffer).size(), kWindowFacts);
  buffer.Acknowledge(4);
  EXPECT_EQ(SendAll(buffer).size(), 4u);
  buffer.Acknowledge(kWindowFacts + 4);
  EXPECT_EQ(SendAll(buffer).size(), 6u);
  buffer.ReplayAfter(0);
  EXPECT_EQ(SendAll(buffer).size(), 6u);
  buffer.Add(LogOf(2 * kWindowBytes));
  buffer.Add(Metrics(1));
  EXPECT_EQ(SendAll(buffer).size(), 1u) << "one that is larger than the window goes alone";
}

// Whatever is dropped, acknowledged and replayed: every fact is delivered, or counted, and never two at one number.
TEST(TelemetryBufferTest, NothingIsLostUnseen) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  TelemetryBuffer buffer(3000, nullptr);
  std::set<int64_t> delivered, ends;
  int64_t durable = 0;
  std::vector<int64_t> connection;  // sent over it, not yet durable
  const auto store = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) {
      durable = std::max(durable, connection[i]);
      delivered.insert(connection[i]);
    }
    connection.erase(connection.begin(), connection.begin() + static_cast<int64_t>(count));
  };
  for (int round = 0; round < 5000; ++round) {
    switch (random() % 7) {
      case 0: ends.insert(buffer.Add(Ended())); break;
      case 1: buffer.Add(LogOf(random() % 300)); break;
      case 2:
        if (const auto fact = buffer.Next()) connection.push_back(fact->sequence());
        break;
      case 3: store(random() % (connection.size() + 1)); break;
      case 4: buffer.Acknowledge(durable); break;
      case 5:
        if (random() % 10 > 0) break;
        connection.clear();
        buffer.ReplayAfter(durable);
        break;
      case 6: buffer.Add(TraceOf(random() % 1000)); break;
    }
    ASSERT_TRUE(std::is_sorted(connection.begin(), connection.end()));
  }
  connection.clear();
  buffer.ReplayAfter(durable);
  while (const auto fact = buffer.Next()) {
    delivered.insert(fact->sequence());
    buffer.Acknowledge(fact->sequence());
  }
  EXPECT_TRUE(buffer.empty());
  EXPECT_TRUE(std::includes(delivered.begin(), delivered.end(), ends.begin(), ends.end()));
  EXPECT_GE(static_cast<int64_t>(delivered.size()) + buffer.dropped(), buffer.last());
}

}  // namespace
}  // namespace legoai::agent
