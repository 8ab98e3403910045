// The job that a request names. gRPC-free. Thread-safety: a function of the transaction that is given.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/job.pb.h"
#include "server/store/store.h"

namespace legoai::server {

// `field`: where `name` stands in the request. Errors: InvalidArgument for what is no job's name; NotFound.
absl::StatusOr<v1::Job> FindJob(store::ReadTransaction& transaction, const std::string& field, const std::string& name);

}  // namespace legoai::server
