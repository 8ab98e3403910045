// What a store has, for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

#include "proto/status.h"
#include "server/store/store.h"

namespace legoai::store {

// The value of `query`, which gives an absl::StatusOr, in a transaction of its own. An error fails the test, and the value is
// empty.
template <class Query>
auto MustRead(Store& store, const Query& query) {
  typename std::invoke_result_t<Query, ReadTransaction&>::value_type value = {};
  const absl::Status status = store.Read([&](ReadTransaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(value, query(transaction));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return value;
}

// All of ForEachMetrics().
inline absl::StatusOr<std::vector<v1::StepMetrics>> ListMetrics(ReadTransaction& transaction, const std::string& job,
                                                                int64_t after_step) {
  std::vector<v1::StepMetrics> metrics;
  RETURN_IF_ERROR(transaction.ForEachMetrics(job, after_step, [&](const v1::StepMetrics& one) { metrics.push_back(one); }));
  return metrics;
}

}  // namespace legoai::store
