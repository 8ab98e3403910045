#include "server/rpc/find_job.h"

#include <optional>
#include <utility>

#include "proto/errors.h"
#include "proto/status.h"
#include "server/jobs/names.h"

namespace legoai::server {

absl::StatusOr<v1::Job> FindJob(store::ReadTransaction& transaction, const std::string& field, const std::string& name) {
  if (const auto parsed = ParseJobName(field, name); !parsed.ok()) return parsed.status();
  ASSIGN_OR_RETURN(auto job, transaction.GetJob(name));
  if (!job) return FieldError(field, name, "there is no such job; `lego list` shows those that are", absl::StatusCode::kNotFound);
  return *std::move(job);
}

}  // namespace legoai::server
