#include "core/hardware/host.h"

#include <fstream>
#include <string>

#include "core/process/processors.h"

namespace legoai::sim {

int64_t HostPhysicalCores() { return launch::AllowedCores(); }

std::string HostProcessor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace legoai::sim
