// A submission that is in order: a tiny Llama by its config.json, on a text that need not be there. For tests.
#pragma once

#include <string>

#include "proto/legoai/v1/control_plane.pb.h"

namespace legoai::server::testing {

// The config.json of a Llama of two layers.
std::string ExampleConfig();

v1::CreateJobRequest ExampleSubmission(const std::string& request_id = "");

}  // namespace legoai::server::testing
