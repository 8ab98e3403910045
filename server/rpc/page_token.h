// Page tokens of list calls: where to go on, and the query that they belong to, so that the token of another query is told apart
// instead of giving a page of something else. Opaque to clients; no secret. gRPC-free. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace legoai::server {

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
