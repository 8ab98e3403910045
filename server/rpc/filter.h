// The filters of list calls: terms joined by AND, each `field operator value`, in the style of AIP-160. gRPC-free. Thread-safety:
// pure functions.
//
//   state = running AND display_name : "llama" AND create_time_us >= 1700000000000000
//
// Operators are = != < <= > >= and : (contains). Values are words, numbers, or text in double quotes with \" and \\.
// Errors: FieldError of "filter" with the term at fault and what may be there.
#pragma once

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

}  // namespace legoai::server
