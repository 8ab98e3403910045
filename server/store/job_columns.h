// What the columns beside a job's message hold, the same in every back end. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/legoai/v1/job.pb.h"
#include "server/store/store.h"

namespace legoai::store {

struct JobNameParts {
  std::string_view project, id;
};

// Of "projects/P/jobs/ID"; nothing if it is another.
std::optional<JobNameParts> SplitJobName(std::string_view name);
absl::Status NoJobName(const std::string& name);  // the error of InsertJob

// The display name as filters look at it.
std::string FoldedName(const v1::Job& job);

// What comes after every ULID.
inline constexpr char kAfterAllUlids[] = "~";

// A query's conditions as they are compared with the columns.
struct JobFilter {
  explicit JobFilter(const JobQuery& query);
  int64_t until_us;
  std::string name, text, id_text;
  bool of_all;  // nothing is asked for but project and states
};

}  // namespace legoai::store
