// Models that are known by name, with the sizes of their released config.json. Torch-free. Thread-safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/model.pb.h"

namespace legoai::model {

// llama3-1b and 3b are Llama 3.2's, llama3-8b to 405b Llama 3.1's; gpt2 to gpt2-xl. By family, smallest first.
const std::vector<v1::Model>& Catalog();

// A catalog name; otherwise the path of a config.json or its folder (hf_config.h). Errors: NotFound with the nearest catalog
// name; those of ReadHfConfig.
absl::StatusOr<v1::Model> ResolveModel(const std::string& name_or_path);

}  // namespace legoai::model
