// What users write to narrow lists, and where their next page begins. A filter says the same when it is written anew, and the
// query that is made of it takes exactly the jobs that its terms name; a token is good for the query that it was given for alone.
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/enum_text.h"
#include "server/jobs/transition.h"
#include "server/rpc/list_query.h"
#include "tests/fuzz/fuzz.h"

namespace legoai::fuzz {
namespace {

using server::FilterTerm;

constexpr size_t kMostFilterBytes = 4000, kMostTokenBytes = 1000;

std::string Written(const std::vector<FilterTerm>& terms) {
  std::string text;
  for (const FilterTerm& term : terms) {
    absl::StrAppend(&text, text.empty() ? "" : " AND ", term.field, " ", term.op, " \"");
    for (const char c : term.value) text += (c == '"' || c == '\\') ? std::string{'\\', c} : std::string{c};
    text += '"';
  }
  return text;
}

void ExpectSameAnew(const std::vector<FilterTerm>& terms) {
  const std::string text = Written(terms);
  const auto again = server::ParseFilter(text);
  if (text.size() > kMostFilterBytes) {  // with its quotes and spaces
    EXPECT_FALSE(again.ok());
    return;
  }
  ASSERT_TRUE(again.ok()) << text << "\n" << again.status();
  ASSERT_EQ(again->size(), terms.size()) << text;
  for (size_t i = 0; i < terms.size(); ++i) {
    EXPECT_EQ((*again)[i].field, terms[i].field);
    EXPECT_EQ((*again)[i].op, terms[i].op);
    EXPECT_EQ((*again)[i].value, terms[i].value);
  }
}

// Whether all terms about states and times hold, one by one.
bool Holds(const std::vector<FilterTerm>& terms, v1::JobState state, int64_t time) {
  return std::all_of(terms.begin(), terms.end(), [&](const FilterTerm& term) {
    if (term.field == "state") {
      const bool named = term.value == "active" ? !server::IsFinal(state) : term.value == server::StateText(state);
      return named == (term.op == "=");
    }
    int64_t than = 0;
    if (term.field != "create_time_us" || !absl::SimpleAtoi(term.value, &than)) return true;
    return term.op == "<" ? time < than : term.op == "<=" ? time <= than : term.op == ">" ? time > than : time >= than;
  });
}

// As stores read it (server/store/store.h).
bool Takes(const server::JobFilter& filter, v1::JobState state, int64_t time) {
  const store::JobQuery& query = filter.query;
  const bool in_state = query.states.empty() || std::count(query.states.begin(), query.states.end(), state) > 0;
  return !filter.nothing && in_state && time >= query.created_from_us &&
         (query.created_until_us == 0 || time < query.created_until_us);
}

void ExpectTakesWhatItNames(const std::vector<FilterTerm>& terms, const server::JobFilter& filter) {
  std::vector<int64_t> times = {0, 1};
  std::string display_name, text;
  for (const FilterTerm& term : terms) {
    if (term.field == "display_name") display_name = term.value;
    if (term.field == "text") text = term.value;
    int64_t edge = 0;
    if (term.field == "create_time_us" && absl::SimpleAtoi(term.value, &edge))
      for (const int64_t time : {edge - 1, edge, edge + 1}) times.push_back(std::max<int64_t>(0, time));
  }
  EXPECT_EQ(filter.query.display_name_contains, display_name);
  EXPECT_EQ(filter.query.text_contains, text);
  for (int number = v1::SUBMITTED; number <= v1::JobState_MAX; ++number) {
    const auto state = static_cast<v1::JobState>(number);
    for (const int64_t time : times)
      EXPECT_EQ(Takes(filter, state, time), Holds(terms, state, time)) << server::StateText(state) << " at " << time;
  }
}

void ExpectMatchesTermByTerm(const std::vector<FilterTerm>& terms) {
  for (int state = 0; state <= v1::WorkerState_MAX; ++state) {
    v1::Worker worker;
    worker.set_state(static_cast<v1::WorkerState>(state));
    worker.set_pool("default");
    bool all = true;
    for (FilterTerm term : terms) {
      const bool one = server::Matches({term}, worker);
      term.op = term.op == "=" ? "!=" : "=";
      EXPECT_NE(server::Matches({term}, worker), one) << "a term and its opposite";
      all = all && one;
    }
    EXPECT_EQ(server::Matches(terms, worker), all);
  }
}

// Accepted if it is a filter of jobs or one of workers.
absl::Status ParseFilter(const std::string& text) {
  const auto terms = server::ParseFilter(text);
  const auto jobs = server::ParseJobFilter(text);
  const auto workers = server::ParseWorkerFilter(text);
  if (!terms.ok()) {
    EXPECT_EQ(jobs.status(), terms.status());
    EXPECT_EQ(workers.status(), terms.status());
    return terms.status();
  }
  EXPECT_LE(text.size(), kMostFilterBytes);
  ExpectSameAnew(*terms);
  if (jobs.ok()) ExpectTakesWhatItNames(*terms, *jobs);
  if (workers.ok()) {
    EXPECT_EQ(Written(*workers), Written(*terms));
    ExpectMatchesTermByTerm(*workers);
  }
  return workers.ok() ? absl::OkStatus() : jobs.status();
}

TEST(Fuzz, ListQueryFilter) {
  Fuzz({"list_query_filter",
        Words("state|create_time_us|display_name|text|pool| AND | and | OR |AND|=|!=|<|<=|>|>=|:|==|\"|\\|\\\"|active|running|"
              "failed|queued|ready|draining|default| |\n|(|)|\xff|\xc3\xa9| +5 "),
        ParseFilter});
}

absl::Status ParseToken(const std::string& token) {
  const auto cursor = server::ReadPageToken({"jobs", "projects/default", "state = running"}, token);
  // Any bytes may be part of a query, and begin a page of it.
  const std::string made = server::MakePageToken({"jobs", token}, token);
  const auto read = server::ReadPageToken({"jobs", token}, made);
  EXPECT_EQ(read.ok(), !token.empty() && made.size() <= kMostTokenBytes) << read.status();
  EXPECT_EQ(read.value_or(token), token);
  for (const auto& other : {server::ReadPageToken({"jobs", token, ""}, made), server::ReadPageToken({"workers", token}, made)})
    EXPECT_FALSE(other.ok());
  if (!cursor.ok()) return cursor.status();
  EXPECT_EQ(cursor->empty(), token.empty());
  EXPECT_LE(token.size(), kMostTokenBytes);
  if (token.empty()) return absl::OkStatus();
  const std::string again = server::MakePageToken({"jobs", "projects/default", "state = running"}, *cursor);
  EXPECT_EQ(server::ReadPageToken({"jobs", "projects/default", "state = running"}, again).value_or(""), *cursor);
  EXPECT_FALSE(server::ReadPageToken({"jobs", "projects/default", ""}, token).ok()) << "good for another query";
  return absl::OkStatus();
}

TEST(Fuzz, ListQueryPageToken) { Fuzz({"list_query_token", Words("=|==|-|_|+|/|A|AAAA| |\n|%3D|\xff"), ParseToken}); }

}  // namespace
}  // namespace legoai::fuzz
