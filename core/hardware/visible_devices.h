// CUDA_VISIBLE_DEVICES, read as CUDA and torch.cuda read it. Thread-safety: a pure function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace legoai::sim {

struct VisibleDevices {
  std::vector<int> positions;  // in the list of UUIDs
  bool by_index = false;       // the variable holds indices
};

// `value`: of the variable. `uuids`: of all GPUs, by index.
VisibleDevices ReadVisibleDevices(std::string_view value, const std::vector<std::string>& uuids);

}  // namespace legoai::sim
