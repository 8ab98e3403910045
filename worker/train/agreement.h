// What the ranks of a job settle among themselves before they run a program each. All are collectives over all ranks, with the
// same result on each; the current runtime's, on its compute stream. Not thread-safe.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "absl/status/statusor.h"
#include "core/trace/trace.h"

namespace legoai::train {

// Empty if all ranks pass an empty text. Otherwise that of the highest rank that has one, after "rank 3: ", cut after a thousand
// bytes. Errors: those of communication.
absl::StatusOr<std::string> AgreeOnFault(const std::string& mine, c10::Device device);

// Empty if all ranks pass the same text. Otherwise that of the highest rank that passes another one than rank 0, and rank 0's:
// "rank 3: clang; rank 0: gcc", cut after a thousand bytes. Errors: those of communication.
absl::StatusOr<std::string> CompareTexts(const std::string& mine, c10::Device device);

// Whether the ranks of each group call the same collectives in it (core/trace/collective_digest.h): empty, or which rank calls
// others, in which group. Errors: those of communication.
absl::StatusOr<std::string> CompareCollectives(const graph::Trace& mine, c10::Device device);

}  // namespace legoai::train
