// What list calls take: filters, and tokens of pages. gRPC-free. Thread-safety: pure functions.
//
// A filter is terms joined by AND, each `field operator value`, in the style of AIP-160:
//
//   state = running AND display_name : "llama" AND create_time_us >= 1700000000000000
//
// Operators are = != < <= > >= and : (contains). Values are words, numbers, or text in double quotes with \" and \\.
// Errors: FieldError of "filter" with the term at fault and what may be there.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/worker.pb.h"
#include "server/store/store.h"

namespace legoai::server {

struct FilterTerm {
  std::string field, op, value;
};

// An empty filter has no terms.
absl::StatusOr<std::vector<FilterTerm>> ParseFilter(std::string_view filter);

// Narrows a query by what `filter` says. Fields: state (= !=; also "active": not final), display_name (:), text (: in the
// display name or the id), create_time_us (ordered).
struct JobFilter {
  store::JobQuery query;  // states, display_name_contains, text_contains, created_from_us, created_until_us are set
  bool nothing = false;   // no job can match: terms exclude each other
};
absl::StatusOr<JobFilter> ParseJobFilter(std::string_view filter);

// Fields: state (= !=), pool (= !=).
absl::StatusOr<std::vector<FilterTerm>> ParseWorkerFilter(std::string_view filter);
bool Matches(const std::vector<FilterTerm>& terms, const v1::Worker& worker);

// A page token says where to go on, and the query that it belongs to, so that the token of another query is told apart instead of
// giving a page of something else. Opaque to clients; no secret.

inline constexpr int64_t kMostPageSize = 1000;

// `query`: the method and all of the request that decides what is listed, page_size left out: it may change from page to page.
// `cursor`: where the next page begins.
std::string MakePageToken(std::initializer_list<std::string_view> query, std::string_view cursor);

// The cursor; empty for an empty token, which is the first page. Errors: FieldError of "page_token" for one that is damaged or of
// another query.
absl::StatusOr<std::string> ReadPageToken(std::initializer_list<std::string_view> query, std::string_view token);

// `otherwise` for 0, at most kMostPageSize. Errors: FieldError of "page_size" for one below 0.
absl::StatusOr<int64_t> PageSize(int64_t asked, int64_t otherwise);

}  // namespace legoai::server
