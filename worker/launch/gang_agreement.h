// Whether the hosts of a gang would train the same. Thread-safety: pure functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "proto/legoai/v1/gang.pb.h"

namespace legoai::launch {

// "host 1 at 10.0.0.3"
std::string NameOfHost(int64_t host, const std::string& address);

// Whether it is one of the hosts of the first host's run at all, or of another one. Errors: FieldError of --nnodes or
// job.dump_folder, with both values.
absl::Status CheckIsOfRun(const v1::HostHello& first, const v1::HostHello& other, const std::string& name);

// Errors: those of CheckIsOfRun; FieldError naming the first thing that differs on host `name` from the first host, with both
// values: build, number of ranks, kind of device, a recipe's key, a field of the model, text, tokenizer.
absl::Status CheckAgrees(const v1::HostHello& first, const v1::HostHello& other, const std::string& name);

}  // namespace legoai::launch
