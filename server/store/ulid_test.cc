#include "server/store/ulid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace legoai::store {
namespace {

// The example of the ULID specification: 01ARZ3NDEKTSV4RRFFQ69G5FAV was made at 1469922850259.
TEST(Ulid, KnownValues) {
  EXPECT_EQ(UlidMilliseconds("01ARZ3NDEKTSV4RRFFQ69G5FAV"), 1469922850259);
  UlidSource zeros([] { return 0; }, [] { return uint64_t{0}; });
  EXPECT_EQ(zeros.Next(), "00000000000000000000000000");
  EXPECT_EQ(zeros.Next(), "00000000000000000000000001");
  UlidSource ones([] { return int64_t{1469922850259999}; }, [] { return UINT64_MAX; });
  EXPECT_EQ(ones.Next(), "01ARZ3NDEKZZZZZZZZZZZZZZZZ");
}

TEST(Ulid, UsedUpRandomBitsTakeTheNextMillisecond) {
  UlidSource ones([] { return int64_t{1469922850259999}; }, [] { return UINT64_MAX; });
  ones.Next();
  EXPECT_EQ(ones.Next(), "01ARZ3NDEMZZZZZZZZZZZZZZZZ");
}

TEST(Ulid, CarryFromTheLower64Bits) {
  int calls = 0;
  UlidSource source([] { return 0; }, [&] { return calls++ == 0 ? uint64_t{0} : UINT64_MAX; });
  EXPECT_EQ(source.Next(), "0000000000000FZZZZZZZZZZZZ");
  EXPECT_EQ(source.Next(), "0000000000000G000000000000");
}

TEST(Ulid, GrowsThoughTheClockGoesBack) {
  int64_t now = 1'700'000'000'000'000;
  UlidSource source([&] { return now; }, SystemRandom);
  std::string last;
  for (int i = 0; i < 1000; ++i) {
    now += i % 7 == 0 ? -5'000'000 : 1'500;
    const std::string next = source.Next();
    EXPECT_TRUE(IsUlid(next)) << next;
    EXPECT_LT(last, next);
    last = next;
  }
}

TEST(Ulid, ClocksBeyondTheRangeAreClamped) {
  UlidSource before([] { return int64_t{-5}; }, SystemRandom);
  EXPECT_EQ(UlidMilliseconds(before.Next()), 0);
  UlidSource after([] { return INT64_MAX; }, SystemRandom);
  EXPECT_TRUE(IsUlid(after.Next()));
}

TEST(Ulid, ThreadsGetDifferentOnesEachAscending) {
  UlidSource source([] { return 42; }, SystemRandom);
  std::vector<std::vector<std::string>> given(4);
  std::vector<std::thread> threads;
  for (auto& mine : given) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) mine.push_back(source.Next());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> all;
  for (const auto& mine : given) {
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
    all.insert(mine.begin(), mine.end());
  }
  EXPECT_EQ(all.size(), 4000u);
}

TEST(Ulid, WhatIsNone) {
  EXPECT_TRUE(IsUlid("7ZZZZZZZZZZZZZZZZZZZZZZZZZ"));
  for (const char* text : {"", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "01arz3ndektsv4rrffq69g5fav", "01ARZ3NDEKTSV4RRFFQ69G5FA",
                           "01ARZ3NDEKTSV4RRFFQ69G5FAVV", "01ARZ3NDEKTSV4RRFFQ69G5FAU", "01ARZ3NDEKTSV4RRFFQ69G5FA/"}) {
    EXPECT_FALSE(IsUlid(text)) << text;
  }
}

}  // namespace
}  // namespace legoai::store
