// Messages with random contents, and the round-trip property of text formats. Thread-safety: as the generator.
#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

namespace legoai {

// Sets every field at random or not; enum values are those that have a text.
void FillRandomly(std::mt19937_64& random, google::protobuf::Message* message, int depth = 0);

// Printed messages are read back unchanged. `print(message, i)` gives the text of the i-th of 50 random messages of type T,
// `parse(text, &message)` returns a Status.
template <typename T, typename Print, typename Parse>
void ExpectRoundTrips(uint64_t seed, const Print& print, const Parse& parse) {
  SCOPED_TRACE(T::descriptor()->full_name() + ", seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 50; ++i) {
    T message, back;
    FillRandomly(random, &message);
    const std::string text = print(message, i);
    const auto status = parse(text, &back);
    ASSERT_TRUE(status.ok()) << status << "\n" << text;
    ASSERT_TRUE(google::protobuf::util::MessageDifferencer::Equals(message, back)) << text;
  }
}

}  // namespace legoai
