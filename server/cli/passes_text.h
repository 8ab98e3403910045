// What `lego simulate` says of a step's passes and of FSDP's buckets. Thread-safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/json/reflect.h"
#include "proto/legoai/v1/estimate.pb.h"

namespace legoai::cli {

// One recipe with FSDP's collectives joined in different ways, an object each; empty for none.
Tree BucketingTree(const std::vector<v1::Estimate>& estimates);
std::string BucketingText(const Tree& bucketing);

// `passes`: the list that lego-sim writes (simulator/estimate/pass_log.h).
std::string PassesText(const Tree& passes);

}  // namespace legoai::cli
