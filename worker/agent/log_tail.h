// The last lines of a rank's log file: what a process that died had to say. Torch-free. Thread-safety: a read of the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace legoai::agent {

// At most `lines` whole lines, not empty, from the last `bytes` bytes, in their order. None where there is no such file.
std::vector<std::string> LastLines(const std::string& path, size_t lines, int64_t bytes);

}  // namespace legoai::agent
