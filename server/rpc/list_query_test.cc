#include "server/rpc/list_query.h"

#include <gtest/gtest.h>

#include "proto/errors.h"
#include "proto/testing/assert_ok.h"
#include "proto/testing/seeded_random.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

void ExpectFault(const absl::Status& status, const std::string& part, const std::string& field = "filter") {
  ASSERT_TRUE(absl::IsInvalidArgument(status)) << part << ": " << status;
  const auto violation = GetFieldViolation(status);
  ASSERT_TRUE(violation) << status;
  EXPECT_EQ(violation->field(), field);
  EXPECT_NE(std::string(status.message()).find(part), std::string::npos) << status;
}

TEST(Filter, TermsAreRead) {
  const auto terms = ParseFilter(R"( state=running AND  display_name : "a \"b\\ AND" AND create_time_us>=17 )");
  ASSERT_TRUE(terms.ok()) << terms.status();
  ASSERT_EQ(terms->size(), 3u);
  EXPECT_EQ((*terms)[0].field, "state");
  EXPECT_EQ((*terms)[0].op, "=");
  EXPECT_EQ((*terms)[0].value, "running");
  EXPECT_EQ((*terms)[1].value, "a \"b\\ AND");
  EXPECT_EQ((*terms)[2].op, ">=");
  EXPECT_TRUE(ParseFilter("  ")->empty());
}

TEST(Filter, WhatIsNoFilterIsRefused) {
  ExpectFault(ParseFilter("state").status(), "must be one of");
  ExpectFault(ParseFilter("state =").status(), "a value is missing");
  ExpectFault(ParseFilter("= running").status(), "a field is missing");
  ExpectFault(ParseFilter("state = running OR state = queued").status(), "OR");
  ExpectFault(ParseFilter("state = running and state = queued").status(), "AND");
  ExpectFault(ParseFilter("state == running").status(), "must be one of");
  ExpectFault(ParseFilter("display_name : \"open").status(), "not closed");
  ExpectFault(ParseFilter("state = running AND").status(), "a field is missing");
  ExpectFault(ParseFilter(std::string(5000, 'a')).status(), "at most");
  ExpectFault(ParseJobFilter("priority = 3").status(), "display_name");
  ExpectFault(ParseJobFilter("state : run").status(), "!=");
  ExpectFault(ParseJobFilter("state = runing").status(), "running");
  ExpectFault(ParseJobFilter("create_time_us >= yesterday").status(), "microseconds");
  ExpectFault(ParseJobFilter("create_time_us < 99999999999999999999").status(), "microseconds");
  ExpectFault(ParseJobFilter("display_name : a AND display_name : b").status(), "once");
  ExpectFault(ParseJobFilter("text : a AND text : b").status(), "once");
  ExpectFault(ParseJobFilter("text = a").status(), "operators of text");
  ExpectFault(ParseWorkerFilter("state = running").status(), "ready");
  ExpectFault(ParseWorkerFilter("host = a").status(), "pool");
}

TEST(Filter, JobTermsBecomeAQuery) {
  ASSERT_OK_AND_ASSIGN(
      const auto filter,
      ParseJobFilter("state = active AND state != queued AND display_name : Llama AND text : 01jd AND create_time_us > 5 AND "
                     "create_time_us >= 3 AND create_time_us <= 9 AND create_time_us < 20"));
  EXPECT_FALSE(filter.nothing);
  EXPECT_EQ(filter.query.states.size(), ActiveStates().size() - 1);
  for (v1::JobState state : filter.query.states) EXPECT_TRUE(!IsFinal(state) && state != v1::QUEUED);
  EXPECT_EQ(filter.query.display_name_contains, "Llama");
  EXPECT_EQ(filter.query.text_contains, "01jd");
  EXPECT_EQ(filter.query.created_from_us, 6);
  EXPECT_EQ(filter.query.created_until_us, 10);
  EXPECT_TRUE(ParseJobFilter("")->query.states.empty());
}

TEST(Filter, TermsThatExcludeEachOtherMatchNothing) {
  EXPECT_TRUE(ParseJobFilter("state = running AND state = queued")->nothing);
  EXPECT_TRUE(ParseJobFilter("state = active AND state = failed")->nothing);
  EXPECT_TRUE(ParseJobFilter("create_time_us > 5 AND create_time_us < 6")->nothing);
  EXPECT_TRUE(ParseJobFilter("create_time_us < 0")->nothing);
  EXPECT_FALSE(ParseJobFilter("create_time_us > 5 AND create_time_us <= 6")->nothing);
}

TEST(Filter, WorkersMatch) {
  v1::Worker worker;
  worker.set_pool("default");
  worker.set_state(v1::DRAINING);
  auto matches = [&](const char* filter) { return Matches(*ParseWorkerFilter(filter), worker); };
  EXPECT_TRUE(matches(""));
  EXPECT_TRUE(matches("state = draining"));
  EXPECT_TRUE(matches("state != ready AND pool = default"));
  EXPECT_FALSE(matches("state = ready"));
  EXPECT_FALSE(matches("pool != default"));
}

// Every text has an answer, and what is accepted is found again when it is written anew.
TEST(Filter, RandomTextsAreAnswered) {
  SeededRandom random;
  const std::vector<std::string> pieces = {"state", "=", "!=", "running", " ", "AND", "\"", "\\",
                                           ":",     "<", ">=", "5",       "é", "\t",  "x"};
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (int n = random() % 12; n > 0; --n) text += pieces[random() % pieces.size()];
    const auto terms = ParseFilter(text);
    if (!terms.ok()) continue;
    std::string again;
    for (const FilterTerm& term : *terms) {
      std::string quoted;
      for (char c : term.value) quoted += (c == '"' || c == '\\') ? std::string("\\") + c : std::string(1, c);
      again += (again.empty() ? "" : " AND ") + term.field + " " + term.op + " \"" + quoted + "\"";
    }
    const auto second = ParseFilter(again);
    ASSERT_TRUE(second.ok()) << text << " became " << again;
    ASSERT_EQ(second->size(), terms->size());
    for (size_t t = 0; t < terms->size(); ++t) EXPECT_EQ((*second)[t].value, (*terms)[t].value) << text;
  }
}

void ExpectNoToken(const absl::StatusOr<std::string>& read, const std::string& part) {
  ExpectFault(read.status(), part, "page_token");
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
  ExpectNoToken(ReadPageToken({"jobs", "a", "bc"}, token), "another query");
  ExpectNoToken(ReadPageToken({"jobs", "ab"}, token), "another query");
  ExpectNoToken(ReadPageToken({"workers", "ab", "c"}, token), "another query");
}

TEST(PageToken, DamagedOnesAreRefused) {
  SeededRandom random;
  const std::string token = MakePageToken({"jobs"}, "01ARZ3NDEKTSV4RRFFQ69G5FAV");
  for (int i = 0; i < 1000; ++i) {
    std::string other = token;
    other[random() % (other.size() - 2)] = "abcXYZ019-_ %"[random() % 13];
    if (other != token) ExpectNoToken(ReadPageToken({"jobs"}, other), "is none that the server gave");
  }
  ExpectNoToken(ReadPageToken({"jobs"}, "7"), "is none that the server gave");
  ExpectNoToken(ReadPageToken({"jobs"}, std::string(100000, 'a')), "is none that the server gave");
}

TEST(PageToken, SizesHaveADefaultAndALimit) {
  EXPECT_EQ(*PageSize(0, 50), 50);
  EXPECT_EQ(*PageSize(7, 50), 7);
  EXPECT_EQ(*PageSize(100000, 50), kMostPageSize);
  EXPECT_EQ(GetFieldViolation(PageSize(-1, 50).status())->field(), "page_size");
}

}  // namespace
}  // namespace legoai::server
