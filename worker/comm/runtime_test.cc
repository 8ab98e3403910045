#include "worker/comm/runtime.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "worker/comm/local_communicator.h"
#include "worker/comm/streams.h"

namespace legoai::comm {
namespace {

// Rank 0's factory serves the place where all ranks meet. A rank that is connected early must not close it to the others.
TEST(Runtime, TheMeetingPlaceStaysAsLongAsTheRuntime) {
  auto place = std::make_shared<int>(0);
  const std::weak_ptr<int> seen = place;
  CommunicatorFactory factory = [place](const graph::Group&, int64_t, int64_t) -> absl::StatusOr<std::unique_ptr<Communicator>> {
    return MakeLocalCommunicator();
  };
  place.reset();
  auto runtime = Runtime::Create(0, {{"world", {0, 1}}}, MakeThreadStreams(), std::exchange(factory, nullptr));
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  EXPECT_FALSE(seen.expired());
  runtime->reset();
  EXPECT_TRUE(seen.expired());
}

}  // namespace
}  // namespace legoai::comm
