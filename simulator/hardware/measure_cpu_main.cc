// Measures this machine's processor and prints it as a text-format Device message, which `ParseCluster` takes for type "cpu".
#include <google/protobuf/text_format.h>

#include <cstdio>
#include <string>

#include "simulator/hardware/measure_cpu.h"

int main() {
  auto device = legoai::sim::MeasureCpu();
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", std::string(device.status().message()).c_str());
    return 1;
  }
  std::string text;
  google::protobuf::TextFormat::PrintToString(*device, &text);
  std::fputs(text.c_str(), stdout);
  return 0;
}
