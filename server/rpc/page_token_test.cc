#include "server/rpc/page_token.h"

#include <gtest/gtest.h>

#include <random>

#include "proto/errors.h"

namespace legoai::server {
namespace {

void ExpectFault(const absl::StatusOr<std::string>& read, const std::string& part) {
  ASSERT_FALSE(read.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(read.status()));
  EXPECT_EQ(GetFieldViolation(read.status())->field(), "page_token");
  EXPECT_NE(GetFieldViolation(read.status())->remedy().find(part), std::string::npos) << read.status();
}

TEST(PageToken, GivesTheCursorOfTheSameQuery) {
  const std::string cursor("01ARZ3\0\xff", 8);
  const std::string token = MakePageToken({"jobs", "projects/default", "state = running"}, cursor);
  EXPECT_EQ(token.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_="), std::string::npos);
  EXPECT_EQ(*ReadPageToken({"jobs", "projects/default", "state = running"}, token), cursor);
  EXPECT_EQ(*ReadPageToken({"jobs", "projects/default", ""}, ""), "");
}

TEST(PageToken, OfAnotherQueryIsRefused) {
  const std::string token = MakePageToken({"jobs", "ab", "c"}, "x");
  ExpectFault(ReadPageToken({"jobs", "a", "bc"}, token), "another query");
  ExpectFault(ReadPageToken({"jobs", "ab"}, token), "another query");
  ExpectFault(ReadPageToken({"workers", "ab", "c"}, token), "another query");
}

TEST(PageToken, DamagedOnesAreRefused) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const std::string token = MakePageToken({"jobs"}, "01ARZ3NDEKTSV4RRFFQ69G5FAV");
  for (int i = 0; i < 1000; ++i) {
    std::string other = token;
    other[random() % (other.size() - 2)] = "abcXYZ019-_ %"[random() % 13];
    if (other != token) ExpectFault(ReadPageToken({"jobs"}, other), "is none that the server gave");
  }
  ExpectFault(ReadPageToken({"jobs"}, "7"), "is none that the server gave");
  ExpectFault(ReadPageToken({"jobs"}, std::string(100000, 'a')), "is none that the server gave");
}

TEST(PageToken, SizesHaveADefaultAndALimit) {
  EXPECT_EQ(*PageSize(0, 50), 50);
  EXPECT_EQ(*PageSize(7, 50), 7);
  EXPECT_EQ(*PageSize(100000, 50), kMostPageSize);
  EXPECT_EQ(GetFieldViolation(PageSize(-1, 50).status())->field(), "page_size");
}

}  // namespace
}  // namespace legoai::server
