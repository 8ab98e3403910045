// The parameters of list calls: filters and page tokens. gRPC-free. Thread-safety: pure functions.
//
// A filter consists of terms joined by AND, each `field operator value`, in the style of AIP-160:
//
//   state = running AND display_name : "llama" AND create_time_us >= 1700000000000000
//
// Operators are = != < <= > >= and : (contains). Values are words, numbers, or text in double quotes with \" and \\.
// Errors: FieldError of "filter" with the offending term and what may stand there.
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

// A query narrowed by `filter`. Fields: state (= !=; also "active": not final), display_name (:), text (: in the
// display name or the id), create_time_us (ordered).
struct JobFilter {
  store::JobQuery query;  // states, display_name_contains, text_contains, created_from_us, created_until_us are set
  bool nothing = false;   // no job can match: terms exclude each other
};
absl::StatusOr<JobFilter> ParseJobFilter(std::string_view filter);

// Fields: state (= !=), pool (= !=).
absl::StatusOr<std::vector<FilterTerm>> ParseWorkerFilter(std::string_view filter);
bool Matches(const std::vector<FilterTerm>& terms, const v1::Worker& worker);

// A page token holds where the next page begins and which query it belongs to, so that a token of another query is refused rather
// than answered with a page of something else. Opaque to clients; not secret.

inline constexpr int64_t kMostPageSize = 1000;

// `query`: the method and all fields of the request that decide what is listed, except page_size, which may change between pages.
// `cursor`: where the next page begins.
std::string MakePageToken(std::initializer_list<std::string_view> query, std::string_view cursor);

// The cursor; empty for an empty token, which means the first page. Errors: FieldError of "page_token" if the token is damaged or
// belongs to another query.
absl::StatusOr<std::string> ReadPageToken(std::initializer_list<std::string_view> query, std::string_view token);

// `asked`, at most kMostPageSize; `otherwise` for 0. Errors: FieldError of "page_size" if negative.
absl::StatusOr<int64_t> PageSize(int64_t asked, int64_t otherwise);

}  // namespace legoai::server
